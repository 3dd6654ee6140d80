"""Keys of the configuration: unknown, missing and invalid ones, each with its message."""

from typing import Any

from tests.support.configurations import BACKENDS_KNOWN, SECRET, find_mistakes, parse_target, write_ollama, write_target

DURATION = "expected a duration such as 5s, 500ms or 1m"
SIZE = "expected a size such as 16.06GB or 12GiB"
PAGE = "expected the address of a DCGM exporter's metrics, such as http://127.0.0.1:9400/metrics"


def test_each_mistake_in_a_key_of_the_file_has_its_message() -> None:
    for text, problem in (
        ("intervall: 5s\n", "intervall: unknown key; did you mean interval?"),
        (
            "xyz: 5s\n",
            "xyz: unknown key; known here: body_size_limit, interval, objectives, saturation, targets, timeout, window",
        ),
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
    ):
        assert find_mistakes(f"{text}targets: [{{name: chat, backend: vllm, url: 'http://h'}}]\n") == [problem], text


def test_each_mistake_in_a_key_of_a_target_has_its_message() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"ulr": "x"}, "ulr: unknown key; did you mean url?"),
        (
            {"xyz": 1},
            (
                "xyz: unknown key; known here: authorization, backend, body_size_limit, device, device_from, interval, "
                "metrics_path, model, name, objectives, ollama, optional, probe, saturation, server, timeout, "
                "tls_config, url, window"
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
            (
                "server.xyz: unknown key; "
                "known here: api_servers, kv_unified, max_num_batched_tokens, max_num_seqs, sleep_idle"
            ),
        ),
        (
            {"url": "https://h", "tls_config": {"xyz": 1}},
            "tls_config.xyz: unknown key; known here: ca_file, cert_file, insecure_skip_verify, key_file",
        ),
        ({"backend": "openai"}, f"backend: expected {BACKENDS_KNOWN}, found 'openai'"),
        ({"backend": None}, f"backend: expected {BACKENDS_KNOWN}, found None"),
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
        assert find_mistakes(write_target(**keys)) == [f"targets[0].{problem}"], keys


def test_each_mistake_in_a_key_of_an_ollama_target_has_its_message() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"probe": "off"}, "probe: expected a mapping of keys, found 'off'"),
        ({"probe": {"enabled": "no"}}, "probe.enabled: expected true or false, found 'no'"),
        ({"ollama": {"xyz": 1}}, "ollama.xyz: unknown key; known here: procfs, runners"),
        ({"ollama": {"runners": "on"}}, "ollama.runners: expected 'auto' or 'off', found 'on'"),
        ({"ollama": {"runners": True}}, "ollama.runners: expected 'auto' or 'off', found True"),
        ({"ollama": {"procfs": ["/proc"]}}, "ollama.procfs: expected text, found a list"),
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
        assert find_mistakes(write_ollama(**keys)) == [f"targets[0].{problem}"], keys


def test_each_mistake_in_a_threshold_has_its_message() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"prefill_share": 0}, "saturation.prefill_share: expected more than 0, found 0"),
        ({"prefill_share": 1.5}, "saturation.prefill_share: expected 1 or less, found 1.5"),
        ({"prefill_share": "x"}, "saturation.prefill_share: expected a number, found 'x'"),
        ({"memory": 15}, "saturation.memory: expected a duration such as 5s, 500ms or 1m, found 15"),
        ({"hysterese": "5s"}, "saturation.hysterese: unknown key; did you mean hysteresis?"),
    ]
    for value, message in rows:
        assert find_mistakes(write_target(saturation=value)) == [f"targets[0].{message}"], value


def test_each_mistake_in_an_objective_has_its_message() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"inter_token_latency": 0.3}, "inter_token_latency: expected a duration such as 5s, 500ms or 1m, found 0.3"),
        ({"time_to_first_token": "0s"}, "time_to_first_token: expected a duration above 0"),
        ({"decode_tokens_per_second": 0}, "decode_tokens_per_second: expected more than 0, found 0"),
        ({"decode_tokens_per_second": "20"}, "decode_tokens_per_second: expected a number, found '20'"),
        (
            {"ttft": "1s"},
            "ttft: unknown key; known here: decode_tokens_per_second, inter_token_latency, time_to_first_token",
        ),
    ]
    for value, message in rows:
        assert find_mistakes(write_target(objectives=value)) == [f"targets[0].objectives.{message}"], value


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
        assert find_mistakes(text) == [problem], text


def test_a_target_needs_a_name_a_backend_and_a_url() -> None:
    assert find_mistakes("targets: [{}]") == [
        "targets[0].name: missing; this key is required",
        "targets[0].backend: missing; this key is required",
        "targets[0].url: missing; this key is required",
    ]


def test_a_key_that_is_not_text_is_unknown() -> None:
    (problem,) = find_mistakes("1: x\ntargets: [{name: chat, backend: vllm, url: 'http://h'}]\n")
    assert problem.startswith("1: unknown key")


def test_weights_read_is_at_most_weights() -> None:
    assert find_mistakes(write_target(model={"weights": "100MB", "weights_read": "200MB"})) == [
        "targets[0].model: weights_read is more than weights; expected the part of them that one stream reads"
    ]
    assert parse_target(write_target(model={"weights": "1MB", "weights_read": "1MB"})).model.weights_read == 1e6
