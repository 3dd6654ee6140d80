import json
import re
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from phasewatch.base.errors import ConfigError
from phasewatch.config.settings import (
    Authorization,
    Config,
    DeviceSettings,
    ProbeSettings,
    SaturationSettings,
    ServerSettings,
    Target,
    TlsConfig,
)
from phasewatch.hardware.facts import DeviceLayout
from phasewatch.models.settings import ModelSettings
from tests.support.targets import (
    load_config,
    load_config_or_default,
    new_model_probe,
    new_probe_settings,
    new_saturation_settings,
    new_target,
    parse_config,
)

EXAMPLE = """\
interval: 5s            # how often targets are scraped
window: 60s
timeout: 4s
targets:
  - name: chat
    backend: vllm       # vllm | ollama | openai
    url: http://127.0.0.1:8000
    interval: 1s        # any global key can be set per target
    device: {name: NVIDIA L40S, count: 1}
    model: {weights: 16.06GB}
    authorization: {type: Bearer, credentials_file: /run/secrets/key}
    probe: {enabled: true, interval: 5m}
    server: {max_num_seqs: 256, max_num_batched_tokens: 8192, api_servers: 1}
"""
SECRET = "hunter2"  # noqa: S105  # planted, to see that it does not come out


def one_target(**keys: Any) -> str:
    return json.dumps({"targets": [{"name": "chat", "backend": "vllm", "url": "http://127.0.0.1:8000", **keys}]})


def target_of(config: Config) -> Target:
    (target,) = config.targets
    return target


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_config(text, "f.yml")
    return [str(problem) for problem in refused.value.problems]


def test_the_example_of_the_manual_is_valid() -> None:
    assert target_of(parse_config(EXAMPLE)) == new_target(
        "chat",
        "vllm",
        "http://127.0.0.1:8000",
        interval=1.0,
        window=60.0,
        timeout=4.0,
        authorization=Authorization("Bearer", Path("/run/secrets/key")),
        server=ServerSettings(max_num_seqs=256, max_num_batched_tokens=8192, api_servers=1),
        probe=new_probe_settings(enabled=True, interval=300.0),
        device=DeviceSettings(name="NVIDIA L40S", count=1),
        model=ModelSettings(weights=16.06 * 1e9),
    )


def test_thresholds_are_set_for_all_targets_and_for_one() -> None:
    text = one_target(saturation={"prefill_share": 0.4})
    found = target_of(
        parse_config(text.replace('{"targets"', '{"saturation": {"memory": "20s", "prefill_share": 0.5}, "targets"'))
    )
    assert found.saturation == new_saturation_settings(memory=20.0, prefill_share=0.4)


def test_a_threshold_that_cannot_be_is_a_mistake() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"prefill_share": 0}, "saturation.prefill_share: expected more than 0, found 0"),
        ({"prefill_share": 1.5}, "saturation.prefill_share: expected 1 or less, found 1.5"),
        ({"prefill_share": "x"}, "saturation.prefill_share: expected a number, found 'x'"),
        ({"memory": 15}, "saturation.memory: expected a duration such as 5s, 500ms or 1m, found 15"),
        ({"hysterese": "5s"}, "saturation.hysterese: unknown key; did you mean hysteresis?"),
    ]
    for value, message in rows:
        assert complaints(one_target(saturation=value)) == [f"targets[0].{message}"], value


def test_a_valid_key_without_use_is_noted_not_refused() -> None:
    assert [str(note) for note in parse_config(EXAMPLE).notes] == [
        "targets[0].probe: accepted, but not used: a vllm target is never sent a prompt",
        "targets[0].authorization.credentials_file: cannot be read now: No such file or directory",
    ]


def test_without_a_file_there_are_one_vllm_and_one_ollama_both_optional() -> None:
    vllm = new_target("vllm", "vllm", "http://127.0.0.1:8000", optional=True)
    ollama = new_target("ollama", "ollama", "http://127.0.0.1:11434", optional=True)
    assert load_config_or_default() == Config(targets=(vllm, ollama))


def test_a_key_that_is_not_given_has_its_default() -> None:
    target = target_of(parse_config(one_target()))
    assert target == Target(
        name="chat",
        backend="vllm",
        url="http://127.0.0.1:8000",
        interval=5.0,
        window=60.0,
        timeout=4.0,
        body_size_limit=16_000_000,
        optional=False,
        authorization=None,
        tls_config=None,
        device=DeviceSettings(),
        device_from=None,
        model=ModelSettings(),
        probe=ProbeSettings(
            enabled=True, interval=300.0, long_interval=3600.0, timeout=60.0, budget=0.01, load=False, models={}
        ),
        server=ServerSettings(max_num_seqs=None, max_num_batched_tokens=None, api_servers=None),
        saturation=SaturationSettings(
            memory=15.0,
            hysteresis=5.0,
            stuck_after=30.0,
            kv_cache_free=0.05,
            prefill_share=0.3,
            step_budget_share=0.8,
            deferred_share=0.5,
        ),
    )


