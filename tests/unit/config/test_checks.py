"""Checks across keys: repeated names, contradictions and notes."""

import re
from pathlib import Path
from typing import Any

from tests.support.configurations import EXAMPLE, find_mistakes, find_notes, parse_target, write_ollama, write_target
from tests.support.targets import load_config


def test_a_repeated_name_is_refused() -> None:
    target = "{name: chat, backend: vllm, url: 'http://h'}"
    assert find_mistakes(f"targets: [{target}, {target}, {target}]") == [
        "targets[1].name: 'chat' is taken by targets[0]",
        "targets[2].name: 'chat' is taken by targets[0]",
    ]


def test_a_window_shorter_than_the_interval_is_refused() -> None:
    for key, problem in (
        (
            "window: 4s\n",
            "targets[0].window: expected at least the interval of 5s, found 4s: one window must hold two scrapes",
        ),
        (
            "interval: 2m\n",
            (
                "targets[0].window: expected at least the interval of 2m, but the default is 1m: "
                "one window must hold two scrapes"
            ),
        ),
    ):
        assert find_mistakes(f"{key}targets: [{{name: chat, backend: vllm, url: 'http://h'}}]\n") == [problem], key


def test_a_window_may_be_as_short_as_the_interval() -> None:
    assert parse_target(write_target(interval="5s", window="5s")).window == 5.0


def test_a_window_that_is_too_short_is_reported_with_two_different_figures() -> None:
    (problem,) = find_mistakes(write_target(interval="5400ms", window="5s"))
    figures = re.search("at least the interval of (.+), found (.+): ", problem)
    assert figures
    assert figures[1] != figures[2]


def test_an_ollama_may_have_a_window_shorter_than_its_interval() -> None:
    assert parse_target(write_ollama(interval="5m")).interval == 300.0


def test_tls_config_needs_https_in_upper_or_lower_case() -> None:
    mistakes = find_mistakes(write_target(url="HTTP://h", tls_config={"insecure_skip_verify": True}))
    assert mistakes == ["targets[0].tls_config: expected an https url with it"]


def test_contradictions_are_reported_together_with_other_mistakes() -> None:
    text = """\
intervall: 5s
targets:
- {name: a, backend: vllm, url: "http://a", window: 1s}
- {name: b, backend: vllm, url: "http://b", tls_config: {ca_file: /x}}
"""
    assert [problem.partition(":")[0] for problem in sorted(find_mistakes(text))] == [
        "intervall",
        "targets[0].window",
        "targets[1].tls_config",
    ]


def test_costs_that_an_ollama_reports_for_each_model_are_refused() -> None:
    for key in ("path", "weights", "weights_read", "kv_cache_bytes_per_token", "active_parameters"):
        value = {"path": "/x", "active_parameters": "8e9"}.get(key, "16GB")
        assert find_mistakes(write_ollama(model={key: value})) == [
            f"targets[0].model.{key}: an ollama target tells this itself, for each of its models"
        ], key


def test_an_unused_key_is_a_note_not_a_mistake() -> None:
    assert find_notes(EXAMPLE) == [
        "targets[0].probe: accepted, but not used: a vllm target is never sent a prompt",
        "targets[0].authorization.credentials_file: cannot be read now: No such file or directory",
    ]


def test_keys_that_an_ollama_does_not_use_are_noted() -> None:
    unused = {
        "server": {"max_num_seqs": 4},
        "saturation": {"memory": "20s"},
        "metrics_path": "/metrics",
    }
    assert find_notes(write_ollama(**unused)) == [
        "targets[0].server: accepted, but not used: an ollama target has no such settings",
        "targets[0].saturation: used only to tell when a model is stuck: Ollama does not show what waits",
        "targets[0].metrics_path: accepted, but not used: Ollama has no page of metrics",
    ]


def test_only_an_ollama_has_children() -> None:
    assert find_notes(write_ollama(ollama={"runners": "off"})) == []
    assert find_notes(write_target(ollama={"runners": "auto"})) == [
        "targets[0].ollama: accepted, but not used: only an ollama target has children"
    ]


def test_load_without_any_model_is_noted() -> None:
    assert find_notes(write_ollama(probe={"load": True})) == [
        "targets[0].probe.load: loads nothing by itself: name the models it is meant for in probe.models"
    ]
    assert find_notes(write_ollama(probe={"load": True, "models": [{"name": "a"}]})) == []


def test_an_unknown_device_is_noted() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"name": "NVIDIA L99"}, "'NVIDIA L99': the table has no such device; set device.memory_bandwidth, or a"),
        (
            {"name": "NVIDIA GeForce RTX 3080"},
            (
                "'NVIDIA GeForce RTX 3080' may be any of GeForce RTX 3080 (10GB), GeForce RTX 3080 (12GB): "
                "the memory size decides; set device.memory, "
            ),
        ),
        ({"name": "NVIDIA L40S", "memory": "12GB"}, "'NVIDIA L40S': L40S has 48 GB, not 11.2 GiB; set"),
        ({"name": "AMD EPYC 9354 32-Core Processor"}, "'AMD EPYC 9354 32-Core Processor': a processor does not tell"),
    ]
    for device, text in rows:
        (note,) = find_notes(write_target(device=device))
        assert note.startswith(f"targets[0].device.name: {text}"), device


def test_a_known_or_unneeded_device_name_is_not_noted() -> None:
    for device in (
        {"name": "NVIDIA L40S"},
        {"name": "cpu"},
        {"name": "NVIDIA GeForce RTX 3080", "memory": "12GB"},
        {"name": "NVIDIA L99", "memory_bandwidth": "864GB/s"},
        {"memory": "12GB"},
    ):
        assert find_notes(write_target(device=device)) == [], device


def test_a_folder_without_a_model_is_noted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = "targets[0].model.path"
    for place, text in (
        ("none", "cannot be read now: No such file or directory"),
        ("file", "expected a folder with the files of a model"),
        ("", "the folder has no config.json: is it that of a model?"),
    ):
        assert find_notes(write_target(model={"path": f"{tmp_path}/{place}"})) == [f"{path}: {text}"], place
    file = tmp_path / "phasewatch.yml"
    file.write_text(write_target(model={"path": ""}))
    assert [str(note) for note in load_config(file).notes] == [
        f"{path}: the folder has no config.json: is it that of a model?"
    ]
    (tmp_path / "config.json").touch()
    assert load_config(file).notes == ()
