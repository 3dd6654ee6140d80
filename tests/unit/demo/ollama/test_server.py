"""The simulated Ollama behaves as the recorded one: same fields, same counts, same refusals, same rules."""

import asyncio
import functools
import json
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import pytest

from phasewatch.demo.ollama.api import Model
from phasewatch.demo.ollama.go_time import SECOND
from tests.support.paths import RECORDINGS
from tests.support.processes import PATIENCE
from tests.support.simulated_ollama import URL, Desk, FakeOllama, OllamaTransport, User, Visit
from tests.support.timeline import EPOCH, START, Timeline

A = Model("tiny-a:latest", "a" * 64)
B = Model("tiny-b:latest", "b" * 64)
EMBEDDING = Model("tiny-e:latest", "e" * 64, capabilities=("embedding",))
REMOTE = Model("big:cloud", "c" * 64, remote_model="big", remote_host="https://elsewhere.invalid")


@functools.cache
def recorded(name: str) -> tuple[int, Any]:
    """Status and body of a recorded answer."""
    found = json.loads((RECORDINGS / "ollama-0.33" / f"{name}.json").read_text())
    return found["status"], found["body"]


def words(count: int, mark: str = "word") -> str:
    return " ".join(f"{mark}{index}" for index in range(count))


def asking(model: str = "tiny-a", prompt: str | None = None, num_predict: int = 32, **fields: Any) -> dict[str, Any]:
    options = {"num_predict": num_predict, **fields.pop("options", {})}
    prompt = words(140) if prompt is None else prompt
    return {"model": model, "prompt": prompt, "raw": True, "stream": False, "options": options, **fields}


def desk(*models: Model, **settings: Any) -> Desk:
    return Desk(*(models or (A, B, EMBEDDING, REMOTE)), **settings)


def shape(value: Any) -> Any:
    """Keys and types; of a list that of its first."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value[:1]] if isinstance(value, list) else type(value)


def expiry(server: Desk, index: int = 0) -> float:
    """Seconds on the server's clock at which a resident model expires, as /api/ps says."""
    shown = datetime.fromisoformat(server.get("/api/ps")["models"][index]["expires_at"])
    return shown.timestamp() - EPOCH / SECOND


def clock(server: Desk) -> float:
    return server.now / SECOND


# What is shown


@pytest.mark.parametrize("path", ["version", "tags", "ps"])
def test_inventory_has_the_recorded_fields_in_their_order(path: str) -> None:
    server = desk()
    server.ask(**asking())
    shown = server.get(f"/api/{path}")
    real = recorded("ps_two" if path == "ps" else path)[1]
    assert shape(shown) == shape(real)
    assert json.dumps(list(shape(shown))) == json.dumps(list(shape(real)))


def test_show_is_the_recorded_answer_with_the_models_facts_and_is_counted() -> None:
    server = desk()
    for _ in range(2):
        status, shown = server.answer(server.send("/api/show", model="tiny-e"))
    real = recorded("show")[1]
    assert (status, shape(shown)) == (200, shape(real))
    assert shown["tensors"] == real["tensors"]
    assert shown["capabilities"] == ["embedding"]
    assert server.ollama.shown == {"tiny-e": 2}


@pytest.mark.parametrize(
    ("name", "request_body"),
    [
        ("cold_raw", asking()),
        ("num_predict_1", asking(num_predict=1)),
        ("templated", asking(raw=False)),
        ("load_only", asking(prompt="")),
        ("load_only", {"model": "tiny-a"}),
        ("unload", asking(prompt="", keep_alive=0)),
    ],
)
def test_answers_have_the_recorded_fields(name: str, request_body: dict[str, Any]) -> None:
    found = desk().ask(**request_body)
    assert list(found) == list(recorded(name)[1])
    assert shape(found) == shape(recorded(name)[1])
    assert found["done_reason"] == recorded(name)[1]["done_reason"]


def test_a_repeated_token_ends_without_done_and_without_figures() -> None:
    server = desk(token_repeats=True)
    assert shape(server.ask(**asking())) == shape(recorded("token_repeat_done_false")[1])
    assert server.ask(**asking())["done"] is recorded("token_repeat_done_false")[1]["done"]


