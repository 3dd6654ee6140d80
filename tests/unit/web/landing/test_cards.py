from dataclasses import replace
from html import escape

from phasewatch.analysis.advice.remedy import Advice, Condition, Known, list_words
from phasewatch.analysis.distribution import Distribution
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.objectives import Objective, Verdict
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.queue import Load
from phasewatch.analysis.samples import EngineKey
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends.ollama.advice import FINDINGS
from phasewatch.backends.vllm.state_advice import ADVICE, ASLEEP
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.probes import ProbeRecord
from phasewatch.web.landing.cards import MANY_CARDS, Card, render_card
from phasewatch.web.landing.load_history import HISTORY_SLOTS, Track
from phasewatch.web.landing.text import UNKNOWN as DASH
from phasewatch.web.landing.text import Moment
from tests.support.live_page import HOSTILE, KNOWN, OLLAMA, UNKNOWN, UP
from tests.support.markup import Markup

MOMENT = Moment(1_800_000_000.0, 1_000_000.0)
TRACK = Track(
    running=[24.0] * HISTORY_SLOTS, waiting=[3.0] * (HISTORY_SLOTS - 1) + [50.0], kv_cache=[0.25] * HISTORY_SLOTS
)


def vllm(engine: EngineSnapshot, track: Track | None = None) -> Card:
    return Card(UP, engine, None, track, probed=True)


PROBE = ProbeRecord(probes=7, success=True, last_success=MOMENT.wall - 185)


def ollama(*, probed: bool = True, **facts: object) -> Card:
    facts = {"probe": PROBE, **facts}
    model = replace(OLLAMA.models[0], expiry=MOMENT.wall + 60, **facts)  # type: ignore[arg-type]
    return Card(OLLAMA, OLLAMA.engines[0], model, None, probed=probed)


def shown(subject: Card, among: int = 2) -> Markup:
    return Markup("".join(render_card(subject, MOMENT, among)))


def test_a_card_names_model_target_and_engine() -> None:
    card = shown(vllm(KNOWN))
    assert card.texts("h3") == ["meta-llama/Llama-3.1-8B-Instruct"]
    assert card.texts("p", "from") == ["chat, engine 0"]
    assert shown(ollama()).texts("p", "from") == ["workstation"]


def list_all_words(advice: Advice, *conditions: Condition, version: str | None = "0.32.0") -> list[str]:
    """The words of an advice for the server of the tests."""
    known = Known(version, advice.holds | set(conditions))
    return [*list_words(advice.change, known), *list_words(advice.avoid, known)]


def test_the_state_and_what_it_means_are_said_in_words() -> None:
    for state in SaturationState:
        card = shown(vllm(replace(KNOWN, state=state)))
        assert card.texts("p", "state") == [ADVICE[state].title], state
        assert card.texts("p", "meaning") == [ADVICE[state].meaning], state
        assert card.texts("li") == list_all_words(ADVICE[state]), state


MISSED = {Objective.INTER_TOKEN_LATENCY: Verdict(met=False, value=8.0, objective=0.3, order=0.99)}
MET = {Objective.INTER_TOKEN_LATENCY: Verdict(met=True, value=0.02, objective=0.3, order=0.99)}


def test_slow_tokens_without_a_queue_are_neither_called_good_nor_left_without_advice() -> None:
    card = shown(vllm(replace(KNOWN, state=SaturationState.HEALTHY, objectives=MISSED)))
    assert card.texts("p", "state") == ["No queue, but slow tokens"]
    assert "p99 inter-token latency is 8 s; the objective is 300 ms." in card.texts("p", "meaning")[0]
    assert card.texts("li")
    (article,) = card.all("article")
    assert article.classes == {"card", "limited"}


def test_a_queue_that_waits_for_prefill_is_not_told_to_raise_what_slow_tokens_want_lowered() -> None:
    for objectives, raised in ((MISSED, False), (MET, True), ({}, True)):
        engine = replace(KNOWN, state=SaturationState.PREFILL_LIMITED, objectives=objectives)
        change = [words for words in shown(vllm(engine)).texts("li") if not words.startswith("Do not")]
        assert any("aise --max-num-batched-tokens" in words for words in change) is raised, objectives


def test_flags_that_the_server_does_not_have_are_not_shown() -> None:
    for version, offered in (("0.23.0", False), ("0.24.0", True)):
        target = replace(UP, facts=replace(UP.facts, version=version))
        card = shown(replace(vllm(replace(KNOWN, state=SaturationState.PREEMPTING)), target=target))
        assert ("--watermark" in card.texts("span", "flag")) is offered, version


def test_red_marks_only_states_that_need_somebody_now() -> None:
    for state, asleep, tone in (
        (SaturationState.IDLE, False, "quiet"),
        (SaturationState.HEALTHY, False, "good"),
        (SaturationState.PREEMPTING, False, "limited"),
        (SaturationState.STUCK, False, "bad"),
        (SaturationState.SHEDDING, False, "bad"),
        (SaturationState.STUCK, True, "limited"),
        (SaturationState.IDLE, True, "quiet"),
        (None, False, "quiet"),
    ):
        (article,) = shown(vllm(replace(KNOWN, state=state, asleep=asleep))).all("article")
        assert article.classes == {"card", tone}, (state, asleep)


