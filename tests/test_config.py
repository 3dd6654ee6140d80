import json
import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from phasewatch.config import (
    DEFAULT_CONFIG,
    Authorization,
    Config,
    Limits,
    Target,
    Thresholds,
    TlsConfig,
    load,
    load_or_default,
    parse,
)
from phasewatch.errors import ConfigError

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
        parse(text, "f.yml")
    return [str(problem) for problem in refused.value.problems]


def test_the_example_of_the_manual_is_valid() -> None:
    assert target_of(parse(EXAMPLE)) == Target(
        name="chat",
        backend="vllm",
        url="http://127.0.0.1:8000",
        interval=1.0,
        window=60.0,
        timeout=4.0,
        authorization=Authorization("Bearer", Path("/run/secrets/key")),
        api_servers=1,
        limits=Limits(max_num_seqs=256, max_num_batched_tokens=8192),
    )


def test_thresholds_are_set_for_all_targets_and_for_one() -> None:
    text = one_target(saturation={"prefill_share": 0.4})
    found = target_of(
        parse(text.replace('{"targets"', '{"saturation": {"memory": "20s", "prefill_share": 0.5}, "targets"'))
    )
    assert found.thresholds == Thresholds(memory=20.0, prefill_share=0.4)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"prefill_share": 0}, "saturation.prefill_share: expected more than 0, found 0"),
        ({"prefill_share": 1.5}, "saturation.prefill_share: expected 1 or less, found 1.5"),
        ({"prefill_share": "x"}, "saturation.prefill_share: expected a number, found 'x'"),
        ({"memory": 15}, "saturation.memory: expected a duration such as 5s, 500ms or 1m, found 15"),
        ({"hysterese": "5s"}, "saturation.hysterese: unknown key; did you mean hysteresis?"),
    ],
)
def test_a_threshold_that_cannot_be_is_a_mistake(value: dict[str, Any], message: str) -> None:
    assert complaints(one_target(saturation=value)) == [f"targets[0].{message}"]


def test_a_valid_key_without_use_is_noted_not_refused() -> None:
    assert [str(note) for note in parse(EXAMPLE).notes] == [
        "targets[0].device: accepted, but not used by this version",
        "targets[0].model: accepted, but not used by this version",
        "targets[0].probe: accepted, but not used: a vllm target is never sent a request",
        "targets[0].authorization.credentials_file: cannot be read now: No such file or directory",
    ]


def test_without_a_file_there_is_one_optional_vllm() -> None:
    assert load_or_default(None) is DEFAULT_CONFIG
    assert Config(targets=(Target("vllm", "vllm", "http://127.0.0.1:8000", optional=True),)) == DEFAULT_CONFIG


def test_a_key_that_is_not_given_has_its_default() -> None:
    target = target_of(parse(one_target()))
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
        tls=None,
        api_servers=None,
    )


@pytest.mark.parametrize(
    ("key", "everywhere", "here", "values"),
    [
        ("interval", "2s", "500ms", (2.0, 0.5)),
        ("window", "2m", "30s", (120.0, 30.0)),
        ("timeout", "3s", "1s", (3.0, 1.0)),
        ("body_size_limit", "1MB", "1MiB", (1_000_000, 2**20)),
    ],
)
def test_a_global_key_is_a_default_that_each_target_can_override(
    key: str, everywhere: str, here: str, values: tuple[float, float]
) -> None:
    config = parse(f"""
{key}: {everywhere}
targets:
- {{name: a, backend: vllm, url: "http://a"}}
- {{name: b, backend: vllm, url: "http://b", {key}: {here}}}
""")
    assert tuple(getattr(target, key) for target in config.targets) == values


