"""docs/ollama.md: what probes send, what they cost, and what releases of Ollama leave out."""

import json
import re
from random import Random
from typing import Any

from phasewatch.backends.ollama import snapshot
from phasewatch.backends.ollama.inventory import LoadedModel, OllamaVersion, parse_version
from phasewatch.backends.ollama.probes import request, response, result, scheduling
from phasewatch.backends.ollama.probes.response import ProbeError
from phasewatch.backends.ollama.scraper import PROBE_TICK
from phasewatch.snapshot.models import ModelDetails
from tests.support.markdown import code, every_code, fences, page, tables, words
from tests.support.nested import key_paths
from tests.support.paths import RECORDINGS
from tests.support.targets import new_probe_settings

PAGE = page("docs/ollama.md")
WORDS = words("docs/ollama.md")
RANDOM = Random(1)  # noqa: S311  # nothing here is secret


def loaded_model(num_ctx: int, name: str = "a:latest") -> LoadedModel:
    return LoadedModel(name, "a" * 64, None, None, num_ctx, None, ModelDetails())


def test_the_request_on_the_page_is_the_one_that_is_sent() -> None:
    (text,) = fences(PAGE, "json")
    documented = json.loads(text)
    num_ctx = documented["options"]["num_ctx"]
    prompt_words = request.choose_prompt_words(request.RequestKind.SHORT, num_ctx, None)
    assert prompt_words
    model = loaded_model(num_ctx, documented["model"])
    seeded = Random(7)  # noqa: S311  # writes the prompt on the page
    sent = request.build_probe_request(request.RequestKind.SHORT, model, prompt_words, {}, seeded).body
    assert sent == {**documented, "prompt": sent["prompt"]}
    assert str(sent["prompt"]).startswith(documented["prompt"].removesuffix("..."))


def test_every_field_of_the_request_is_explained_and_nothing_else_is() -> None:
    (text,) = fences(PAGE, "json")
    explained = [code(cells[0]) for _, cells in tables(PAGE, "field", "why it is there")]
    assert explained == [path for path in key_paths(json.loads(text)) if path != "options"]


def test_no_request_has_a_field_that_the_page_excludes() -> None:
    excluded = {name for _, cells in tables(PAGE, "field", "what it would do") for name in every_code(cells[0])}
    for kind in (request.RequestKind.SHORT, request.RequestKind.LONG):
        body = request.build_probe_request(kind, loaded_model(8192), 10, {}, RANDOM).body
        assert not excluded & {path.removeprefix("options.") for path in key_paths(body)}, kind
        assert f"num_predict: {request.OUTPUT_TOKENS}" not in excluded
    assert not excluded & {*request.build_load_request("a:latest", "a" * 64, {}).body}


def test_the_figures_of_probes_are_those_of_the_program() -> None:
    documented = {cells[0]: " ".join(cells[1:]) for _, cells in tables(PAGE, "what", "how much", "why")}
    settings = new_probe_settings()
    minutes, hours = settings.interval / 60, settings.long_interval / 3600
    firsts = [scheduling.draw_pace(settings, RANDOM).first_delay for _ in range(2000)]
    quiet = scheduling.compute_quiet_seconds(settings.interval)
    bounds = rf"{min(firsts):.0f} to {max(firsts):.0f} s after it was first seen"
    patterns = {
        "first probe of a model": bounds,
        "short probe": rf"every `interval`, {minutes:g} minutes, .*; {request.SHORT_TOKENS} tokens",
        "long probe": rf"every `long_interval`, {hours:g} hour,.*; {request.LONG_TOKENS} tokens",
        "longest long probe": rf"{scheduling.LONGEST_LONG_PROBE:g} s,",
        "after a user's request": rf"{quiet:g} s of quiet, .* half an interval",
        "again, after an answer that says nothing": rf"{scheduling.SOON_SECONDS:g} s",
        "time left to the model": rf"{scheduling.EXPIRY_MARGIN:g} s and twice its longest probe",
        "share of the time": rf"`budget`, {settings.budget * 100:g} %: .* {1 / settings.budget - 1:g} s",
        "at once": "1,",
        "patience": rf"`timeout`, {settings.timeout:g} s;",
    }
    assert documented.keys() == patterns.keys()
    for what, pattern in patterns.items():
        assert re.match(pattern, documented[what]), what
    assert scheduling.LEAST_INTERVALS == 1 / 2
    assert PROBE_TICK == 0.25
    assert "Four times a second PhaseWatch looks" in PAGE
    assert f"that had to queue (more than {result.QUEUED_SECONDS * 1000:g} ms)" in WORDS
    assert f"more than {result.LOAD_DETECTION_SECONDS * 1000:g} ms and ten times the usual" in WORDS
    assert result.LOAD_DETECTION_FACTOR == 10
    assert f"before {response.FEWEST_TOKENS} tokens" in WORDS
    assert f"and {request.OUTPUT_TOKENS} tokens; below 144 tokens" in WORDS
    least = [request.choose_prompt_words(request.RequestKind.SHORT, length, None) for length in (143, 144)]
    assert least == [None, 1]


def final_response(**changes: int) -> dict[str, Any]:
    """A response to 200 prompt tokens in 100 ms with 48 tokens in 470 ms, with some changes."""
    body = {
        "done": True,
        "total_duration": 600_000_000,
        "load_duration": 1_000_000,
        "prompt_eval_count": 200,
        "prompt_eval_duration": 100_000_000,
        "eval_count": 48,
        "eval_duration": 470_000_000,
    }
    return {**body, **changes}