def test_a_sleeping_engine_is_called_asleep() -> None:
    for state in (SaturationState.STUCK, SaturationState.DEFERRED, SaturationState.IDLE):
        card = shown(vllm(replace(KNOWN, state=state, asleep=True)))
        assert card.texts("p", "state") == [ASLEEP.title], state


def test_advice_is_unfolded_for_a_single_card_and_folded_among_others() -> None:
    assert "open" in shown(vllm(KNOWN), 1).all("details")[0].attributes
    assert "open" not in shown(vllm(KNOWN), 2).all("details")[0].attributes
    assert "open" in shown(vllm(replace(KNOWN, state=SaturationState.HEALTHY)), 1).all("details")[0].attributes


def test_among_many_the_meaning_is_folded_away() -> None:
    card = shown(vllm(KNOWN), MANY_CARDS)
    assert card.texts("p", "meaning") == []
    assert ADVICE[SaturationState.KV_CACHE_FULL].meaning in card.texts("details")[0]
    assert shown(vllm(replace(KNOWN, state=SaturationState.IDLE)), MANY_CARDS).texts("summary") == ["What it means"]


def test_advice_is_the_same_element_in_every_state_and_hidden_where_there_is_nothing_to_say() -> None:
    """So what a reader has opened stays open, and keeps the focus, when the state changes."""
    readings = [replace(KNOWN, state=state) for state in (*SaturationState, None)]
    details = [shown(vllm(engine)).all("details") for engine in readings]
    assert len({advice.attributes["id"] for (advice,) in details}) == 1
    silent = [
        engine.state for engine, (advice,) in zip(readings, details, strict=True) if "hidden" in advice.attributes
    ]
    assert silent == [SaturationState.IDLE, SaturationState.HEALTHY, None]


def test_a_flag_is_not_broken_at_its_hyphens() -> None:
    flags = {
        "--gpu-memory-utilization",
        "--kv-cache-dtype",
        "--max-model-len",
        "--tensor-parallel-size",
        "--max-num-seqs",
    }
    assert set(shown(vllm(KNOWN)).texts("span", "flag")) == flags
    for among in (1, MANY_CARDS):
        shedding = shown(vllm(replace(KNOWN, state=SaturationState.SHEDDING)), among)
        assert shedding.texts("span", "flag") == ["--max-num-queued-reqs", "--max-num-queued-tokens"]


def test_the_id_of_a_card_depends_on_target_model_and_engine_alone() -> None:
    def key(subject: Card) -> str:
        return shown(subject).all("article")[0].attributes["id"]

    others = [
        vllm(replace(KNOWN, key=EngineKey("other", "0"))),
        vllm(replace(KNOWN, key=replace(KNOWN.key, engine="1"))),
        replace(vllm(KNOWN), target=replace(UP, name="b")),
    ]
    assert len({key(subject) for subject in [vllm(KNOWN), *others]}) == 4
    assert key(vllm(KNOWN)) == key(vllm(replace(UNKNOWN, key=KNOWN.key)))


def test_hundreds_of_cards_have_different_ids() -> None:
    cards = [shown(vllm(replace(KNOWN, key=EngineKey("m", str(number))))) for number in range(300)]
    assert len({card.all("article")[0].attributes["id"] for card in cards}) == 300


def test_the_figures_of_a_vllm_are_named() -> None:
    assert shown(vllm(KNOWN)).figures() == {
        "Prefill, server": "2,303 tok/s",
        "Decode, server": "812.6 tok/s",
        "First token, p50": "0.254 s",
        "Inter-token, p99": "≤ 0.01 s",
        "Since last token": "0.4 s",
        "Room for more requests": DASH,
    }


def test_room_for_more_requests_is_shown_with_what_it_counts() -> None:
    card = shown(vllm(replace(KNOWN, load=Load(24.0, 17.0, kv_cache_headroom_requests=12.0))))
    assert card.figures()["Room for more requests"] == "12"
    titles = [element.attributes["title"] for element in card.all("div") if "title" in element.attributes]
    assert titles == ["how many more requests fit into the KV cache until they finish, beyond those that run and wait"]


def test_unknown_figures_are_dashes() -> None:
    assert set(shown(vllm(UNKNOWN)).figures().values()) == {DASH}


def test_queue_and_cache_are_charts_with_what_they_show_in_words() -> None:
    card = shown(vllm(replace(KNOWN, load=Load(24.0, 17.0, kv_cache_usage_ratio=0.93)), TRACK))
    charts = [chart.attributes["aria-label"] for chart in card.all("svg", "chart")]
    assert charts == [
        "requests over the last 10 min: 24 running now, at most 24; 17 waiting now, at most 50",
        "KV cache over the last 10 min: 93 % now, at most 25 %",
    ]
    assert card.texts("figcaption") == ["Requestsrunning 24waiting 17", "KV cachein use 93 %"]
    assert card.texts("div", "scale") == ["500", "100 %0"]
    assert card.texts("div", "times") == ["10 min agonow"] * 2