def test_trust_and_client_certificate_come_from_files(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch()
    files = {f"{name}_file": str(tmp_path / name) for name in ("ca", "cert", "key")}
    config = parse(one_target(url="https://h", tls_config={**files, "insecure_skip_verify": True}))
    assert target_of(config).tls == TlsConfig(
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
    config = load(path)
    assert target_of(config).authorization == Authorization("Bearer", tmp_path / "key")
    assert target_of(config).tls == TlsConfig(tmp_path / "ca.pem", None, None, insecure_skip_verify=False)
    assert config.notes == ()


def test_a_configuration_cannot_be_changed() -> None:
    config = parse(EXAMPLE)
    with pytest.raises(FrozenInstanceError):
        config.targets = ()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        target_of(config).url = "http://elsewhere"  # type: ignore[misc]
    assert hash(target_of(config)) == hash(replace(target_of(config)))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
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
    ],
)
def test_each_mistake_at_the_top_has_its_message(text: str, problem: str) -> None:
    assert complaints(f"{text}targets: [{{name: chat, backend: vllm, url: 'http://h'}}]\n") == [problem]


DURATION = "expected a duration such as 5s, 500ms or 1m"
SIZE = "expected a size such as 16.06GB or 12GiB"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"ulr": "x"}, "ulr: unknown key; did you mean url?"),
        (
            {"xyz": 1},
            (
                "xyz: unknown key; known here: authorization, backend, body_size_limit, device, interval, model, name, "
                "optional, probe, saturation, server, timeout, tls_config, url, window"
            ),
        ),
        ({"device": {"cuont": 1}}, "device.cuont: unknown key; did you mean count?"),
        ({"model": {"xyz": 1}}, "model.xyz: unknown key; known here: path, weights"),
        ({"probe": {"xyz": 1}}, "probe.xyz: unknown key; known here: enabled, interval"),
        (
            {"server": {"xyz": 1}},
            "server.xyz: unknown key; known here: api_servers, max_num_batched_tokens, max_num_seqs",
        ),
        (
            {"url": "https://h", "tls_config": {"xyz": 1}},
            "tls_config.xyz: unknown key; known here: ca_file, cert_file, insecure_skip_verify, key_file",
        ),
        ({"backend": "ollama"}, "backend: expected 'vllm', found 'ollama'"),
        ({"backend": None}, "backend: expected 'vllm', found None"),
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
    ],
)
def test_each_mistake_of_a_target_has_its_message(keys: dict[str, Any], problem: str) -> None:
    assert complaints(one_target(**keys)) == [f"targets[0].{problem}"]


ADDRESS = "expected an address such as http://127.0.0.1:8000"
NO_USER = "user and password are not taken from the url; use authorization with a credentials_file"
BASE = "expected the server's base address"


@pytest.mark.parametrize(
    ("url", "message"),
    [
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
    ],
)
def test_each_kind_of_bad_url_has_its_message(url: str, message: str) -> None:
    assert complaints(one_target(url=url)) == [f"targets[0].url: {message}"]


@pytest.mark.parametrize(
    "url", ["http://h\u2603.de", "http://[::1]x", "http://256.1.1.1", "http://h/\x01", "http://h:0"]
)
def test_an_address_that_nobody_could_ask_is_refused(url: str) -> None:
    assert complaints(one_target(url=url)) == [f"targets[0].url: {ADDRESS}"]


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://h/vllm/", "https://h/vllm"),
        ("HTTPS://h", "https://h"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://h/metrics-gateway", "http://h/metrics-gateway"),
    ],
)
def test_a_url_is_kept_in_one_form_without_its_last_slash(url: str, base: str) -> None:
    assert target_of(parse(one_target(url=url))).url == base


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "f.yml: expected a mapping of keys"),
        ("- chat\n", "f.yml: expected a mapping of keys"),
        ("targets: [\n", "f.yml:2:1: no valid YAML: expected the node content, but found '<stream end>'"),
        ("interval: 5s\n", "targets: missing; this key is required"),
        ("targets:\n", "targets: expected a list, found None"),
        ("targets: []\n", "targets: expected at least one entry"),
        ("targets: [[chat]]\n", "targets[0]: expected a mapping of keys, found a list"),
        ("targets: {chat: {}}\n", "targets: expected a list, found a mapping"),
    ],
)
def test_a_file_without_targets_is_refused(text: str, problem: str) -> None:
    assert complaints(text) == [problem]


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
    assert target_of(parse(one_target(interval="5s", window="5s"))).window == 5.0