def test_a_global_key_is_a_default_that_each_target_can_override() -> None:
    rows: list[tuple[str, str, str, tuple[float, float]]] = [
        ("interval", "2s", "500ms", (2.0, 0.5)),
        ("window", "2m", "30s", (120.0, 30.0)),
        ("timeout", "3s", "1s", (3.0, 1.0)),
        ("body_size_limit", "1MB", "1MiB", (1_000_000, 2**20)),
    ]
    for key, everywhere, here, values in rows:
        config = parse_config(f"""
    {key}: {everywhere}
    targets:
    - {{name: a, backend: vllm, url: "http://a"}}
    - {{name: b, backend: vllm, url: "http://b", {key}: {here}}}
    """)
        assert tuple(getattr(target, key) for target in config.targets) == values, key


def test_trust_and_client_certificate_come_from_files(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch()
    files = {f"{name}_file": str(tmp_path / name) for name in ("ca", "cert", "key")}
    config = parse_config(one_target(url="https://h", tls_config={**files, "insecure_skip_verify": True}))
    assert target_of(config).tls_config == TlsConfig(
        tmp_path / "ca", tmp_path / "cert", tmp_path / "key", insecure_skip_verify=True
    )
    assert config.notes == ()


def test_a_relative_path_starts_at_the_folder_of_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    (tmp_path / "ca.pem").touch()
    path = tmp_path / "phasewatch.yml"
    path.write_text(
        one_target(url="https://h", authorization={"credentials_file": "key"}, tls_config={"ca_file": "ca.pem"})
    )
    config = load_config(path)
    assert target_of(config).authorization == Authorization("Bearer", tmp_path / "key")
    assert target_of(config).tls_config == TlsConfig(tmp_path / "ca.pem", None, None, insecure_skip_verify=False)
    assert config.notes == ()


def test_a_configuration_cannot_be_changed() -> None:
    config = parse_config(EXAMPLE)
    with pytest.raises(FrozenInstanceError):
        config.targets = ()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        target_of(config).url = "http://elsewhere"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        target_of(config).probe.enabled = False  # type: ignore[misc]
    assert parse_config(EXAMPLE) == config


def test_each_mistake_at_the_top_has_its_message() -> None:
    for text, problem in (
        ("intervall: 5s\n", "intervall: unknown key; did you mean interval?"),
        ("xyz: 5s\n", "xyz: unknown key; known here: body_size_limit, interval, saturation, targets, timeout, window"),
        ("interval: 5s\ninterval: 6s\n", "interval: given twice, in line 1 and line 2; keep one"),
        ("interval: 5\n", "interval: expected a duration such as 5s, 500ms or 1m, found 5"),
        ("interval: soon\n", "interval: expected a duration such as 5s, 500ms or 1m, found 'soon'"),
        ("interval: 99ms\n", "interval: expected at least 100ms"),
        ("window: 1\n", "window: expected a duration such as 5s, 500ms or 1m, found 1"),
        ("window: 0s\n", "window: expected a duration above 0"),
        ("timeout: 0ms\n", "timeout: expected a duration above 0"),
        ("timeout: [4s]\n", "timeout: expected a duration such as 5s, 500ms or 1m, found a list"),
        ("body_size_limit: 16\n", "body_size_limit: expected a size such as 16.06GB or 12GiB, found 16"),
        ("body_size_limit: 0MB\n", "body_size_limit: expected a size such as 16.06GB or 12GiB, found '0MB'"),
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
        assert complaints(f"{text}targets: [{{name: chat, backend: vllm, url: 'http://h'}}]\n") == [problem], text


DURATION = "expected a duration such as 5s, 500ms or 1m"
SIZE = "expected a size such as 16.06GB or 12GiB"


def test_each_mistake_of_a_target_has_its_message() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"ulr": "x"}, "ulr: unknown key; did you mean url?"),
        (
            {"xyz": 1},
            (
                "xyz: unknown key; known here: authorization, backend, body_size_limit, device, device_from, interval, "
                "model, name, optional, probe, saturation, server, timeout, tls_config, url, window"
            ),
        ),
        ({"device": {"cuont": 1}}, "device.cuont: unknown key; did you mean count?"),
        (
            {"model": {"xyz": 1}},
            (
                "model.xyz: unknown key; known here: active_parameters, kv_cache_bytes_per_token, kv_cache_dtype, "
                "path, weights, weights_read"
            ),
        ),
        (
            {"probe": {"xyz": 1}},
            "probe.xyz: unknown key; known here: budget, enabled, interval, load, long_interval, models, timeout",
        ),
        (
            {"server": {"xyz": 1}},
            "server.xyz: unknown key; known here: api_servers, max_num_batched_tokens, max_num_seqs",
        ),
        (
            {"url": "https://h", "tls_config": {"xyz": 1}},
            "tls_config.xyz: unknown key; known here: ca_file, cert_file, insecure_skip_verify, key_file",
        ),
        ({"backend": "openai"}, "backend: expected 'vllm' or 'ollama', found 'openai'"),
        ({"backend": None}, "backend: expected 'vllm' or 'ollama', found None"),
        ({"name": 3}, "name: expected text, found 3"),
        ({"name": ""}, "name: expected a printable name that is not empty"),
        ({"name": "a\nb"}, "name: expected a printable name that is not empty"),
        ({"interval": 1}, f"interval: {DURATION}, found 1"),
        ({"interval": "99ms"}, "interval: expected at least 100ms"),
        ({"window": "1"}, f"window: {DURATION}, found '1'"),
        ({"timeout": "0s"}, "timeout: expected a duration above 0"),
        ({"body_size_limit": "16"}, f"body_size_limit: {SIZE}, found '16'"),
        ({"optional": "yes"}, "optional: expected true or false, found 'yes'"),
        ({"optional": 1}, "optional: expected true or false, found 1"),
        ({"device": "L40S"}, "device: expected a mapping of keys, found 'L40S'"),
        ({"device": {"name": 40}}, "device.name: expected text, found 40"),
        ({"device": {"count": 0}}, "device.count: expected 1 or more, found 0"),
        ({"device": {"count": "two"}}, "device.count: expected a whole number, found 'two'"),
        ({"device": {"count": 1.5}}, "device.count: expected a whole number, found 1.5"),
        ({"device": {"memory": "12"}}, f"device.memory: {SIZE}, found '12'"),
        ({"device": {"layout": "x"}}, "device.layout: expected 'tensor', 'pipeline' or 'replica', found 'x'"),
        (
            {"device": {"memory_bandwidth": "864GB"}},
            "device.memory_bandwidth: expected a bandwidth such as 864GB/s, found '864GB'",
        ),
        (
            {"device": {"flops": "362TFLOP"}},
            "device.flops: expected a compute rate such as 362TFLOPS, found '362TFLOP'",
        ),
        ({"model": {"weights": 16}}, f"model.weights: {SIZE}, found 16"),
        ({"model": {"path": 1}}, "model.path: expected text, found 1"),
        ({"probe": {"enabled": "on"}}, "probe.enabled: expected true or false, found 'on'"),
        ({"probe": {"interval": 5}}, f"probe.interval: {DURATION}, found 5"),
        ({"server": {"api_servers": 0}}, "server.api_servers: expected 1 or more, found 0"),
        ({"tls_config": {"ca_file": "/x"}}, "tls_config: expected an https url with it"),
        (
            {"url": "https://h", "tls_config": {"cert_file": "/x"}},
            "tls_config: cert_file and key_file belong together; give both or none",
        ),
        (
            {"url": "https://h", "tls_config": {"key_file": "/x"}},
            "tls_config: cert_file and key_file belong together; give both or none",
        ),
        (
            {"url": "https://h", "tls_config": {"insecure_skip_verify": 1}},
            "tls_config.insecure_skip_verify: expected true or false",
        ),
        ({"authorization": "sk-1"}, "authorization: expected a mapping of keys"),
        ({"authorization": {"type": "Bearer"}}, "authorization.credentials_file: missing; this key is required"),
        ({"authorization": {"credentials_file": 1}}, "authorization.credentials_file: expected text"),
        (
            {"authorization": {"type": "Digest", "credentials_file": "/x"}},
            "authorization.type: expected 'Bearer' or 'Basic'",
        ),
        (
            {"authorization": {"password": "sk-1", "credentials_file": "/x"}},
            "authorization.password: unknown key; known here: credentials_file, type",
        ),
    ]
    for keys, problem in rows:
        assert complaints(one_target(**keys)) == [f"targets[0].{problem}"], keys


