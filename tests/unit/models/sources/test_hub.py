from pathlib import Path

import pytest

from phasewatch.models.sources.hub import find_in_hub_cache

REVISION = "0e9e39f249a16976918f6564b8830bc894c89659"


def cached(cache: Path, name: str = "meta-llama--Llama-3.1-8B", revision: str = REVISION) -> Path:
    """A model in a cache; its snapshot."""
    model = cache / f"models--{name}"
    snapshot = model / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(revision)
    return snapshot


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HF_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ],
)
def test_a_hub_id_is_found_wherever_the_cache_may_be(tmp_path: Path, variable: str, below: str) -> None:
    snapshot = cached(tmp_path / below)
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B", {variable: str(tmp_path)}) == snapshot


def test_the_cache_that_was_told_comes_first(tmp_path: Path) -> None:
    first, second = cached(tmp_path / "1"), cached(tmp_path / "2" / "hub")
    environment = {"HF_HUB_CACHE": str(tmp_path / "1"), "HF_HOME": str(tmp_path / "2")}
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B", environment) == first
    environment["HF_HUB_CACHE"] = str(tmp_path / "nothing")
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B", environment) == second


def test_the_environment_of_the_process_says_where_the_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = cached(tmp_path)
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B") == snapshot


def test_a_model_of_no_organisation_is_found(tmp_path: Path) -> None:
    assert find_in_hub_cache("gpt2", {"HF_HUB_CACHE": str(tmp_path)}) is None
    snapshot = cached(tmp_path, "gpt2")
    assert find_in_hub_cache("gpt2", {"HF_HUB_CACHE": str(tmp_path)}) == snapshot


def test_a_folder_is_found_by_its_absolute_path(tmp_path: Path) -> None:
    assert find_in_hub_cache(str(tmp_path), {}) == tmp_path
    assert find_in_hub_cache(str(tmp_path / "nothing"), {}) is None


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("x")
    assert find_in_hub_cache(str(tmp_path / "model"), {}) is None


def test_a_relative_path_leads_nowhere_even_if_we_have_such_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "llama").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for root in ("models/llama", "models", "./models", "."):
        assert find_in_hub_cache(root, {"HF_HUB_CACHE": str(tmp_path)}) is None


@pytest.mark.parametrize(
    "root",
    [
        *("", ".", "..", "../..", "../../etc", "a/..", "../a", "a/../b", "a//b", "a/", "/", "a/b/c", "a--b/c", "-a/b"),
        *(
            "a\0b",
            "/\0",
            "/etc/passwd\0",
            "/dev/null",
            "/dev/stdin",
            "a b/c",
            "a/b\n",
            "\n",
            "ä/b",
            "~",
            "~/x",
            "$HOME",
        ),
        *(
            "s3://bucket/model",
            "a" * 5_000_000,
            "/" + "a" * 5_000_000,
            "/" + "a" * 4000,
            "a/" * 2000,
            "\ud800",
            "/\ud800",
        ),
    ],
)
def test_a_hostile_root_leads_nowhere(tmp_path: Path, root: str) -> None:
    cached(tmp_path, "a--b--c")
    found = find_in_hub_cache(root, {"HF_HUB_CACHE": str(tmp_path), "HOME": str(tmp_path)})
    assert found is None or root == "/"


@pytest.mark.parametrize("revision", ["../../../etc", "", "..", "main", "x" * 5000, REVISION.upper(), "é"])
def test_a_reference_that_is_no_revision_leads_nowhere(tmp_path: Path, revision: str) -> None:
    snapshot = cached(tmp_path)
    (snapshot.parent.parent / "refs" / "main").write_text(revision, encoding="utf-8")
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B", {"HF_HUB_CACHE": str(tmp_path)}) is None


def test_a_cache_without_the_snapshot_that_it_refers_to_has_no_model(tmp_path: Path) -> None:
    cached(tmp_path).rmdir()
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B", {"HF_HUB_CACHE": str(tmp_path)}) is None
