import json
import os
import re
from pathlib import Path

import pytest

from phasewatch.models.errors import ModelError
from phasewatch.models.sources.files import find_file, parse_json_object, read_json_file, resolve_links
from tests.support.model_folders import refusal


def test_a_file_of_the_folder_is_found_and_a_missing_one_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert find_file(tmp_path, "config.json") == tmp_path / "config.json"
    assert find_file(tmp_path, "model.safetensors") is None


def test_a_link_from_a_snapshot_into_the_blobs_of_its_model_is_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "123").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/123")
    assert find_file(snapshot, "config.json") == blobs / "123"


def test_a_name_that_is_a_path_is_refused(tmp_path: Path) -> None:
    for name in ("../config.json", "a/b.json", "/etc/passwd", "..", ".", "", "a\0b", "a\\b"):
        assert re.search(r"is no plain file name$", refusal(find_file, tmp_path, name)), name


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


def test_a_loop_of_links_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    with pytest.raises(ModelError, match=r"a\.json: cannot be read: .*(loop|symbolic links)"):
        find_file(tmp_path, "a.json")


def test_a_dangling_link_is_reported_and_not_taken_for_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to("gone")
    with pytest.raises(ModelError, match=r"config\.json: cannot be read: No such file or directory$"):
        find_file(tmp_path, "config.json")


def test_a_file_that_is_not_regular_is_refused_without_being_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(ModelError, match=f"{name}: is no regular file$"):
            find_file(tmp_path, name)


def test_a_path_that_does_not_exist_is_reported() -> None:
    for path in ("/nothing/there", "/nul\0byte"):
        assert re.search("cannot be read", refusal(resolve_links, Path(path))), path


def test_a_file_beyond_the_maximum_size_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{" + b" " * 3_000_000 + b"}")
    with pytest.raises(ModelError, match=r"config\.json: is larger than 2 MB: is it the right file\?$"):
        read_json_file(path, 2_000_000)
    assert read_json_file(path, 4_000_000) == {}


def test_a_file_that_cannot_be_read_is_reported_with_the_systems_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be read: Is a directory$"):
        read_json_file(tmp_path, 100)


def test_text_that_is_not_a_json_object_is_refused() -> None:
    cases = [
        (b"", "f: no valid JSON: "),
        (b"{", "f: no valid JSON: "),
        (b"\xff{}", "f: no valid JSON: "),
        (b"[" * 200_000, "f: no valid JSON: "),
        (b'{"a": ' + b"9" * 5000 + b"}", "f: no valid JSON: "),
        (b'{"a": {"b": 1, "b": 2}}', "f: no valid JSON: 'b' is given twice"),
        (b"[]", "f: expected a JSON object"),
        (b"5", "f: expected a JSON object"),
        (b"null", "f: expected a JSON object"),
    ]
    for text, expected in cases:
        message = refusal(parse_json_object, text, "f")
        assert message.startswith(expected), text[:80]
        assert len(message) < 300, text[:80]


def test_a_json_object_is_parsed_as_it_is_written() -> None:
    document = {"a": 1, "b": {"a": [None, {"c": 2.5}]}}
    assert parse_json_object(json.dumps(document).encode(), "f") == document