ADDRESS = "expected an address such as http://127.0.0.1:8000"
NO_USER = "user and password are not taken from the url; use authorization with a credentials_file"
BASE = "expected the server's base address"


def test_each_kind_of_bad_url_has_its_message() -> None:
    for url, message in (
        ("", ADDRESS),
        ("127.0.0.1:8000", ADDRESS),
        ("localhost:8000", ADDRESS),
        ("//h", ADDRESS),
        ("ftp://h", ADDRESS),
        ("unix:/run/vllm.sock", ADDRESS),
        ("http://", ADDRESS),
        ("http://:8000", ADDRESS),
        ("http://[::1", ADDRESS),
        ("http://h h", ADDRESS),
        ("http://h:port", ADDRESS),
        ("http://h:65536", ADDRESS),
        ("http://h:-1", ADDRESS),
        ("http://user@h", NO_USER),
        ("http://user:hunter2@h", NO_USER),
        ("http://:hunter2@h", NO_USER),
        ("http://h?key=hunter2", f"{BASE}, without a query or fragment"),
        ("http://h#top", f"{BASE}, without a query or fragment"),
        ("http://h/metrics", f"{BASE}; /metrics is added by itself"),
        ("http://h/vllm/metrics/", f"{BASE}; /metrics is added by itself"),
    ):
        assert complaints(one_target(url=url)) == [f"targets[0].url: {message}"], url