@pytest.mark.parametrize(
    ("name", "request_body"),
    [
        ("notfound", asking(model="nope")),
        ("embed_only_generate", asking(model="tiny-e")),
        ("raw_system", asking(system="be kind")),
        ("think_true", asking(think=True)),
        ("bad_opt", asking(options={"num_ctx": "many"})),
        ("ovf_trunc_false", asking(prompt=words(1982), truncate=False, options={"num_ctx": 512})),
        ("ovf_shift_false", asking(prompt=words(1982), shift=False, options={"num_ctx": 512})),
    ],
)
def test_refusals_are_word_by_word_the_recorded_ones(name: str, request_body: dict[str, Any]) -> None:
    server = desk(Model("tiny-a:latest", "a" * 64, tokens_per_word=1.0), EMBEDDING)
    assert server.answer(server.send("/api/generate", **request_body)) == recorded(name)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:11434"])
def test_a_foreign_host_is_forbidden_without_a_word(host: str) -> None:
    answer = desk().ollama.request(0, "GET", "/api/ps", {"Host": host}).answer
    assert answer is not None
    assert (answer.status, answer.body.decode()) == (recorded("host_evil")[0], recorded("host_evil")[1]["_raw"])


@pytest.mark.parametrize("host", ["127.0.0.1:11434", "localhost", "[::1]:11434", "10.0.0.7", "llm.internal"])
def test_a_local_host_is_let_in(host: str) -> None:
    answer = desk().ollama.request(0, "GET", "/api/ps", {"Host": host}).answer
    assert answer is not None
    assert answer.status == 200


def test_there_are_no_metrics_and_no_other_methods() -> None:
    missing = desk().send("/metrics", "GET").answer
    assert missing is not None
    assert (missing.status, missing.body.decode()) == (404, recorded("metrics_404")[1]["_raw"])
    wrong = desk().send("/api/show", "GET").answer
    assert wrong is not None
    assert wrong.status == 405


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("abc", 'time: invalid duration "abc"'),
        ("5", 'time: missing unit in duration "5"'),
        (True, "Unsupported type: 'bool'"),
    ],
)
def test_a_keep_alive_that_is_no_duration_is_refused(value: Any, message: str) -> None:
    server = desk()
    assert server.answer(server.send("/api/generate", **asking(keep_alive=value))) == (400, {"error": message})


@pytest.mark.parametrize(("field", "value"), [("prompt", 5), ("raw", "yes"), ("options", [1])])
def test_a_field_of_a_wrong_type_is_refused(field: str, value: Any) -> None:
    server = desk()
    status, reply = server.answer(server.send("/api/generate", **{**asking(), field: value}))
    assert status == 400
    assert f"GenerateRequest.{field}" in reply["error"]


def test_a_body_that_is_no_json_is_refused() -> None:
    answer = desk().ollama.request(0, "POST", "/api/generate", {}, b"{").answer
    assert answer is not None
    assert answer.status == 400


def test_older_versions_lack_the_newer_fields() -> None:
    def shown(version: str) -> tuple[bool, bool, bool]:
        server = desk(version=version)
        server.ask(**asking())
        tags = server.get("/api/tags")["models"]
        return (
            "context_length" in server.get("/api/ps")["models"][0],
            "remote_model" in tags[-1],
            "capabilities" in tags[0] and "context_length" in tags[0]["details"],
        )

    assert shown("0.9.6") == (False, False, False)
    assert shown("0.10.0") == (True, False, False)
    assert shown("0.12.0") == (True, True, False)
    assert shown("0.30.0") == (True, True, True)
    assert shown("0.0.0") == (True, True, True)


def test_a_remote_model_answers_without_figures_and_is_never_resident() -> None:
    server = desk()
    assert "total_duration" not in server.ask(**asking(model="big:cloud"))
    assert server.get("/api/ps") == {"models": []}


# Counts and durations


