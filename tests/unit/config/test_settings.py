"""What each key becomes in the settings: defaults, inheritance from the file, and units."""

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from phasewatch.config.settings import (
    Authorization,
    DeviceSettings,
    ObjectiveSettings,
    OllamaSettings,
    ProbeSettings,
    SaturationSettings,
    ServerSettings,
    Target,
    TlsConfig,
)
from phasewatch.hardware.facts import DeviceLayout
from phasewatch.models.settings import ModelSettings
from tests.support.configurations import EXAMPLE, find_mistakes, get_target, parse_target, write_ollama, write_target
from tests.support.targets import (
    load_config,
    new_model_probe,
    new_probe_settings,
    new_saturation_settings,
    new_target,
    parse_config,
)


def parse_probe(**keys: Any) -> ProbeSettings:
    return parse_target(write_ollama(probe=keys)).probe


def test_the_example_of_the_manual_is_resolved() -> None:
    assert parse_target(EXAMPLE) == new_target(
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


def test_a_key_that_is_not_given_has_its_default() -> None:
    target = parse_target(write_target())
    assert target == Target(
        name="chat",
        backend="vllm",
        url="http://127.0.0.1:8000",
        metrics_path="/metrics",
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
        ollama=OllamaSettings(runners="auto", procfs=Path("/proc")),
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
        objectives=ObjectiveSettings(inter_token_latency=0.3, time_to_first_token=2.5, decode_tokens_per_second=None),
    )


def test_a_key_of_the_file_is_a_default_that_each_target_can_override() -> None:
    rows: list[tuple[str, str, str, tuple[float, float]]] = [
        ("interval", "2s", "500ms", (2.0, 0.5)),
        ("window", "2m", "30s", (120.0, 30.0)),
        ("timeout", "3s", "1s", (3.0, 1.0)),
        ("body_size_limit", "1MB", "1MiB", (1_000_000, 2**20)),
    ]
    for key, everywhere, here, values in rows:
        inheriting = "{name: a, backend: vllm, url: 'http://a'}"
        overriding = f"{{name: b, backend: vllm, url: 'http://b', {key}: {here}}}"
        config = parse_config(f"{key}: {everywhere}\ntargets: [{inheriting}, {overriding}]\n")
        assert tuple(getattr(target, key) for target in config.targets) == values, key


def test_a_target_can_override_single_thresholds_of_the_file() -> None:
    text = write_target(saturation={"prefill_share": 0.4})
    target = parse_target(
        text.replace('{"targets"', '{"saturation": {"memory": "20s", "prefill_share": 0.5}, "targets"')
    )
    assert target.saturation == new_saturation_settings(memory=20.0, prefill_share=0.4)


def test_a_target_can_override_single_objectives_of_the_file() -> None:
    text = write_target(objectives={"inter_token_latency": "50ms"})
    everywhere = '{"objectives": {"inter_token_latency": "1s", "decode_tokens_per_second": 20}, "targets"'
    target = parse_target(text.replace('{"targets"', everywhere))
    assert target.objectives == ObjectiveSettings(
        inter_token_latency=0.05, time_to_first_token=2.5, decode_tokens_per_second=20.0
    )


def test_a_key_of_null_has_the_value_of_the_file() -> None:
    text = '{"interval": "1s", "window": "2s", "targets": [%s]}'
    entry = '{"name": "chat", "backend": "vllm", "url": "http://h", "interval": null}'
    assert parse_target(text % entry).interval == 1.0
    short = entry.replace('"interval": null', '"interval": null, "window": "500ms"')
    assert find_mistakes(text % short)[0].startswith("targets[0].window: expected at least the interval of 1s")


def test_trust_and_client_certificate_are_read_from_files(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch()
    files = {f"{name}_file": str(tmp_path / name) for name in ("ca", "cert", "key")}
    config = parse_config(write_target(url="https://h", tls_config={**files, "insecure_skip_verify": True}))
    assert get_target(config).tls_config == TlsConfig(
        tmp_path / "ca", tmp_path / "cert", tmp_path / "key", insecure_skip_verify=True
    )
    assert config.notes == ()


def test_a_configuration_is_immutable() -> None:
    config = parse_config(EXAMPLE)
    with pytest.raises(FrozenInstanceError):
        config.targets = ()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        get_target(config).url = "http://elsewhere"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        get_target(config).probe.enabled = False  # type: ignore[misc]
    assert parse_config(EXAMPLE) == config


def test_every_key_of_device_is_resolved() -> None:
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
    target = parse_target(write_target(device=device, device_from=page))
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
    assert parse_target(write_target()).device == DeviceSettings()


def test_every_key_of_model_is_resolved(tmp_path: Path) -> None:
    model = {
        "path": "model",
        "weights": "16GB",
        "weights_read": "15GB",
        "kv_cache_bytes_per_token": "131072B",
        "kv_cache_dtype": "fp8",
        "active_parameters": "7.5e9",
    }
    path = tmp_path / "phasewatch.yml"
    path.write_text(write_target(model=model))
    assert get_target(load_config(path)).model == ModelSettings(
        path=tmp_path / "model",
        weights=16e9,
        weights_read=15e9,
        kv_cache_bytes_per_token=131_072.0,
        kv_cache_dtype="fp8",
        active_parameters=7.5e9,
    )
    assert parse_target(write_target(model={"active_parameters": 8_000_000_000})).model.active_parameters == 8e9


def test_the_cache_format_of_an_ollama_can_be_configured() -> None:
    config = parse_config(write_ollama(model={"kv_cache_dtype": "q8_0"}))
    assert get_target(config).model == ModelSettings(kv_cache_dtype="q8_0")
    assert config.notes == ()


def test_an_ollama_is_probed_every_five_minutes_by_default() -> None:
    usual = ProbeSettings(
        enabled=True, interval=300.0, long_interval=3600.0, timeout=60.0, budget=0.01, load=False, models={}
    )
    assert parse_target(write_ollama()).probe == usual
    assert parse_target(write_ollama(probe=None)).probe == usual
    assert parse_probe() == usual


def test_the_keys_of_probe_are_resolved() -> None:
    assert parse_probe(enabled=False).enabled is False
    assert parse_probe(interval="1m", long_interval="2h", timeout="90s", budget=0.05) == new_probe_settings(
        interval=60.0, long_interval=7200.0, timeout=90.0, budget=0.05
    )


def test_single_models_may_have_their_own_probe_settings() -> None:
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
    assert parse_probe(models=models).models == {
        "a:8b": new_model_probe("a:8b", options=options),
        "b": new_model_probe("b", enabled=False),
        "c": new_model_probe("c", load=True),
    }


def test_the_children_of_an_ollama_are_looked_for_by_default() -> None:
    usual = OllamaSettings(runners="auto", procfs=Path("/proc"))
    given: list[dict[str, Any]] = [{}, {"ollama": None}, {"ollama": {}}, {"ollama": {"runners": None, "procfs": None}}]
    for keys in given:
        assert parse_target(write_ollama(**keys)).ollama == usual, keys
    mounted = parse_target(write_ollama(ollama={"runners": "auto", "procfs": "/host/proc"})).ollama
    assert mounted == OllamaSettings(runners="auto", procfs=Path("/host/proc"))


def test_off_is_off_with_and_without_quotes() -> None:
    """YAML reads the bare word as false."""
    for word in ("off", "'off'", "false", "no"):
        text = f"targets: [{{name: o, backend: ollama, url: 'http://h', ollama: {{runners: {word}}}}}]"
        assert parse_target(text).ollama.runners == "off", word


def test_load_is_the_default_of_the_entries_of_models() -> None:
    models = [{"name": "a"}, {"name": "b", "load": False}]
    assert parse_probe(load=True, models=models).models == {
        "a": new_model_probe("a", load=True),
        "b": new_model_probe("b", load=False),
    }
    assert parse_probe(load=False, models=models).models == {
        "a": new_model_probe("a", load=False),
        "b": new_model_probe("b", load=False),
    }


def test_a_load_that_changes_no_model_makes_no_other_target() -> None:
    own, inherited = {"name": "a", "load": False}, {"name": "a"}
    assert parse_probe(load=True) == parse_probe()
    assert parse_probe(load=True, models=[own]) == parse_probe(models=[inherited])
    assert parse_probe(load=True, models=[inherited]) != parse_probe(models=[inherited])


def test_an_ollama_inherits_no_interval_below_its_minimum() -> None:
    text = '{"interval": "%s", "window": "10m", "targets": [%s]}'
    entry = '{"name": "o", "backend": "ollama", "url": "http://h"%s}'
    assert parse_target(text % ("1s", entry % "")).interval == 5.0
    assert parse_target(text % ("30s", entry % "")).interval == 30.0
    own = parse_config(text % ("1s", entry % ', "interval": "1s"'))
    assert get_target(own).interval == 1.0
    assert [str(note) for note in own.notes] == [
        "targets[0].interval: less than 5s: each look at an Ollama holds up its scheduler"
    ]