def test_an_address_that_nobody_could_ask_is_refused() -> None:
    for url in ("http://h\u2603.de", "http://[::1]x", "http://256.1.1.1", "http://h/\x01", "http://h:0"):
        assert complaints(one_target(url=url)) == [f"targets[0].url: {ADDRESS}"], url


def test_a_url_is_kept_in_one_form_without_its_last_slash() -> None:
    for url, base in (
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://h/vllm/", "https://h/vllm"),
        ("HTTPS://h", "https://h"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://h/metrics-gateway", "http://h/metrics-gateway"),
    ):
        assert target_of(parse_config(one_target(url=url))).url == base, url


def test_a_file_without_targets_is_refused() -> None:
    for text, problem in (
        ("", "f.yml: expected a mapping of keys"),
        ("- chat\n", "f.yml: expected a mapping of keys"),
        ("targets: [\n", "f.yml:2:1: no valid YAML: expected the node content, but found '<stream end>'"),
        ("interval: 5s\n", "targets: missing; this key is required"),
        ("targets:\n", "targets: expected a list, found None"),
        ("targets: []\n", "targets: expected at least one entry"),
        ("targets: [[chat]]\n", "targets[0]: expected a mapping of keys, found a list"),
        ("targets: {chat: {}}\n", "targets: expected a list, found a mapping"),
    ):
        assert complaints(text) == [problem], text


def test_a_target_must_say_who_and_where_it_is() -> None:
    assert complaints("targets: [{}]") == [
        "targets[0].name: missing; this key is required",
        "targets[0].backend: missing; this key is required",
        "targets[0].url: missing; this key is required",
    ]


def test_a_key_given_twice_in_a_target_is_told_with_both_lines() -> None:
    text = "targets:\n- name: chat\n  backend: vllm\n  url: http://a\n  url: http://b\n"
    assert complaints(text) == ["targets[0].url: given twice, in line 4 and line 5; keep one"]


def test_a_name_is_taken_once() -> None:
    target = "{name: chat, backend: vllm, url: 'http://h'}"
    assert complaints(f"targets: [{target}, {target}, {target}]") == [
        "targets[1].name: 'chat' is taken by targets[0]",
        "targets[2].name: 'chat' is taken by targets[0]",
    ]


def test_a_window_of_one_interval_is_enough() -> None:
    assert target_of(parse_config(one_target(interval="5s", window="5s"))).window == 5.0


def test_a_window_that_is_too_short_is_told_in_figures_that_differ() -> None:
    (problem,) = complaints(one_target(interval="5400ms", window="5s"))
    figures = re.search("at least the interval of (.+), found (.+): ", problem)
    assert figures
    assert figures[1] != figures[2]


def test_an_impossible_amount_is_a_mistake_like_any_other() -> None:
    for key, value in (
        ("body_size_limit", "9" * 400 + "GB"),
        ("body_size_limit", "16kiB"),
        ("interval", "9000000000d"),
        ("window", "9" * 400 + "s"),
        ("timeout", "25h"),
    ):
        (problem,) = complaints(one_target(**{key: value}))
        assert problem.startswith(f"targets[0].{key}: expected "), (key, value)


def test_a_key_that_is_no_text_is_unknown() -> None:
    (problem,) = complaints("1: x\ntargets: [{name: chat, backend: vllm, url: 'http://h'}]\n")
    assert problem.startswith("1: unknown key")


def test_all_mistakes_are_told_at_once() -> None:
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
    assert sorted(complaints(text)) == [
        "intervall: unknown key; did you mean interval?",
        "targets[0].authorization.credentials_file: missing; this key is required",
        "targets[0].authorization.type: expected 'Bearer' or 'Basic'",
        "targets[0].backend: expected 'vllm' or 'ollama', found 'openai'",
        "targets[0].url: expected the server's base address; /metrics is added by itself",
        "targets[1].device.count: expected 1 or more, found 0",
        "targets[1].device.flops: expected a compute rate such as 362TFLOPS, found 1",
        "targets[1].name: 'chat' is taken by targets[0]",
        f"targets[1].url: {ADDRESS}",
        "window: expected a duration such as 5s, 500ms or 1m, found 61",
        "window: given twice, in line 2 and line 3; keep one",
    ]


def test_keys_that_contradict_each_other_are_told_together_with_other_mistakes() -> None:
    text = """\
intervall: 5s
targets:
- {name: a, backend: vllm, url: "http://a", window: 1s}
- {name: b, backend: vllm, url: "http://b", tls_config: {ca_file: /x}}
"""
    assert [problem.partition(":")[0] for problem in sorted(complaints(text))] == [
        "intervall",
        "targets[0].window",
        "targets[1].tls_config",
    ]


def test_no_message_repeats_a_secret() -> None:
    for text in (
        one_target(url=f"http://user:{SECRET}@h"),
        one_target(url=f"http://user:{SECRET}@h:99999"),
        one_target(url=f"http://user:{SECRET}@[::1"),
        one_target(url=f"http://user:{SECRET}@h /"),
        one_target(url=f"user:{SECRET}@h"),
        one_target(url=f"http://h?api_key={SECRET}"),
        one_target(url=[f"http://user:{SECRET}@h"]),
        one_target(authorization=SECRET),
        one_target(authorization=[SECRET]),
        one_target(authorization={"type": f"Bearer {SECRET}", "credentials_file": "/x"}),
        one_target(authorization={"credentials": SECRET}),
        one_target(authorization={"credentials_file": [SECRET]}),
        one_target(authorization={"credentials_file": {"value": SECRET}}),
        one_target(basic_auth={"username": "u", "password": SECRET}),
        one_target(headers={"Authorization": SECRET}),
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
        told = f"{refused.value} {refused.value!r} {refused.value.problems}"
        assert refused.value.problems, text
        assert SECRET not in told, text


def test_neither_notes_nor_repr_repeat_a_secret_put_where_its_file_belongs() -> None:
    config = parse_config(one_target(authorization={"type": "Bearer", "credentials_file": SECRET}))
    assert [str(note) for note in config.notes] == [
        "targets[0].authorization.credentials_file: cannot be read now: No such file or directory"
    ]
    assert SECRET not in f"{config!r} {config} {target_of(config)!r}"


def test_a_credentials_file_that_cannot_be_a_path_is_no_crash() -> None:
    with pytest.raises(ConfigError, match="credentials_file"):
        parse_config(one_target(authorization={"credentials_file": "a\x00b"}))


def test_the_content_of_a_secret_file_is_not_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(SECRET)
    config = parse_config(one_target(authorization={"credentials_file": str(path)}))
    assert config.notes == ()
    assert SECRET not in repr(config)


def test_a_file_says_the_same_as_its_text(tmp_path: Path) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text(EXAMPLE)
    assert load_config(path) == load_config_or_default(path) == parse_config(EXAMPLE)


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "none.yml")
    assert str(refused.value) == f"{tmp_path / 'none.yml'}: cannot be read: No such file or directory"
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "binary.yml")
    assert str(refused.value) == f"{tmp_path / 'binary.yml'}: is not UTF-8 text: invalid start byte at byte 0"


