"""Ollama: speeds and load of users' requests, where the llama-servers of its models are seen."""

from typing import Final

from dashboards.generate.boards.ollama.queries import NO_MODEL_IN_MEMORY, TRAFFIC, select_ollama_models
from dashboards.generate.colours import GOOD
from dashboards.generate.model import TOKENS_PER_SECOND, Query, StateTimeline, TimeSeries, ValueMapping
from dashboards.generate.overrides import UNFILLED, dash_limit, extend_axis
from dashboards.generate.queries import MODEL_LEGEND

SOURCES: Final = {"1": ValueMapping("Users", GOOD), "0": ValueMapping("Probes", "#3d71d9")}
"""Values of llm_measurement_source{source="traffic"}."""

_UNSEEN: Final = "No requests of users are seen: docs/ollama.md, Real traffic"
_IDLE: Final = "Nothing was decoded, or no requests of users are seen"


def build_traffic() -> tuple[StateTimeline | TimeSeries, ...]:
    """Source of the figures, both phases of users' requests, requests at once, and memory bandwidth."""
    decode = select_ollama_models("llm_decode_tokens_per_second")
    ceiling = select_ollama_models("llm_decode_ceiling_tokens_per_second", basis="read")
    return (
        StateTimeline(
            title="Where the figures come from",
            description=(
                "Green: users' requests, read from the llama-server that Ollama runs for the model. Blue: probes, because nobody "
                "has used the model for a while or its llama-server is not seen. A gap: no figures. Never compare speeds across a "
                "change of colour: a probe is a lone stream."
            ),
            queries=(Query(select_ollama_models("llm_measurement_source", source="traffic"), MODEL_LEGEND),),
            width=24,
            height=5,
            mappings=SOURCES,
            no_value=NO_MODEL_IN_MEMORY,
        ),
        _build_chart(
            "Decode of users, one stream",
            (
                "Mean tokens per second that one user gets, over the window, and dashed what memory bandwidth allows at the present "
                "batch and context. It falls as streams are added, and while prompts of others are read: then all streams stand still."
            ),
            Query(f"{decode}\n{TRAFFIC}", MODEL_LEGEND, "speed"),
            Query(f"{ceiling}\n{TRAFFIC}", f"{MODEL_LEGEND} ceiling", "ceiling"),
            unit=TOKENS_PER_SECOND,
            no_value=_IDLE,
            limit="ceiling",
        ),
        _build_chart(
            "Decode of users, throughput",
            (
                "Generated tokens per second, all streams of a model together, the first of each answer included. Exact with "
                "LLAMA_ARG_ENDPOINT_METRICS=1 in Ollama's environment; without it 1 to 7 % off, the more the shorter answers are."
            ),
            Query(f"{select_ollama_models('llm_decode_throughput_tokens_per_second')}\n{TRAFFIC}", MODEL_LEGEND),
            unit=TOKENS_PER_SECOND,
        ),
        _build_chart(
            "Prefill of users, throughput",
            (
                "Prompt tokens computed per second, without those from the prompt cache. Long prompts that begin alike and are "
                "computed again and again: more slots than conversations, or a cache that is too small (LLAMA_ARG_CACHE_RAM)."
            ),
            Query(f"{select_ollama_models('llm_prefill_throughput_tokens_per_second')}\n{TRAFFIC}", MODEL_LEGEND),
            unit=TOKENS_PER_SECOND,
        ),
        _build_chart(
            "Requests at once",
            (
                "Requests that run now, and the mean number of streams in decode. At the number of slots (OLLAMA_NUM_PARALLEL, 1 by "
                "default) for long: others wait in Ollama's own queue, which nothing shows. Raise it if the model stays on the GPU."
            ),
            Query(f"{select_ollama_models('llm_requests_running')}\n{TRAFFIC}", f"{MODEL_LEGEND} running", "running"),
            Query(f"{select_ollama_models('llm_decode_streams')}\n{TRAFFIC}", f"{MODEL_LEGEND} decoding", "streams"),
        ),
        _build_chart(
            "Memory bandwidth used",
            (
                "MBU: steps per second x bytes that a step reads / memory bandwidth. 50 to 80 % is what good servers reach under load; "
                "low under load: prompts, small models whose steps cost more to launch than to read, or layers on the CPU."
            ),
            Query(
                f"{select_ollama_models('llm_memory_bandwidth_utilization_ratio', source='derived')}\n{TRAFFIC}",
                MODEL_LEGEND,
            ),
            unit="percentunit",
            no_value="No requests of users are seen, or no device is known: set device: {name: ...}",
        ),
        _build_chart(
            "Context of a running request",
            (
                "Mean tokens that a running request holds. Near the context that the model was loaded with, Ollama cuts prompts or "
                "answers end early: ask for a longer one (num_ctx), or shorten conversations."
            ),
            Query(f"{select_ollama_models('llm_context_tokens')}\n{TRAFFIC}", MODEL_LEGEND),
            unit="suffix: tok",
            no_value="Nothing ran, or no requests of users are seen",
        ),
    )


def _build_chart(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    no_value: str = _UNSEEN,
    limit: str | None = None,
) -> TimeSeries:
    """A chart of a third of the width; `limit` is the query that is drawn dashed."""
    return TimeSeries(
        title=title,
        description=description,
        queries=queries,
        width=8,
        height=8,
        unit=unit,
        minimum=0,
        overrides=(extend_axis(1),) if limit is None else (UNFILLED, dash_limit(limit)),
        no_value=no_value,
    )
