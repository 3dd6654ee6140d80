"""Loading a configuration: from a file, a text or neither, with all mistakes at once and without secrets."""

import json
from pathlib import Path
from typing import Any

import pytest

from phasewatch.base.errors import ConfigError
from phasewatch.config.settings import Authorization, Config, TlsConfig
from tests.support.configurations import BACKENDS_KNOWN, EXAMPLE, SECRET, find_mistakes, get_target, write_target
from tests.support.targets import load_config, load_config_or_default, new_target, parse_config

ADDRESS = "expected an address such as http://127.0.0.1:8000"


def test_without_a_file_there_are_one_vllm_and_one_ollama_both_optional() -> None:
    vllm = new_target("vllm", "vllm", "http://127.0.0.1:8000", optional=True)
    ollama = new_target("ollama", "ollama", "http://127.0.0.1:11434", optional=True)
    assert load_config_or_default() == Config(targets=(vllm, ollama))


def test_a_file_is_read_like_its_text(tmp_path: Path) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text(EXAMPLE)
    assert load_config(path) == load_config_or_default(path) == parse_config(EXAMPLE)


def test_a_relative_path_starts_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    (tmp_path / "ca.pem").touch()
    path = tmp_path / "phasewatch.yml"
    path.write_text(
        write_target(url="https://h", authorization={"credentials_file": "key"}, tls_config={"ca_file": "ca.pem"})
    )
    config = load_config(path)
    assert get_target(config).authorization == Authorization("Bearer", tmp_path / "key")
    assert get_target(config).tls_config == TlsConfig(tmp_path / "ca.pem", None, None, insecure_skip_verify=False)
    assert config.notes == ()


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "none.yml")
    assert str(refused.value) == f"{tmp_path / 'none.yml'}: cannot be read: No such file or directory"
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "binary.yml")
    assert str(refused.value) == f"{tmp_path / 'binary.yml'}: is not UTF-8 text: invalid start byte at byte 0"


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(Path("/dev/zero"))
    assert str(refused.value.problems[0]) == "/dev/zero: is larger than 1 MB: is it the right file?"


def test_all_mistakes_are_reported_at_once() -> None:
    text = """\
intervall: 5s
window: 60
window: 61
targets:
- name: chat
  backend: openai
  url: http://h/metrics
  authorization: {type: Digest}
- name: chat
  backend: vllm
  url: h:8000
  device: {count: 0, flops: 1}
"""
    assert sorted(find_mistakes(text)) == [
        "intervall: unknown key; did you mean interval?",
        "targets[0].authorization.credentials_file: missing; this key is required",
        "targets[0].authorization.type: expected 'Bearer' or 'Basic'",
        f"targets[0].backend: expected {BACKENDS_KNOWN}, found 'openai'",
        "targets[0].url: expected the server's base address; set metrics_path if its metrics are not at /metrics",
        "targets[1].device.count: expected 1 or more, found 0",
        "targets[1].device.flops: expected a compute rate such as 362TFLOPS, found 1",
        "targets[1].name: 'chat' is taken by targets[0]",
        f"targets[1].url: {ADDRESS}",
        "window: expected a duration such as 5s, 500ms or 1m, found 61",
        "window: given twice, in line 2 and line 3; keep one",
    ]


def test_a_key_given_twice_in_a_target_is_reported_with_both_lines() -> None:
    text = "targets:\n- name: chat\n  backend: vllm\n  url: http://a\n  url: http://b\n"
    assert find_mistakes(text) == ["targets[0].url: given twice, in line 4 and line 5; keep one"]


def test_odd_yaml_is_reported_as_mistakes() -> None:
    for text in (
        "a: !!bool abc\n",
        "a: !!timestamp abc\n",
        "a: !!int x\n",
        "a: !!python/object:os.system x\n",
        "interval: 2026-13-45\n",
        "a: " + "[" * 5000,
        "a: &a [*a]\n",
    ):
        assert find_mistakes(text), text


def test_no_message_repeats_a_secret() -> None:
    for text in (
        write_target(url=f"http://user:{SECRET}@h"),
        write_target(url=f"http://user:{SECRET}@h:99999"),
        write_target(url=f"http://user:{SECRET}@[::1"),
        write_target(url=f"http://user:{SECRET}@h /"),
        write_target(url=f"user:{SECRET}@h"),
        write_target(url=f"http://h?api_key={SECRET}"),
        write_target(url=[f"http://user:{SECRET}@h"]),
        write_target(authorization=SECRET),
        write_target(authorization=[SECRET]),
        write_target(authorization={"type": f"Bearer {SECRET}", "credentials_file": "/x"}),
        write_target(authorization={"credentials": SECRET}),
        write_target(authorization={"credentials_file": [SECRET]}),
        write_target(authorization={"credentials_file": {"value": SECRET}}),
        write_target(basic_auth={"username": "u", "password": SECRET}),
        write_target(headers={"Authorization": SECRET}),
        json.dumps({"targets": {"chat": {"url": f"http://user:{SECRET}@h"}}}),
        json.dumps({"targets": [f"http://user:{SECRET}@h"]}),
        json.dumps({"targets": f"http://user:{SECRET}@h"}),
        json.dumps({"targets": [], "authorization": {"credentials": SECRET}}),
        f"password: {SECRET}: x\n",
        f"password: *{SECRET}\n",
        f"password: !{SECRET}\n",
    ):
        with pytest.raises(ConfigError) as refused:
            parse_config(text, "f.yml")
        message = f"{refused.value} {refused.value!r} {refused.value.problems}"
        assert refused.value.problems, text
        assert SECRET not in message, text


def test_an_address_in_another_key_is_not_repeated() -> None:
    rows: list[Any] = ["http://me:hunter2@h", ["http://me:hunter2@h"], [{"x": "http://me:hunter2@h"}]]
    for value in rows:
        for key in ("timeout", "body_size_limit", "optional"):
            assert SECRET not in "".join(find_mistakes(write_target(**{key: value}))), (value, key)


def test_a_secret_in_place_of_its_file_is_neither_in_notes_nor_in_repr() -> None:
    config = parse_config(write_target(authorization={"type": "Bearer", "credentials_file": SECRET}))
    assert [str(note) for note in config.notes] == [
        "targets[0].authorization.credentials_file: cannot be read now: No such file or directory"
    ]
    assert SECRET not in f"{config!r} {config} {get_target(config)!r}"


def test_the_content_of_a_secret_file_is_not_in_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(SECRET)
    config = parse_config(write_target(authorization={"credentials_file": str(path)}))
    assert config.notes == ()
    assert SECRET not in repr(config)