def test_null_says_nothing_so_the_key_of_the_file_counts() -> None:
    text = '{"interval": "1s", "window": "2s", "targets": [%s]}'
    entry = '{"name": "chat", "backend": "vllm", "url": "http://h", "interval": null}'
    assert target_of(parse_config(text % entry)).interval == 1.0
    short = entry.replace('"interval": null', '"interval": null, "window": "500ms"')
    assert complaints(text % short)[0].startswith("targets[0].window: expected at least the interval of 1s")


def test_whatever_yaml_makes_of_a_text_it_is_told_as_mistakes() -> None:
    for text in (
        "a: !!bool abc\n",
        "a: !!timestamp abc\n",
        "a: !!int x\n",
        "a: !!python/object:os.system x\n",
        "interval: 2026-13-45\n",
        "a: " + "[" * 5000,
        "a: &a [*a]\n",
    ):
        assert complaints(text), text


def test_a_file_that_never_ends_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(Path("/dev/zero"))
    assert str(refused.value.problems[0]) == "/dev/zero: is larger than 1 MB: is it the right file?"


def test_an_address_put_elsewhere_is_not_repeated() -> None:
    rows: list[Any] = ["http://me:hunter2@h", ["http://me:hunter2@h"], [{"x": "http://me:hunter2@h"}]]
    for value in rows:
        for key in ("timeout", "body_size_limit", "optional"):
            assert SECRET not in "".join(complaints(one_target(**{key: value}))), (value, key)


def test_the_case_of_a_scheme_does_not_hide_that_tls_config_needs_https() -> None:
    found = complaints(one_target(url="HTTP://h", tls_config={"insecure_skip_verify": True}))
    assert found == ["targets[0].tls_config: expected an https url with it"]


def an_ollama(**keys: Any) -> str:
    return one_target(backend="ollama", url="http://127.0.0.1:11434", **keys)


def probe_of(**keys: Any) -> ProbeSettings:
    return target_of(parse_config(an_ollama(probe=keys))).probe


