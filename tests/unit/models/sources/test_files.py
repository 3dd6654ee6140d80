import json
import os
from pathlib import Path

import pytest

from phasewatch.models.errors import ModelError
from phasewatch.models.sources.files import find_file, parse_json_object, read_json_file, resolve_links


def test_a_file_of_the_folder_is_found_and_one_that_is_not_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert find_file(tmp_path, "config.json") == tmp_path / "config.json"
    assert find_file(tmp_path, "model.safetensors") is None


def test_a_snapshot_of_the_hub_leads_into_the_blobs_of_its_model(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "123").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/123")
    assert find_file(snapshot, "config.json") == blobs / "123"


@pytest.mark.parametrize("name", ["../config.json", "a/b.json", "/etc/passwd", "..", ".", "", "a\0b", "a\\b"])
def test_a_name_that_is_a_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=r"is no plain file name$"):
        find_file(tmp_path, name)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").symlink_to("../secret")
    with pytest.raises(ModelError) as refused:
        find_file(folder, "config.json")
    assert str(refused.value) == (
        f"{folder / 'config.json'}: is a link out of the model's folder; put the file itself there"
    )


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    with pytest.raises(ModelError, match=r"a\.json: cannot be read: .*(loop|symbolic links)"):
        find_file(tmp_path, "a.json")


def test_a_link_to_nothing_is_told_and_not_taken_for_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to("gone")
    with pytest.raises(ModelError, match=r"config\.json: cannot be read: No such file or directory$"):
        find_file(tmp_path, "config.json")


def test_what_is_no_regular_file_is_refused_without_being_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(ModelError, match=f"{name}: is no regular file$"):
            find_file(tmp_path, name)


@pytest.mark.parametrize("path", ["/nothing/there", "/nul\0byte"])
def test_a_path_that_leads_nowhere_is_told(path: str) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        resolve_links(Path(path))


def test_a_file_longer_than_such_a_file_can_be_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{" + b" " * 3_000_000 + b"}")
    with pytest.raises(ModelError, match=r"config\.json: is larger than 2 MB: is it the right file\?$"):
        read_json_file(path, 2_000_000)
    assert read_json_file(path, 4_000_000) == {}


def test_a_file_that_may_not_be_read_is_told_with_the_systems_word(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be read: Is a directory$"):
        read_json_file(tmp_path, 100)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "f: no valid JSON: "),
        (b"{", "f: no valid JSON: "),
        (b"\xff{}", "f: no valid JSON: "),
        (b"[" * 200_000, "f: no valid JSON: "),
        (b'{"a": ' + b"9" * 5000 + b"}", "f: no valid JSON: "),
        (b'{"a": {"b": 1, "b": 2}}', "f: no valid JSON: 'b' is given twice"),
        (b"[]", "f: expected a JSON object"),
        (b"5", "f: expected a JSON object"),
        (b"null", "f: expected a JSON object"),
    ],
)
def test_what_is_no_json_object_is_refused(text: bytes, told: str) -> None:
    with pytest.raises(ModelError) as refused:
        parse_json_object(text, "f")
    assert str(refused.value).startswith(told)
    assert len(str(refused.value)) < 300


def test_an_object_comes_back_as_it_is_written() -> None:
    document = {"a": 1, "b": {"a": [None, {"c": 2.5}]}}
    assert parse_json_object(json.dumps(document).encode(), "f") == document