def fake_pair(first: dict[str, Any], second: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    server = desk()
    server.ask(**asking(prompt="warm up"))
    return server.ask(**first), server.ask(**second)


@pytest.mark.parametrize(
    ("computed", "cached"),
    [
        (recorded("unique_prefix")[1], recorded("same_prompt_cached")[1]),
        fake_pair(asking(), asking()),
        fake_pair(asking(), asking(prompt=words(141))),
    ],
)
def test_a_repeated_prompt_is_counted_whole_and_timed_for_what_is_new(
    computed: dict[str, Any], cached: dict[str, Any]
) -> None:
    assert cached["prompt_eval_count"] == pytest.approx(computed["prompt_eval_count"], abs=2)
    assert cached["prompt_eval_duration"] < computed["prompt_eval_duration"] / 10


def test_the_next_turn_of_a_talk_is_computed_from_its_new_words_on() -> None:
    server = desk(Model("tiny-a:latest", "a" * 64, tokens_per_word=1.0))
    talk = words(100) + " " + server.ask(**asking(prompt=words(100)))["response"]
    answer = server.ask(**asking(prompt=talk + " " + words(10, "new")))
    assert (answer["prompt_eval_count"], answer["prompt_eval_duration"]) == (143, (4 + 10 * 0.5) * 1_000_000)


def test_a_template_adds_tokens_to_a_prompt_that_is_not_raw() -> None:
    raw, templated = fake_pair(asking(), asking(raw=False))
    assert templated["prompt_eval_count"] > raw["prompt_eval_count"]


def test_a_first_prompt_is_computed_whole() -> None:
    server = desk(
        Model("tiny-a:latest", "a" * 64, prefill_fixed_seconds=0.01, prefill_seconds_per_token=0.001, cold_factor=2)
    )
    answer = server.ask(**asking(prompt=words(100)))
    assert (answer["prompt_eval_count"], answer["prompt_eval_duration"]) == (141, 2 * (10 + 141) * 1_000_000)


def test_a_prompt_with_another_beginning_is_computed_again() -> None:
    computed, other = fake_pair(asking(), asking(prompt="else " + words(139)))
    # The token of the beginning is the same always.
    saved = computed["prompt_eval_duration"] - other["prompt_eval_duration"]
    assert saved == 0


def test_words_have_as_many_tokens_as_the_model_makes_of_them() -> None:
    server = desk(Model("tiny-a:latest", "a" * 64, tokens_per_word=2.5))
    assert server.ask(**asking(prompt=words(100)))["prompt_eval_count"] == 251


@pytest.mark.parametrize("answer", [recorded("num_predict_1")[1], desk().ask(**asking(num_predict=1))])
def test_one_token_takes_a_microsecond(answer: dict[str, Any]) -> None:
    assert (answer["eval_count"], answer["eval_duration"]) == (1, 1000)


def test_the_first_token_is_free() -> None:
    server = desk()
    server.ask(**asking())
    answer = server.ask(**asking(num_predict=33))
    assert answer["eval_count"] == 33
    assert answer["eval_duration"] == 32 * 3_000_000


@pytest.mark.parametrize(
    ("first", "later"),
    [(recorded("cold_raw")[1], recorded("unique_prefix")[1]), fake_pair(asking(), asking(prompt=words(140, "other")))],
)
def test_the_parts_are_the_whole_but_for_a_few_milliseconds(first: dict[str, Any], later: dict[str, Any]) -> None:
    for answer in (first, later):
        rest = answer["total_duration"] - sum(
            answer[part] for part in ("load_duration", "prompt_eval_duration", "eval_duration")
        )
        assert 1_000_000 < rest < 5_000_000


def fake_cold() -> tuple[dict[str, Any], dict[str, Any]]:
    server = desk()
    return server.ask(**asking()), server.ask(**asking(prompt=words(140, "other")))


@pytest.mark.parametrize(("cold", "warm"), [(recorded("cold_raw")[1], recorded("unique_prefix")[1]), fake_cold()])
def test_the_first_request_after_a_load_has_the_load_in_it_and_is_slower(
    cold: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["load_duration"] < 2_000_000 < SECOND < cold["load_duration"]
    for phase in ("prompt_eval_duration", "eval_duration"):
        assert cold[phase] > 3 * warm[phase]


def fake_queued() -> dict[str, Any]:
    server = desk()
    server.ask(**asking(prompt="warm up"))
    long = server.send("/api/generate", **asking(num_predict=4000))
    server.wait(0.01)
    answer = server.ask(**asking(prompt=words(140, "other"), num_predict=8))
    assert long.answer is not None
    return answer


@pytest.mark.parametrize("queued", [recorded("queued")[1], fake_queued()])
def test_waiting_for_the_slot_shows_in_the_total_alone(queued: dict[str, Any]) -> None:
    phases = queued["load_duration"] + queued["prompt_eval_duration"] + queued["eval_duration"]
    assert phases < 0.3 * SECOND
    assert queued["total_duration"] - phases > 10 * SECOND


def test_the_slot_is_first_come_first_served() -> None:
    server = desk()
    tickets = [server.send("/api/generate", **asking(prompt=words(9, mark))) for mark in "abc"]
    ends = []
    for ticket in tickets:
        server.answer(ticket)
        ends.append(server.now)
    assert ends == sorted(set(ends))


@pytest.mark.parametrize(
    "answer",
    [
        recorded("ovf_trunc_default")[1],
        desk(Model("tiny-a:latest", "a" * 64, tokens_per_word=1.0)).ask(
            **asking(prompt=words(1982), options={"num_ctx": 512})
        ),
    ],
)
def test_a_prompt_longer_than_the_context_is_cut_in_silence(answer: dict[str, Any]) -> None:
    assert answer["prompt_eval_count"] == 259


@pytest.mark.parametrize(("count", "status"), [(62, 200), (63, 400)])
def test_the_context_holds_a_prompt_and_one_token_more(count: int, status: int) -> None:
    server = desk(Model("tiny-a:latest", "a" * 64, tokens_per_word=1.0))
    sent = asking(prompt=words(count), truncate=False, options={"num_ctx": 64})
    assert server.answer(server.send("/api/generate", **sent))[0] == status


def past_context(shift: bool) -> dict[str, Any]:
    plain = Model("tiny-a:latest", "a" * 64, tokens_per_word=1.0)
    return desk(plain).ask(**asking(prompt=words(398), num_predict=400, shift=shift, options={"num_ctx": 512}))


@pytest.mark.parametrize("answer", [recorded("gen_past_ctx_noshift")[1], past_context(False)])
def test_without_shift_a_reply_ends_with_the_context(answer: dict[str, Any]) -> None:
    assert answer["prompt_eval_count"] + answer["eval_count"] == 512
    assert answer["done_reason"] == "length"


@pytest.mark.parametrize("answer", [recorded("gen_past_ctx_shift")[1], past_context(True)])
def test_with_shift_a_reply_goes_on_beyond_the_context(answer: dict[str, Any]) -> None:
    assert answer["eval_count"] == 400


@pytest.mark.parametrize("num_predict", [0, -1])
def test_without_a_limit_a_reply_is_ten_contexts_long(num_predict: int) -> None:
    assert desk().ask(**asking(num_predict=num_predict, options={"num_ctx": 64}, prompt="hi"))["eval_count"] == 640


def test_a_model_that_ends_its_reply_says_stop() -> None:
    answer = desk(Model("tiny-a:latest", "a" * 64, reply_tokens=12)).ask(**asking())
    assert (answer["eval_count"], answer["done_reason"]) == (12, "stop")


def test_what_is_0_is_not_there() -> None:
    timeless = Model("tiny-a:latest", "a" * 64, prefill_fixed_seconds=0, prefill_seconds_per_token=0)
    assert "prompt_eval_duration" not in desk(timeless).ask(**asking())


def test_streaming_is_not_simulated_and_says_so() -> None:
    server = desk()
    assert server.answer(server.send("/api/generate", **asking(stream=True)))[0] == 501


# Who stays, and until when


def test_a_model_stays_for_its_session_after_a_request() -> None:
    server = desk()
    server.ask(**asking())
    ended = clock(server)
    assert expiry(server) == pytest.approx(ended + 300, abs=1e-5)
    server.wait(299)
    assert server.get("/api/ps")["models"]
    server.wait(1)
    assert not server.get("/api/ps")["models"]


def test_during_the_first_request_expiry_moves_and_during_later_ones_it_stands_still() -> None:
    server = desk(keep_alive=5.0)
    first = server.send("/api/generate", **asking(num_predict=2000))
    for _ in range(2):
        server.wait(3)
        assert expiry(server) == pytest.approx(clock(server) + 5, abs=1e-5)
    server.answer(first)
    server.wait(1)
    frozen = expiry(server)
    server.send("/api/generate", **asking(num_predict=4000))
    server.wait(10)
    assert expiry(server) == frozen < clock(server)


def test_a_keep_alive_holds_for_later_requests_that_name_none() -> None:
    server = desk()
    server.ask(**asking(keep_alive="20s"))
    server.ask(**asking())
    assert expiry(server) == pytest.approx(clock(server) + 20, abs=1e-5)


@pytest.mark.parametrize(("value", "seconds"), [(90, 90), (1.5, 1.5), ("1m30s", 90), ("500ms", 0.5), (None, 300)])
def test_a_keep_alive_is_seconds_or_a_go_duration(value: Any, seconds: float) -> None:
    server = desk()
    server.ask(**asking(keep_alive=value))
    assert expiry(server) == pytest.approx(clock(server) + seconds, abs=1e-5)


@pytest.mark.parametrize("value", [-1, "-1m"])
def test_a_negative_keep_alive_is_for_ever_which_is_the_year_2319(value: Any) -> None:
    server = desk()
    server.ask(**asking(keep_alive=value))
    server.wait(10 * 86_400)
    shown = server.get("/api/ps")["models"][0]["expires_at"]
    assert shown[:4] == recorded("ps_forever")[1]["models"][0]["expires_at"][:4] == "2319"


@pytest.mark.parametrize("value", [0, "0", "0s"])
def test_a_keep_alive_of_0_unloads_once_idle(value: Any) -> None:
    server = desk()
    server.ask(**asking(keep_alive=value))
    assert not server.get("/api/ps")["models"]


def test_an_unload_waits_for_the_running_request() -> None:
    server = desk()
    running = server.send("/api/generate", **asking())
    server.wait(2.1)
    server.ask(**asking(prompt="", keep_alive=0))
    assert server.get("/api/ps")["models"]
    server.answer(running)
    assert not server.get("/api/ps")["models"]


def test_expiry_is_told_in_the_zone_of_the_machine_with_nine_digits() -> None:
    def told(zone: timezone) -> str:
        server = desk(zone=zone)
        server.ask(**asking())
        shown: str = server.get("/api/ps")["models"][0]["expires_at"]
        return shown

    recorded_digits = recorded("ps_two")[1]["models"][0]["expires_at"].partition(".")[2]
    utc, india = told(UTC), told(timezone(timedelta(hours=5.5)))
    assert utc.endswith("Z")
    assert india.endswith("+05:30")
    assert datetime.fromisoformat(utc) == datetime.fromisoformat(india)
    assert len(utc.partition(".")[2]) == len(recorded_digits) == 10


def test_the_last_to_expire_is_listed_first() -> None:
    server = desk()
    for model, seconds in (("tiny-a", 50), ("tiny-b", 100)):
        server.ask(**asking(model=model, keep_alive=seconds))
    for listed in (recorded("ps_two")[1], recorded("ps_forever")[1], server.get("/api/ps")):
        times = [datetime.fromisoformat(model["expires_at"]) for model in listed["models"]]
        assert times == sorted(times, reverse=True)
        assert len(times) == 2


def test_a_model_pulled_again_is_listed_twice_under_one_name() -> None:
    server = desk()
    server.ask(**asking())
    server.ollama.pull(Model("tiny-a:latest", "f" * 64))
    server.ask(**asking())
    for listed in (recorded("ps_forever")[1], server.get("/api/ps")):
        assert len({model["digest"] for model in listed["models"]}) == 2
        assert len({model["name"] for model in listed["models"]}) == 1


def test_a_removed_model_is_not_found() -> None:
    server = desk()
    server.ollama.remove("tiny-a:latest")
    assert server.answer(server.send("/api/generate", **asking()))[0] == 404


def test_a_model_that_is_loading_is_not_listed() -> None:
    server = desk()
    server.send("/api/generate", **asking())
    server.wait(1.9)
    assert not server.get("/api/ps")["models"]
    server.wait(0.2)
    assert server.get("/api/ps")["models"]


# Reloads, evictions, queues

NOTHING: dict[str, Any] = {}
RELOADS: list[tuple[dict[str, Any], dict[str, Any], bool, bool]] = [
    # loaded with, asked with, reloads, reloads again for a request like the first
    (NOTHING, NOTHING, False, False),
    (NOTHING, {"options": {"num_ctx": 4096}}, False, False),
    (NOTHING, {"options": {"temperature": 0.1, "seed": 5, "num_keep": 9, "stop": ["."]}}, False, False),
    (NOTHING, {"truncate": False}, False, False),
    (NOTHING, {"think": False}, False, False),
    (NOTHING, {"options": {"num_gpu": -1}}, False, False),
    (NOTHING, {"options": {"num_batch": 512}}, False, False),
    (NOTHING, {"shift": True}, False, False),
    ({"options": {"num_ctx": 8192}}, NOTHING, True, True),
    ({"options": {"num_ctx": 8192}}, {"options": {"num_ctx": 8192}}, False, False),
    ({"options": {"num_ctx": 100_000}}, {"options": {"num_ctx": 32_768}}, False, False),
    (NOTHING, {"options": {"num_gpu": 0}}, True, False),
    (NOTHING, {"options": {"num_batch": 256}}, True, True),
    (NOTHING, {"options": {"num_thread": 2}}, True, True),
    (NOTHING, {"options": {"use_mmap": True}}, True, True),
    (NOTHING, {"options": {"main_gpu": 0}}, True, True),
    (NOTHING, {"options": {"draft_num_predict": 2}}, True, True),
    (NOTHING, {"shift": False}, True, True),
]


@pytest.mark.parametrize(("loaded", "asked", "reloads", "again"), RELOADS)
def test_a_runner_is_reloaded_for_other_runner_options_and_for_nothing_else(
    loaded: dict[str, Any], asked: dict[str, Any], reloads: bool, again: bool
) -> None:
    server = desk()
    server.ask(**asking(**loaded))
    assert (server.ask(**asking(**asked))["load_duration"] > SECOND) is reloads
    assert (server.ask(**asking(**loaded))["load_duration"] > SECOND) is again


def test_a_context_is_no_longer_than_the_model_was_trained_for() -> None:
    server = desk()
    server.ask(**asking(options={"num_ctx": 100_000}))
    assert server.get("/api/ps")["models"][0]["context_length"] == 32_768


def test_a_reload_forgets_the_session() -> None:
    server = desk()
    server.ask(**asking(keep_alive=1000))
    server.ask(**asking(options={"num_ctx": 8192}))
    assert expiry(server) == pytest.approx(clock(server) + 300, abs=1e-5)


def test_the_idle_model_with_the_shortest_session_makes_room() -> None:
    third = Model("tiny-c:latest", "c" * 64)
    server = desk(A, B, third, max_loaded=2)
    server.ask(**asking("tiny-a", keep_alive=1000))
    server.ask(**asking("tiny-b", keep_alive=100))
    server.ask(**asking("tiny-c"))
    assert [model["name"] for model in server.get("/api/ps")["models"]] == ["tiny-a:latest", "tiny-c:latest"]


def test_a_busy_model_stays_if_an_idle_one_can_make_room() -> None:
    server = desk(A, B, Model("tiny-c:latest", "c" * 64), max_loaded=2)
    server.ask(**asking("tiny-b"))
    busy = server.send("/api/generate", **asking("tiny-a", num_predict=1000, keep_alive=1))
    server.wait(2.5)
    server.ask(**asking("tiny-c"))
    assert busy.answer is None
    assert {model["name"] for model in server.get("/api/ps")["models"]} == {"tiny-a:latest", "tiny-c:latest"}


def test_a_load_waits_for_the_request_of_the_model_that_must_leave() -> None:
    server = desk(max_loaded=1)
    running = server.send("/api/generate", **asking("tiny-a", num_predict=1000))
    server.wait(2.5)
    waited = server.ask(**asking("tiny-b"))
    assert running.answer is not None
    assert waited["load_duration"] > 10 * SECOND
    assert [model["name"] for model in server.get("/api/ps")["models"]] == ["tiny-b:latest"]


def test_only_requests_that_need_a_load_can_be_too_many() -> None:
    server = desk(max_queue=1)
    tickets = [server.send("/api/generate", **asking("tiny-a")) for _ in range(3)]
    assert server.answer(tickets[2]) == recorded("busy_503")
    for ticket in tickets[:2]:
        assert server.answer(ticket)[0] == 200
    resident = [server.send("/api/generate", **asking("tiny-a")) for _ in range(9)]
    assert {server.answer(ticket)[0] for ticket in resident} == {200}


def test_a_closed_connection_frees_the_slot() -> None:
    server = desk()
    server.ask(**asking(prompt="warm up"))
    long = server.send("/api/generate", **asking(num_predict=4000))
    server.wait(1)
    server.ollama.cancel(server.now, long)
    answer = server.ask(**asking(num_predict=1))
    assert answer["total_duration"] < 0.2 * SECOND
    assert long.answer is None


def test_a_closed_connection_leaves_the_queue() -> None:
    server = desk()
    first, second, third = (server.send("/api/generate", **asking(num_predict=200)) for _ in range(3))
    server.wait(2.1)
    server.ollama.cancel(server.now, second)
    server.answer(first)
    between = server.now
    server.answer(third)
    assert server.now - between < SECOND
    assert second.answer is None


def test_a_closed_connection_gives_up_the_load_and_lets_the_next_one_load() -> None:
    server = desk()
    ticket = server.send("/api/generate", **asking())
    server.wait(1)
    next_one = server.send("/api/generate", **asking("tiny-b"))
    server.ollama.cancel(server.now, ticket)
    server.answer(next_one)
    assert [model["name"] for model in server.get("/api/ps")["models"]] == ["tiny-b:latest"]


# Ways to it


def test_over_the_transport_a_request_takes_its_simulated_time() -> None:
    timeline = Timeline()
    server = desk().ollama

    async def ask() -> dict[str, Any]:
        async with httpx.AsyncClient(transport=OllamaTransport(server, timeline), base_url=URL) as client:
            answer = await client.post("/api/generate", json=asking(num_predict=1000), timeout=60)
        body: dict[str, Any] = answer.json()
        return body

    body = timeline.run(ask())
    assert timeline.nanoseconds() - round(START * SECOND) == body["total_duration"]
    assert server.asked[0].headers["host"] == "127.0.0.1:11434"


def test_over_the_transport_a_given_up_request_lets_the_next_one_in_at_once() -> None:
    timeline = Timeline()
    transport = OllamaTransport(desk().ollama, timeline)

    async def both() -> float:
        async with httpx.AsyncClient(transport=transport, base_url=URL, timeout=None) as client:  # noqa: S113  # simulated
            await client.post("/api/generate", json=asking())
            long = asyncio.create_task(client.post("/api/generate", json=asking(num_predict=30_000)))
            await asyncio.sleep(1)
            queued = asyncio.create_task(client.post("/api/generate", json=asking(num_predict=8)))
            await asyncio.sleep(1)
            long.cancel()
            given_up = timeline.clock()
            assert (await queued).status_code == 200
            return timeline.clock() - given_up

    assert timeline.run(both()) < 1


def test_a_user_goes_on_with_a_talk_during_a_visit_and_begins_anew_in_the_next() -> None:
    timeline = Timeline()
    user = User("tiny-a", [Visit(pause=60, requests=2, num_ctx=8192), Visit(pause=600, keep_alive="1m")])
    server = desk().ollama
    timeline.run(user.live(OllamaTransport(server, timeline)))
    first, second, third = user.answers
    assert second["prompt_eval_count"] > first["prompt_eval_count"] == third["prompt_eval_count"]
    assert second["prompt_eval_duration"] < first["prompt_eval_duration"]
    assert third["load_duration"] > SECOND
    sent = [json.loads(asked.body) for asked in server.asked]
    assert [body["options"].get("num_ctx") for body in sent] == [8192, 8192, None]
    assert sent[2]["keep_alive"] == "1m"


def test_over_loopback_it_answers_faster_than_it_says() -> None:
    with FakeOllama(A, speed=1000.0) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        answer = client.post("/api/generate", json=asking(num_predict=4000), timeout=PATIENCE)
        assert answer.json()["total_duration"] > PATIENCE * SECOND
        assert client.get("/api/ps").json()["models"][0]["name"] == "tiny-a:latest"


def test_over_loopback_expiry_is_in_our_own_wall_clock() -> None:
    quick = Model("tiny-a:latest", "a" * 64, load_seconds=0.01)
    with FakeOllama(quick) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        before = time.time()
        client.post("/api/generate", json={"model": "tiny-a"}, timeout=PATIENCE)
        shown = client.get("/api/ps").json()["models"][0]["expires_at"]
        assert before < datetime.fromisoformat(shown).timestamp() - 300 < time.time()


def test_over_loopback_a_client_that_leaves_frees_the_slot() -> None:
    quick = Model("tiny-a:latest", "a" * 64, load_seconds=0.01, cold_factor=1.0)
    with FakeOllama(quick) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        client.post("/api/generate", json=asking(num_predict=1), timeout=PATIENCE)
        with pytest.raises(httpx.ReadTimeout):
            client.post("/api/generate", json=asking(num_predict=40_000), timeout=0.3)
        answer = client.post("/api/generate", json=asking(num_predict=1), timeout=PATIENCE)
        assert answer.status_code == 200