def test_an_ollama_is_probed_every_five_minutes_if_nothing_else_is_said() -> None:
    usual = ProbeSettings(
        enabled=True, interval=300.0, long_interval=3600.0, timeout=60.0, budget=0.01, load=False, models={}
    )
    assert target_of(parse_config(an_ollama())).probe == usual
    assert target_of(parse_config(an_ollama(probe=None))).probe == usual
    assert probe_of() == usual


def test_how_an_ollama_is_probed_is_the_operators_to_say() -> None:
    assert probe_of(enabled=False).enabled is False
    assert probe_of(interval="1m", long_interval="2h", timeout="90s", budget=0.05) == new_probe_settings(
        interval=60.0, long_interval=7200.0, timeout=90.0, budget=0.05
    )


def test_single_models_may_be_probed_otherwise() -> None:
    options = {
        "num_ctx": 8192,
        "num_batch": 256,
        "num_gpu": -1,
        "main_gpu": 0,
        "num_thread": 8,
        "draft_num_predict": 0,
        "use_mmap": False,
    }
    models = [{"name": "a:8b", "options": options}, {"name": "b", "enabled": False}, {"name": "c", "load": True}]
    assert probe_of(models=models).models == {
        "a:8b": new_model_probe("a:8b", options=options),
        "b": new_model_probe("b", enabled=False),
        "c": new_model_probe("c", load=True),
    }


def test_what_is_said_of_loading_holds_for_the_models_that_are_named_and_say_nothing_else() -> None:
    models = [{"name": "a"}, {"name": "b", "load": False}]
    assert probe_of(load=True, models=models).models == {
        "a": new_model_probe("a", load=True),
        "b": new_model_probe("b", load=False),
    }
    assert probe_of(load=False, models=models).models == {
        "a": new_model_probe("a", load=False),
        "b": new_model_probe("b", load=False),
    }


def test_an_ollama_is_asked_less_often_than_the_file_says_unless_it_is_meant() -> None:
    text = '{"interval": "%s", "window": "10m", "targets": [%s]}'
    entry = '{"name": "o", "backend": "ollama", "url": "http://h"%s}'
    assert target_of(parse_config(text % ("1s", entry % ""))).interval == 5.0
    assert target_of(parse_config(text % ("30s", entry % ""))).interval == 30.0
    own = parse_config(text % ("1s", entry % ', "interval": "1s"'))
    assert target_of(own).interval == 1.0
    assert [str(note) for note in own.notes] == [
        "targets[0].interval: less than 5s: each look at an Ollama holds up its scheduler"
    ]


def test_devices_are_the_operators_to_say() -> None:
    device = {
        "name": "NVIDIA L40S",
        "count": 2,
        "memory": "48GB",
        "layout": "pipeline",
        "memory_bandwidth": "864GB/s",
        "flops": "362TFLOPS",
        "cpu_memory_bandwidth": "90GB/s",
    }
    page = "http://127.0.0.1:9400/metrics"
    target = target_of(parse_config(one_target(device=device, device_from=page)))
    assert target.device_from == page
    assert target.device == DeviceSettings(
        name="NVIDIA L40S",
        count=2,
        memory=48e9,
        layout=DeviceLayout.PIPELINE,
        memory_bandwidth=864e9,
        flops=362e12,
        cpu_memory_bandwidth=90e9,
    )
    assert target_of(parse_config(one_target())).device == DeviceSettings()


def test_what_a_model_costs_is_the_operators_to_say(tmp_path: Path) -> None:
    model = {
        "path": "model",
        "weights": "16GB",
        "weights_read": "15GB",
        "kv_cache_bytes_per_token": "131072B",
        "kv_cache_dtype": "fp8",
        "active_parameters": "7.5e9",
    }
    path = tmp_path / "phasewatch.yml"
    path.write_text(one_target(model=model))
    assert target_of(load_config(path)).model == ModelSettings(
        path=tmp_path / "model",
        weights=16e9,
        weights_read=15e9,
        kv_cache_bytes_per_token=131_072.0,
        kv_cache_dtype="fp8",
        active_parameters=7.5e9,
    )
    assert (
        target_of(parse_config(one_target(model={"active_parameters": 8_000_000_000}))).model.active_parameters == 8e9
    )


PAGE = "expected the address of a DCGM exporter's metrics, such as http://127.0.0.1:9400/metrics"