def test_the_worked_example_is_the_recorded_response() -> None:
    recorded = json.loads((RECORDINGS / "ollama-0.33" / "unique_prefix.json").read_text(encoding="utf-8"))["body"]
    for key in (
        "total_duration",
        "load_duration",
        "prompt_eval_count",
        "prompt_eval_duration",
        "eval_count",
        "eval_duration",
    ):
        assert f"`{key}` {recorded[key]:,}" in WORDS, key
    timings = response.extract_timings(recorded, version=None, model_format="gguf")
    assert timings
    assert timings.prefill_tokens_per_second
    naive = recorded["eval_count"] / timings.decode_seconds
    assert f"That is {timings.decode_tokens_per_second:.1f} tokens per second of decode (not {naive:.1f})" in WORDS
    assert f"{timings.prefill_tokens_per_second:.0f} of prefill" in WORDS
    assert f"first token after {timings.first_token_seconds * 1000:.1f} ms" in WORDS


def releases(cell: str) -> tuple[OllamaVersion, OllamaVersion]:
    """First and last release of a cell such as `0.12.5 to 0.12.6` or `before 0.10.0`."""
    versions = [version for text in re.findall(r"\d+\.\d+\.\d+", cell) if (version := parse_version(text))]
    if len(versions) == 1:
        return (0, 0, 1), release_before(versions[0])
    first, last = versions
    return first, last


def release_before(version: OllamaVersion) -> OllamaVersion:
    major, minor, patch = version
    return (major, minor, patch - 1) if patch else (major, minor - 1, 99)


def release_after(version: OllamaVersion) -> OllamaVersion:
    major, minor, patch = version
    return (major, minor + 1, 0) if patch == 99 else (major, minor, patch + 1)


GAPS = [(cells[0], *releases(cells[0])) for _, cells in tables(PAGE, "releases", "absent", "why")]
"""Rows of the table of what is absent on some releases: its first cell, the first and the last of them."""


def is_measured(row: str, version: OllamaVersion) -> bool:
    """Whether there is a value, on a release, of what the page says to be absent on those of a row."""
    if "partly on the device" in row:
        loaded = LoadedModel("a:latest", "a" * 64, 2e9, 1e9, 4096, None, ModelDetails())
        return snapshot.compute_gpu_ratio(loaded, version) is not None
    if "MLX" in row:
        timings = response.extract_timings(final_response(), version=version, model_format="safetensors")
    elif row.startswith("0.12.5"):
        batches = final_response(prompt_eval_count=513)
        timings = response.extract_timings(batches, version=version, model_format="gguf")
    else:
        rounded = final_response(eval_duration=49_000_000)
        try:
            timings = response.extract_timings(rounded, version=version, model_format="gguf")
        except ProbeError:
            return False
    assert timings
    return timings.prefill_tokens_per_second is not None


def test_what_the_page_says_to_be_absent_is_absent_on_those_releases_alone() -> None:
    rows = [gap for gap in GAPS if "MLX" in gap[0] or not gap[0].startswith("before")]
    assert rows
    for row, first, last in rows:
        assert not is_measured(row, first), row
        assert not is_measured(row, last), row
        assert is_measured(row, release_after(last)), row
        assert row.startswith("before") or is_measured(row, release_before(first)), row


def test_every_gap_that_the_program_knows_is_on_the_page() -> None:
    spans = [(first, last) for _, first, last in GAPS]
    for span in (response._MILLISECONDS_ONLY, response._LAST_BATCH_ONLY, snapshot._COUNTED_TWICE):  # noqa: SLF001  # no one else needs them
        assert span in spans
    assert response._MLX_PREFILL_SINCE in [release_after(last) for _, last in spans]  # noqa: SLF001  # same
    decode, prefill = response._DECODE_BAND, response._PREFILL_BAND  # noqa: SLF001  # same
    assert f"decode outside of {decode[0]:g} to {decode[1]:,.0f} tokens per second" in WORDS
    assert f"prefill outside of {prefill[0]:g} to {prefill[1]:,.0f}" in WORDS


def test_the_estimated_costs_of_probes_follow_from_their_figures() -> None:
    lengths = (request.SHORT_TOKENS, request.LONG_TOKENS)
    short, long = (131_072 * (length + request.OUTPUT_TOKENS) / 1e6 for length in lengths)
    assert f"{short:.0f} MB of a short probe and {long:.0f} MB of a long one" in WORDS
    settings, steps = new_probe_settings(), request.OUTPUT_TOKENS - 1
    prefill, decode = 60 * request.SHORT_TOKENS / request.LONG_TOKENS, steps * 4.6 / 90
    assert f"so {request.SHORT_TOKENS} take {prefill:g} s" in WORDS
    assert f"{steps} steps that each read 4.6 GB take {decode:.1f} s" in WORDS
    pause = (prefill + decode) / settings.budget / 60
    assert f"about {prefill + decode:.1f} s | {settings.budget:.0%}, the budget".replace("%", " %") in WORDS
    assert f"{prefill + decode:.1f} s at a budget of 1 % is one probe in {pause:.0f} minutes" in WORDS
    rest = settings.timeout * (1 / settings.budget - 1) / 60
    assert f"after {settings.timeout:g} s is followed by {rest:.0f} minutes without one" in WORDS
