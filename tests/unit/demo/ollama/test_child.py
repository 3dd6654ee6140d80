"""What the llama-server of a loaded model shows of the requests that Ollama gives it."""

import itertools
import json
from typing import Any

import pytest

from phasewatch.demo.llamacpp.endpoints import START_HEADER
from phasewatch.demo.ollama.child import Child
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.harm_ledger import Harm
from phasewatch.demo.ollama.model import Model
from phasewatch.demo.ollama.scheduler import LOAD_OVERHEAD
from tests.support.simulated_llamacpp import RECORDED_PAGES
from tests.support.simulated_ollama import StepwiseOllama

TINY = Model("tiny:latest", "b" * 64, load_seconds=1.0, cold_factor=1.0, tokens_per_word=1.0)
OTHER = Model("other:latest", "c" * 64, load_seconds=1.0)


class Stepwise(StepwiseOllama):
    """A server whose children a test reads."""

    @property
    def child(self) -> Child:
        """The only child."""
        (child,) = self.ollama.list_children()
        return child

    def read(self, path: str, child: Child | None = None, status: int = 200) -> Any:
        """The JSON of a page of a child."""
        response = self.ollama.respond_as_child(self.now, child or self.child, "GET", path)
        assert response.status == status, path
        return json.loads(response.body)

    def slot(self) -> dict[str, Any]:
        """The only slot of the only child."""
        (slot,) = self.read("/slots")
        assert isinstance(slot, dict)
        return slot

    def values(self) -> dict[str, float]:
        """The values of /metrics by name, without the prefix."""
        body = self.ollama.respond_as_child(self.now, self.child, "GET", "/metrics").body.decode()
        samples = (line.split(" ") for line in body.splitlines() if not line.startswith("#"))
        return {name.removeprefix("llamacpp:"): float(value) for name, value in samples}


def start(*models: Model, **settings: Any) -> Stepwise:
    return Stepwise(*(models or (TINY,)), **{"child_metrics": True, **settings})


def ask(server: Stepwise, words: int, tokens: int, name: str = "w") -> Any:
    """A request to the model, not waited for."""
    prompt = " ".join(f"{name}{index}" for index in range(words))
    return server.send(
        "/api/generate", model="tiny", prompt=prompt, raw=True, stream=False, options={"num_predict": tokens}
    )


def test_a_child_lives_from_the_beginning_of_a_load_until_the_model_is_unloaded() -> None:
    server = start()
    assert server.ollama.list_children() == []
    exchange = ask(server, 10, 10)
    assert server.read("/health", status=503) == RECORDED_PAGES["loading"]
    server.complete(exchange)
    assert server.read("/health") == {"status": "ok"}
    first = server.child
    server.generate(model="tiny", keep_alive=0)
    assert server.ollama.list_children() == []
    server.complete(ask(server, 10, 10))
    assert server.child.number == first.number + 1


def test_a_reload_with_other_options_is_another_child_with_another_start() -> None:
    server = start()
    starts = []
    for num_ctx in (4096, 8192):
        server.generate(model="tiny", prompt="a b", stream=False, options={"num_predict": 5, "num_ctx": num_ctx})
        response = server.ollama.respond_as_child(server.now, server.child, "GET", "/metrics")
        starts.append(response.headers[START_HEADER])
        assert server.slot()["n_ctx"] == num_ctx
    assert starts[0] != starts[1]


def test_an_abandoned_load_leaves_no_child() -> None:
    server = start()
    exchange = ask(server, 10, 10)
    assert len(server.ollama.list_children()) == 1
    server.ollama.cancel(server.now, exchange)
    assert server.ollama.list_children() == []


def test_the_slot_shows_prefill_batch_by_batch_then_decode_token_by_token() -> None:
    server = start()
    server.complete(ask(server, 1, 1, "warm"))
    exchange = ask(server, 1999, 400)
    views = []
    while exchange.response is None:
        server.wait(0.005)
        if exchange.response is None:
            slot = server.slot()
            if slot["is_processing"]:
                token = slot["next_token"][0]
                views.append((slot["n_prompt_tokens"], slot["n_prompt_tokens_processed"], token["n_decoded"]))
                assert token["n_remain"] == 400 - token["n_decoded"]
    prefill = [view for view in dict.fromkeys(views) if view[2] == 0]
    assert prefill == [(1 + 512, 0, 0), (1 + 1024, 512, 0), (1 + 1536, 1024, 0), (2000, 1536, 0)]
    decode = [view for view in views if view[2]]
    assert all(held == 2000 + decoded and processed == 1999 for held, processed, decoded in decode)
    assert [decoded for *_, decoded in decode] == sorted(decoded for *_, decoded in decode)
    assert len({decoded for *_, decoded in decode}) > 200
    idle = server.slot()
    assert (idle["is_processing"], idle["n_prompt_tokens"]) == (False, 2000 + 400 - 1)
    assert idle["next_token"][0]["n_decoded"] == 0