def test_each_mistake_of_an_ollama_target_has_its_message() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"probe": "off"}, "probe: expected a mapping of keys, found 'off'"),
        ({"probe": {"enabled": "no"}}, "probe.enabled: expected true or false, found 'no'"),
        ({"probe": {"load": 1}}, "probe.load: expected true or false, found 1"),
        ({"probe": {"interval": 300}}, f"probe.interval: {DURATION}, found 300"),
        ({"probe": {"interval": "999ms"}}, "probe.interval: expected at least 1s"),
        ({"probe": {"interval": "25h"}}, "probe.interval: expected at most 24h"),
        ({"probe": {"long_interval": "0s"}}, "probe.long_interval: expected at least 1s"),
        ({"probe": {"timeout": "0s"}}, "probe.timeout: expected a duration above 0"),
        ({"probe": {"timeout": 60}}, f"probe.timeout: {DURATION}, found 60"),
        ({"probe": {"budget": 0}}, "probe.budget: expected more than 0, found 0"),
        ({"probe": {"budget": 0.6}}, "probe.budget: expected 0.5 or less, found 0.6"),
        ({"probe": {"budget": "1%"}}, "probe.budget: expected a number, found '1%'"),
        ({"probe": {"models": {"a": {}}}}, "probe.models: expected a list, found a mapping"),
        ({"probe": {"models": ["a"]}}, "probe.models[0]: expected a mapping of keys, found 'a'"),
        ({"probe": {"models": [{}]}}, "probe.models[0].name: missing; this key is required"),
        ({"probe": {"models": [{"name": ""}]}}, "probe.models[0].name: expected a printable name that is not empty"),
        ({"probe": {"models": [{"name": "a", "laod": True}]}}, "probe.models[0].laod: unknown key; did you mean load?"),
        (
            {"probe": {"models": [{"name": "a", "enabled": "no"}]}},
            "probe.models[0].enabled: expected true or false, found 'no'",
        ),
        (
            {"probe": {"models": [{"name": "a", "options": {"num_ctx": 0}}]}},
            "probe.models[0].options.num_ctx: expected 1 or more, found 0",
        ),
        (
            {"probe": {"models": [{"name": "a", "options": {"num_ctx": "8k"}}]}},
            "probe.models[0].options.num_ctx: expected a whole number, found '8k'",
        ),
        (
            {"probe": {"models": [{"name": "a", "options": {"num_gpu": -2}}]}},
            "probe.models[0].options.num_gpu: expected -1 or more, found -2",
        ),
        (
            {"probe": {"models": [{"name": "a", "options": {"use_mmap": 1}}]}},
            "probe.models[0].options.use_mmap: expected true or false, found 1",
        ),
        (
            {"probe": {"models": [{"name": "a", "options": {"num_predict": 0}}]}},
            "probe.models[0].options.num_predict: unknown key; did you mean draft_num_predict?",
        ),
        (
            {"probe": {"models": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}},
            "probe.models[2].name: 'a' is taken by models[0]",
        ),
        ({"device": {"memory": 48}}, f"device.memory: {SIZE}, found 48"),
        (
            {"device": {"cpu_memory_bandwidth": "90"}},
            "device.cpu_memory_bandwidth: expected a bandwidth such as 864GB/s, found '90'",
        ),
        ({"model": {"kv_cache_dtype": 8}}, "model.kv_cache_dtype: expected text, found 8"),
        ({"device_from": "h:9400"}, f"device_from: {PAGE}"),
        ({"device_from": "ftp://h"}, f"device_from: {PAGE}"),
        ({"device_from": "http://h:0/metrics"}, f"device_from: {PAGE}"),
        ({"device_from": f"http://u:{SECRET}@h/metrics"}, "device_from: user and password are not taken from the url"),
    ]
    for keys, problem in rows:
        assert complaints(an_ollama(**keys)) == [f"targets[0].{problem}"], keys


def test_a_number_of_parameters_is_one() -> None:
    rows: list[tuple[Any, str]] = [
        ("8B", "'8B'"),
        (10**400, f"1{'0' * 400}"),
        (True, "True"),
        (0, "0"),
        ("nan", "'nan'"),
        ([8], "a list"),
    ]
    for value, found in rows:
        assert complaints(one_target(model={"active_parameters": value})) == [
            f"targets[0].model.active_parameters: expected a number of parameters such as 7.5e9, found {found}"
        ], value


def test_what_an_ollama_tells_of_each_model_cannot_be_said_for_all_of_them() -> None:
    for key in ("path", "weights", "weights_read", "kv_cache_bytes_per_token", "active_parameters"):
        value = {"path": "/x", "active_parameters": "8e9"}.get(key, "16GB")
        assert complaints(an_ollama(model={key: value})) == [
            f"targets[0].model.{key}: an ollama target tells this itself, for each of its models"
        ], key


def test_the_number_format_of_the_cache_can_be_said_of_an_ollama() -> None:
    config = parse_config(an_ollama(model={"kv_cache_dtype": "q8_0"}))
    assert target_of(config).model == ModelSettings(kv_cache_dtype="q8_0")
    assert config.notes == ()


def test_keys_that_an_ollama_has_no_use_for_are_noted() -> None:
    config = parse_config(an_ollama(server={"max_num_seqs": 4}, saturation={"memory": "20s"}, window="2m"))
    assert [str(note) for note in config.notes] == [
        "targets[0].server: accepted, but not used: an ollama target has no such settings",
        "targets[0].saturation: accepted, but not used: Ollama does not tell what waits",
        "targets[0].window: accepted, but not used: an ollama target is measured by probes",
    ]


