from pathlib import Path

import pytest

from phasewatch.models.sources.hub import find_in_hub_cache

REVISION = "0e9e39f249a16976918f6564b8830bc894c89659"


def create_snapshot(cache: Path, name: str = "meta-llama--Llama-3.1-8B", revision: str = REVISION) -> Path:
    """A model in a cache; its snapshot."""
    model = cache / f"models--{name}"
    snapshot = model / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(revision)
    return snapshot


def test_a_hub_id_is_found_in_every_location_of_the_cache(tmp_path: Path) -> None:
    cases = [
        ("HF_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ]
    for variable, subfolder in cases:
        snapshot = create_snapshot(tmp_path / subfolder)
        assert find_in_hub_cache("meta-llama/Llama-3.1-8B", {variable: str(tmp_path)}) == snapshot, variable


def test_the_configured_cache_is_searched_first(tmp_path: Path) -> None:
    first, second = create_snapshot(tmp_path / "1"), create_snapshot(tmp_path / "2" / "hub")
    environment = {"HF_HUB_CACHE": str(tmp_path / "1"), "HF_HOME": str(tmp_path / "2")}
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B", environment) == first
    environment["HF_HUB_CACHE"] = str(tmp_path / "nothing")
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B", environment) == second


def test_the_environment_of_the_process_locates_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = create_snapshot(tmp_path)
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B") == snapshot


def test_a_model_without_an_organisation_is_found(tmp_path: Path) -> None:
    assert find_in_hub_cache("gpt2", {"HF_HUB_CACHE": str(tmp_path)}) is None
    snapshot = create_snapshot(tmp_path, "gpt2")
    assert find_in_hub_cache("gpt2", {"HF_HUB_CACHE": str(tmp_path)}) == snapshot


def test_a_folder_is_found_by_its_absolute_path(tmp_path: Path) -> None:
    assert find_in_hub_cache(str(tmp_path), {}) == tmp_path
    assert find_in_hub_cache(str(tmp_path / "nothing"), {}) is None


def test_a_file_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("x")
    assert find_in_hub_cache(str(tmp_path / "model"), {}) is None


def test_a_relative_path_is_not_found_even_if_such_a_folder_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "llama").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for root in ("models/llama", "models", "./models", "."):
        assert find_in_hub_cache(root, {"HF_HUB_CACHE": str(tmp_path)}) is None


def test_a_hostile_root_is_not_found(tmp_path: Path) -> None:
    cases = [
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
    ]
    create_snapshot(tmp_path, "a--b--c")
    for root in cases:
        folder = find_in_hub_cache(root, {"HF_HUB_CACHE": str(tmp_path), "HOME": str(tmp_path)})
        assert folder is None or root == "/", root[:80]


def test_a_reference_that_is_not_a_revision_is_not_followed(tmp_path: Path) -> None:
    snapshot = create_snapshot(tmp_path)
    for revision in ("../../../etc", "", "..", "main", "x" * 5000, REVISION.upper(), "é"):
        (snapshot.parent.parent / "refs" / "main").write_text(revision, encoding="utf-8")
        assert find_in_hub_cache("meta-llama/Llama-3.1-8B", {"HF_HUB_CACHE": str(tmp_path)}) is None, revision[:80]


def test_a_cache_without_the_referenced_snapshot_has_no_model(tmp_path: Path) -> None:
    create_snapshot(tmp_path).rmdir()
    assert find_in_hub_cache("meta-llama/Llama-3.1-8B", {"HF_HUB_CACHE": str(tmp_path)}) is None