def test_a_window_that_is_too_short_is_told_in_figures_that_differ() -> None:
    (problem,) = complaints(one_target(interval="5400ms", window="5s"))
    figures = re.search("at least the interval of (.+), found (.+): ", problem)
    assert figures
    assert figures[1] != figures[2]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("body_size_limit", "9" * 400 + "GB"),
        ("body_size_limit", "16kiB"),
        ("interval", "9000000000d"),
        ("window", "9" * 400 + "s"),
        ("timeout", "25h"),
    ],
)
def test_an_impossible_amount_is_a_mistake_like_any_other(key: str, value: str) -> None:
    (problem,) = complaints(one_target(**{key: value}))
    assert problem.startswith(f"targets[0].{key}: expected ")


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
  backend: ollama
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
        "targets[0].backend: expected 'vllm', found 'ollama'",
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


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_no_message_repeats_a_secret(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, "f.yml")
    told = f"{refused.value} {refused.value!r} {refused.value.problems}"
    assert refused.value.problems
    assert SECRET not in told


def test_neither_notes_nor_repr_repeat_a_secret_put_where_its_file_belongs() -> None:
    config = parse(one_target(authorization={"type": "Bearer", "credentials_file": SECRET}))
    assert [str(note) for note in config.notes] == [
        "targets[0].authorization.credentials_file: cannot be read now: No such file or directory"
    ]
    assert SECRET not in f"{config!r} {config} {target_of(config)!r}"


def test_a_credentials_file_that_cannot_be_a_path_is_no_crash() -> None:
    with pytest.raises(ConfigError, match="credentials_file"):
        parse(one_target(authorization={"credentials_file": "a\x00b"}))


def test_the_content_of_a_secret_file_is_not_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(SECRET)
    config = parse(one_target(authorization={"credentials_file": str(path)}))
    assert config.notes == ()
    assert SECRET not in repr(config)


def test_a_file_says_the_same_as_its_text(tmp_path: Path) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text(EXAMPLE)
    assert load(path) == load_or_default(path) == parse(EXAMPLE)


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "none.yml")
    assert str(refused.value) == f"{tmp_path / 'none.yml'}: cannot be read: No such file or directory"
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "binary.yml")
    assert str(refused.value) == f"{tmp_path / 'binary.yml'}: is not UTF-8 text: invalid start byte at byte 0"


def test_null_says_nothing_so_the_key_of_the_file_counts() -> None:
    text = '{"interval": "1s", "window": "2s", "targets": [%s]}'
    entry = '{"name": "chat", "backend": "vllm", "url": "http://h", "interval": null}'
    assert target_of(parse(text % entry)).interval == 1.0
    short = entry.replace('"interval": null', '"interval": null, "window": "500ms"')
    assert complaints(text % short)[0].startswith("targets[0].window: expected at least the interval of 1s")


@pytest.mark.parametrize(
    "text",
    [
        "a: !!bool abc\n",
        "a: !!timestamp abc\n",
        "a: !!int x\n",
        "a: !!python/object:os.system x\n",
        "interval: 2026-13-45\n",
        "a: " + "[" * 5000,
        "a: &a [*a]\n",
    ],
)
def test_whatever_yaml_makes_of_a_text_it_is_told_as_mistakes(text: str) -> None:
    assert complaints(text)


def test_a_file_that_never_ends_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        load(Path("/dev/zero"))
    assert str(refused.value.problems[0]) == "/dev/zero: is larger than 1 MB: is it the right file?"


@pytest.mark.parametrize("value", ["http://me:hunter2@h", ["http://me:hunter2@h"], [{"x": "http://me:hunter2@h"}]])
@pytest.mark.parametrize("key", ["timeout", "body_size_limit", "optional"])
def test_an_address_put_elsewhere_is_not_repeated(key: str, value: Any) -> None:
    assert SECRET not in "".join(complaints(one_target(**{key: value})))


def test_the_case_of_a_scheme_does_not_hide_that_tls_config_needs_https() -> None:
    found = complaints(one_target(url="HTTP://h", tls_config={"insecure_skip_verify": True}))
    assert found == ["targets[0].tls_config: expected an https url with it"]