def test_a_window_shorter_than_the_interval_is_nothing_to_an_ollama() -> None:
    assert target_of(parse_config(an_ollama(interval="5m"))).interval == 300.0


def test_loading_without_a_model_that_it_is_meant_for_is_noted() -> None:
    assert [str(note) for note in parse_config(an_ollama(probe={"load": True})).notes] == [
        "targets[0].probe.load: loads nothing by itself: name the models it is meant for in probe.models"
    ]
    assert parse_config(an_ollama(probe={"load": True, "models": [{"name": "a"}]})).notes == ()


BANDWIDTH = "expected 1GB/s to 100TB/s: is the unit right?"
COMPUTE = "expected 1GFLOPS to 100PFLOPS: is the unit right?"
WEIGHTS = "expected 1MB to 100TB: is the unit right?"


def test_an_impossible_device_is_a_mistake() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        *(({"memory_bandwidth": absurd}, BANDWIDTH) for absurd in ("1B/s", "999MB/s", "101TB/s", "1PB/s")),
        *(({"cpu_memory_bandwidth": absurd}, BANDWIDTH) for absurd in ("1B/s", "101TB/s")),
        *(({"flops": absurd}, COMPUTE) for absurd in ("1FLOPS", "999MFLOPS", "101PFLOPS")),
        ({"count": 1025}, "expected 1024 or less, found 1025"),
    ]
    for key, problem in rows:
        assert complaints(one_target(device=key)) == [f"targets[0].device.{next(iter(key))}: {problem}"], (key, problem)


def test_a_device_at_the_edge_of_what_is_possible_is_none() -> None:
    for bandwidth, flops in (("1GB/s", "1GFLOPS"), ("100TB/s", "100PFLOPS")):
        device = {"memory_bandwidth": bandwidth, "flops": flops, "count": 1024}
        assert target_of(parse_config(one_target(device=device))).device.count == 1024


def test_impossible_weights_are_a_mistake() -> None:
    for weights in ("1B", "999kB", "101TB", "999999TB"):
        for key in ("weights", "weights_read"):
            assert complaints(one_target(model={key: weights})) == [f"targets[0].model.{key}: {WEIGHTS}"], (
                weights,
                key,
            )


def test_no_more_is_read_than_there_is() -> None:
    assert complaints(one_target(model={"weights": "100MB", "weights_read": "200MB"})) == [
        "targets[0].model: weights_read is more than weights; expected the part of them that one stream reads"
    ]
    assert (
        target_of(parse_config(one_target(model={"weights": "1MB", "weights_read": "1MB"}))).model.weights_read == 1e6
    )


def test_a_number_format_that_nobody_knows_is_a_mistake_that_names_the_known_ones() -> None:
    for dtype in ("fp99", "", "float16 ", "fp8_ds_mla"):
        for text in (one_target(model={"kv_cache_dtype": dtype}), an_ollama(model={"kv_cache_dtype": dtype})):
            (problem,) = complaints(text)
            assert problem.startswith("targets[0].model.kv_cache_dtype: expected one of auto, bf16, bfloat16, "), dtype
            assert problem.endswith(f", q8_0, found {dtype!r}"), dtype
        assert (
            target_of(parse_config(one_target(model={"kv_cache_dtype": "FP8_E4M3"}))).model.kv_cache_dtype == "FP8_E4M3"
        ), dtype


def noted(**keys: Any) -> list[str]:
    return [str(note) for note in parse_config(one_target(**keys)).notes]


def test_a_name_that_means_no_device_is_noted() -> None:
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
    for device, told in rows:
        (note,) = noted(device=device)
        assert note.startswith(f"targets[0].device.name: {told}"), device


def test_a_name_that_is_known_or_not_needed_is_not_noted() -> None:
    for device in (
        {"name": "NVIDIA L40S"},
        {"name": "cpu"},
        {"name": "NVIDIA GeForce RTX 3080", "memory": "12GB"},
        {"name": "NVIDIA L99", "memory_bandwidth": "864GB/s"},
        {"memory": "12GB"},
    ):
        assert noted(device=device) == []


def test_a_folder_that_is_no_models_is_noted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = "targets[0].model.path"
    for place, told in (
        ("none", "cannot be read now: No such file or directory"),
        ("file", "expected a folder with the files of a model"),
        ("", "the folder has no config.json: is it that of a model?"),
    ):
        assert noted(model={"path": f"{tmp_path}/{place}"}) == [f"{path}: {told}"]
    file = tmp_path / "phasewatch.yml"
    file.write_text(one_target(model={"path": ""}))
    assert [str(note) for note in load_config(file).notes] == [
        f"{path}: the folder has no config.json: is it that of a model?"
    ]
    (tmp_path / "config.json").touch()
    assert load_config(file).notes == ()
