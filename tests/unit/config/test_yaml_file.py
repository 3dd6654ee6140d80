from pathlib import Path

import pytest

from phasewatch.base.errors import ConfigError
from phasewatch.config.yaml_file import parse_mapping, read_mapping


def find_mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_mapping(text, "f.yml")
    return [str(problem) for problem in refused.value.problems]


def test_a_mapping_is_read_as_it_is_written() -> None:
    assert parse_mapping("a: 1\nb: [x, {c: null}]\n", "f.yml") == ({"a": 1, "b": ["x", {"c": None}]}, [])


def test_a_key_given_twice_is_found_at_any_depth() -> None:
    for text, problem in (
        ("a: 1\na: 2\n", "a: given twice, in line 1 and line 2; keep one"),
        ("a: 1\nb: 2\n\n'a': 3\n", "a: given twice, in line 1 and line 4; keep one"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", "a.b: given twice, in line 2 and line 4; keep one"),
        ("a:\n- b: 1\n- b: 1\n  b: 2\n", "a[1].b: given twice, in line 3 and line 4; keep one"),
        ("a: {b: 1, b: 2}\n", "a.b: given twice, in line 1 and line 1; keep one"),
    ):
        _, problems = parse_mapping(text, "f.yml")
        assert [str(item) for item in problems] == [problem], text


def test_equal_keys_of_different_mappings_are_valid() -> None:
    assert parse_mapping("a: {x: 1}\nb: {x: 1}\nc: [{x: 1}, {x: 1}]\n", "f.yml")[1] == []


def test_a_key_given_twice_below_an_anchor_is_reported_once() -> None:
    _, problems = parse_mapping("a: &it {x: 1, x: 2}\nb: *it\n", "f.yml")
    assert [problem.path for problem in problems] == ["a.x"]


def test_a_mapping_that_holds_itself_ends() -> None:
    raw, problems = parse_mapping("a: &it [*it]\n", "f.yml")
    assert list(raw) == ["a"]
    assert problems == []


def test_a_text_that_is_not_a_mapping_is_refused() -> None:
    for text in ("", "# nothing\n", "hello", "- a\n- b\n", "null", "42"):
        assert find_mistakes(text) == ["f.yml: expected a mapping of keys"], text


def test_invalid_yaml_is_reported_with_line_and_column() -> None:
    for text, problem in (
        ("a: [1", "f.yml:1:6: no valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\nb: c: d\n", "f.yml:2:5: no valid YAML: mapping values are not allowed here"),
        ("a: 1\n---\nb: 1\n", "f.yml:2:1: no valid YAML: but found another document"),
        ("a:\n\tb: 1\n", "f.yml:2:1: no valid YAML: found character '\\t' that cannot start any token"),
    ):
        assert find_mistakes(text) == [problem], text


def test_yaml_that_cannot_be_constructed_is_one_problem_on_one_line() -> None:
    for text in ("a: 2026-13-45\n", "? [a]\n: b\n", "a: !!python/object:os.system x\n", "a: \x00\n"):
        (problem,) = find_mistakes(text)
        assert problem.startswith("f.yml"), text
        assert "\n" not in problem, text


def test_a_missing_file_is_reported_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "none.yml"
    with pytest.raises(ConfigError) as refused:
        read_mapping(path)
    assert str(refused.value) == f"{path}: cannot be read: No such file or directory"


def test_an_unreadable_file_is_reported_with_the_systems_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read_mapping(tmp_path)
    assert str(refused.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_file_that_is_not_utf8_is_reported_with_the_position(tmp_path: Path) -> None:
    path = tmp_path / "latin1.yml"
    path.write_bytes("name: café\n".encode("latin-1"))
    with pytest.raises(ConfigError) as refused:
        read_mapping(path)
    assert str(refused.value) == f"{path}: is not UTF-8 text: invalid continuation byte at byte 9"


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "windows.yml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\n")
    assert read_mapping(path) == ({"a": 1}, [])