def test_an_axis_of_requests_ends_at_one_at_least() -> None:
    idle = Track(running=[0.0] * HISTORY_SLOTS, waiting=[0.0] * HISTORY_SLOTS, kv_cache=[0.0] * HISTORY_SLOTS)
    assert shown(vllm(KNOWN, idle)).texts("div", "scale")[0] == "10"


def test_without_a_history_there_is_no_chart() -> None:
    assert shown(vllm(KNOWN)).all("figure") == []


def test_a_model_of_an_ollama_is_shown_with_where_it_is_and_how_it_is_probed() -> None:
    card = shown(ollama())
    assert card.figures() == {
        "First token": "0.412 s",
        "In memory": "12.40 GB",
        "Context": "8,192 tokens",
        "Unloads": "in 1m 08:01:00 UTC",
        "Probes": "7",
        "Newest probe": "answered",
        "Measured": "3m 5s ago",
    }
    assert "share of the model on the GPU: 82 %" in [bar.attributes["aria-label"] for bar in card.all("svg")]


def test_the_result_of_the_newest_probe_is_shown() -> None:
    for probe, probed, text in (
        (None, True, "none yet"),
        (ProbeRecord(probes=1, success=False), True, "failed"),
        (ProbeRecord(probes=1, success=True), True, "answered"),
        (None, False, "off"),
    ):
        assert shown(ollama(probe=probe, probed=probed)).figures()["Newest probe"] == text, (probe, probed)


def test_the_age_of_an_ollamas_numbers_is_shown_even_if_the_newest_probe_has_failed() -> None:
    figures = shown(ollama(probe=replace(PROBE, success=False))).figures()
    assert (figures["Newest probe"], figures["Measured"]) == ("failed", "3m 5s ago")


def test_unknown_numbers_have_no_age() -> None:
    for engine, aged in (
        (EngineSnapshot(KNOWN.key), False),
        (EngineSnapshot(KNOWN.key, Phases(prefill_tokens_per_second=1.0)), True),
        (EngineSnapshot(KNOWN.key, Phases(decode_tokens_per_second=1.0)), True),
        (EngineSnapshot(KNOWN.key, latencies=Latencies(Distribution(mean=1.0))), True),
    ):
        assert (shown(replace(ollama(), engine=engine)).figures()["Measured"] != DASH) == aged, engine


def test_a_model_of_an_ollama_whose_requests_are_seen_is_shown_with_what_users_get() -> None:
    phases = Phases(decode_throughput_tokens_per_second=61.5, decode_streams=1.9)
    engine = EngineSnapshot(KNOWN.key, phases, measurement_source=MeasurementSource.TRAFFIC)
    figures = shown(replace(ollama(), engine=engine)).figures()
    assert figures["Measured"] == "users' requests"
    assert (figures["Decode, server"], figures["Streams in decode"]) == ("61.5 tok/s", "1.9")
    assert "Decode, server" not in shown(ollama()).figures()


def test_a_server_that_does_not_time_tokens_is_shown_without_their_latencies() -> None:
    names = [*shown(replace(vllm(KNOWN), target=replace(UP, backend="llamacpp"))).figures()]
    assert names == [
        "Prefill, server",
        "Decode, server",
        "Streams in decode",
        "Context of a request",
        "Since last token",
    ]


def test_a_model_partly_on_the_cpu_is_advised_about_that_while_no_queue_needs_advice() -> None:
    for state, partial in (
        (None, True),
        (SaturationState.IDLE, True),
        (SaturationState.HEALTHY, True),
        (SaturationState.STUCK, False),
    ):
        card = shown(replace(ollama(gpu_ratio=0.82), engine=EngineSnapshot(KNOWN.key, state=state)))
        assert (card.texts("p", "state") == [FINDINGS["partial_offload"].title]) == partial, state


def test_a_model_that_is_partly_on_the_cpu_gets_advice_about_that() -> None:
    for gpu_ratio, advised in ((0.82, True), (1.0, False), (0.0, False), (None, False)):
        advice = FINDINGS["partial_offload"]
        assert shown(ollama(gpu_ratio=gpu_ratio)).texts("p", "state") == ([advice.title] if advised else []), gpu_ratio


def test_facts_that_an_ollama_does_not_report_are_dashes() -> None:
    bare = Card(OLLAMA, EngineSnapshot(EngineKey("m", None)), ModelSnapshot("m", loaded=1.0), None, probed=True)
    figures = shown(bare).figures()
    assert (figures["In memory"], figures["Context"], figures["Unloads"]) == (DASH, DASH, DASH)


def test_hostile_names_are_text() -> None:
    hostile = replace(KNOWN, key=EngineKey(HOSTILE, HOSTILE))
    card = shown(replace(vllm(hostile), target=replace(UP, name=HOSTILE)))
    assert card.texts("h3") == [HOSTILE]
    assert card.texts("p", "from") == [f"{HOSTILE}, engine {HOSTILE}"]
    assert {element.tag for element in card.elements}.isdisjoint({"script", "img"})
    assert escape(HOSTILE) in "".join(render_card(vllm(hostile), MOMENT, 1))