def test_the_counters_of_a_child_are_what_ollama_reports_of_its_requests() -> None:
    server = start()
    replies = [
        server.complete(ask(server, words, tokens, f"q{words}."))[1]
        for words, tokens in ((50, 100), (700, 1), (1500, 30), (20, 200))
    ]
    values = server.values()
    decoded = sum(reply["eval_count"] for reply in replies)
    assert values["tokens_predicted_total"] == decoded
    assert values["prompt_tokens_total"] + values["prompt_tokens_cached_total"] == sum(
        reply["prompt_eval_count"] for reply in replies
    )
    seconds = sum(reply["prompt_eval_duration"] for reply in replies) / SECOND
    assert values["prompt_seconds_total"] == pytest.approx(seconds, rel=1e-5)
    seconds = sum(reply["eval_duration"] for reply in replies) / SECOND
    assert values["tokens_predicted_seconds_total"] == pytest.approx(seconds, rel=1e-5)
    batches = 1 + 2 + 3 + 1
    assert values["n_decode_total"] == decoded + batches - len(replies)
    assert values["n_busy_slots_per_decode"] == 1
    later_tokens = decoded - len(replies)
    assert values["predicted_tokens_seconds"] == pytest.approx(later_tokens / seconds, rel=1e-3)
    assert values["prompt_tokens_seconds"] > 0
    assert server.values()["predicted_tokens_seconds"] == 0


def test_tokens_count_when_a_request_ends_and_decodes_with_every_step() -> None:
    server = start()
    server.complete(ask(server, 1, 1, "warm"))
    before = server.values()
    exchange = ask(server, 100, 300)
    server.wait(LOAD_OVERHEAD / SECOND + 0.06 + 0.5)
    during = server.values()
    assert exchange.response is None
    assert during["tokens_predicted_total"] == before["tokens_predicted_total"]
    decoded = server.slot()["next_token"][0]["n_decoded"]
    assert 100 < decoded < 300
    assert during["n_decode_total"] - before["n_decode_total"] == decoded
    assert during["prompt_tokens_total"] - before["prompt_tokens_total"] == 100
    server.complete(exchange)
    assert server.values()["tokens_predicted_total"] == before["tokens_predicted_total"] + 300


def test_a_cancelled_request_counts_what_was_computed() -> None:
    for seconds, decoding in ((0.3, False), (2.0, True)):
        server = start()
        server.complete(ask(server, 1, 1, "warm"))
        before = server.values()
        exchange = ask(server, 1999, 3000)
        server.wait(seconds)
        server.ollama.cancel(server.now, exchange)
        server.wait(1.0)
        after = server.values()
        assert after["requests_processing"] == 0, seconds
        predicted = after["tokens_predicted_total"] - before["tokens_predicted_total"]
        assert (0 < predicted < 3000) is decoding, seconds
        computed = after["prompt_tokens_total"] - before["prompt_tokens_total"]
        assert computed == 1999 if decoding else 0 < computed < 1999, seconds


def test_requests_that_wait_in_ollama_are_not_deferred_in_the_child() -> None:
    server = start()
    server.complete(ask(server, 1, 1, "warm"))
    for name in "abc":
        ask(server, 50, 500, name)
    server.wait(0.5)
    values = server.values()
    assert (values["requests_processing"], values["requests_deferred"]) == (1, 0)


def test_metrics_are_off_unless_the_environment_switches_them_on() -> None:
    server = start(child_metrics=False)
    server.complete(ask(server, 10, 10))
    assert server.read("/metrics", status=501) == RECORDED_PAGES["metrics_off"]
    assert server.slot()["id_task"] == 0


def test_reading_a_child_changes_nothing_that_ollama_shows() -> None:
    server = start()
    server.complete(ask(server, 10, 10))
    server.wait(5.0)
    before = server.get("/api/ps")
    for path in ("/health", "/props", "/slots", "/v1/models"):
        server.read(path)
    server.values()
    assert server.get("/api/ps") == before
    assert [event.harm for event in server.ollama.ledger.events] == [Harm.LOAD]


def test_the_arguments_are_those_of_a_recorded_child_and_lead_to_the_model_by_its_layer() -> None:
    server = start()
    server.complete(ask(server, 10, 10))
    arguments = server.child.build_arguments(42_083)
    recorded = [one for one in RECORDED_PAGES["child_argv"] if one not in {"-t", "1"}]
    varying = ("--model", "-c", "-np")
    assert [one for one in arguments if one.startswith("-")] == [one for one in recorded if one.startswith("-")]
    for name, value in itertools.pairwise(recorded):
        if name.startswith("-") and not value.startswith("-") and name not in varying:
            assert arguments[arguments.index(name) + 1] == value, name
    path = arguments[arguments.index("--model") + 1]
    shown = server.complete(server.send("/api/show", model="tiny"))[1]
    assert f"\nFROM {path}\n" in shown["modelfile"]
    assert TINY.digest not in path
    assert server.read("/props")["model_path"] == path


def test_two_names_of_one_layer_have_children_with_the_same_path() -> None:
    first, second = (Model(f"{name}:latest", digit * 64, layer="f" * 64) for name, digit in (("a", "1"), ("b", "2")))
    assert first.blob_path == second.blob_path
    assert TINY.blob_path != OTHER.blob_path


def test_models_of_other_formats_and_older_servers_have_no_children() -> None:
    mlx = Model("tiny:latest", "b" * 64, load_seconds=1.0, format="safetensors")
    for server, expected in ((start(), 1), (start(mlx), 0), (start(version="0.29.3"), 0)):
        server.complete(ask(server, 10, 10))
        assert len(server.ollama.list_children()) == expected


def test_a_context_that_shifts_never_shows_more_tokens_than_it_has() -> None:
    server = start()
    exchange = server.send(
        "/api/generate",
        model="tiny",
        prompt="w",
        raw=True,
        stream=False,
        options={"num_predict": 1000, "num_ctx": 256},
    )
    most = decoded = 0
    while exchange.response is None:
        server.wait(0.05)
        for slot in server.read("/slots") if not server.child.is_loading else []:
            most = max(most, slot.get("n_prompt_tokens", 0))
            decoded = max(decoded, slot["next_token"][0]["n_decoded"]) if "next_token" in slot else decoded
    assert most == 255
    assert decoded > 900
