"""Ollama: speeds as the probes measure them."""

from typing import Final

from dashboards.generate.boards.ollama.queries import NO_PROBE, PROBES, select_ollama_models
from dashboards.generate.model import TOKENS_PER_SECOND, Override, Query, TimeSeries
from dashboards.generate.queries import MODEL_LEGEND

_NO_CEILING: Final = "No probe answered in this time, or no device is known: set device: {name: ...}"


def build_speeds() -> tuple[TimeSeries, ...]:
    """Decode, prefill and time to first token of each model."""
    ceiling = _select_probed("llm_decode_ceiling_tokens_per_second", basis="read")
    return (
        TimeSeries(
            title="Decode, one stream",
            description=(
                "Tokens per second after the first, and dashed what memory bandwidth allows. For a model that is partly on the CPU the "
                "ceiling is the mixed one: its times on the devices and in the host's memory add, and the slower part is most of it. "
                "Far below the ceiling: other users at the same time, or a device that is slowed down."
            ),
            queries=(
                Query(_select_probed("llm_decode_tokens_per_second"), MODEL_LEGEND),
                Query(ceiling, f"{MODEL_LEGEND} ceiling", ref_id="ceiling"),
            ),
            width=12,
            height=8,
            unit=TOKENS_PER_SECOND,
            log_base=10,
            no_value=NO_PROBE,
            overrides=(
                Override(
                    {"custom.lineStyle": {"fill": "dash", "dash": [6, 6]}, "custom.fillOpacity": 0}, by_query="ceiling"
                ),
            ),
        ),
        TimeSeries(
            title="Decode, percent of its ceiling",
            description=(
                "Speed of one stream / what memory bandwidth allows (basis read). Half and more is good on most devices; small models "
                "are limited by the launch of each step and stay far lower. Needs the device, and for a model that is partly on the "
                "CPU device.cpu_memory_bandwidth as well. Above 100 % a fact is wrong."
            ),
            queries=(Query(_select_probed("llm_decode_ceiling_ratio", basis="read"), MODEL_LEGEND),),
            width=12,
            height=8,
            unit="percentunit",
            minimum=0,
            no_value=_NO_CEILING,
        ),
        TimeSeries(
            title="Prefill",
            description=(
                "Prompt tokens read per second. With probes of two lengths what a request costs whatever its length is left out. Far "
                "lower than usual: other users at the same time, or layers that went to the CPU. There is no ceiling of prefill for an "
                "Ollama."
            ),
            queries=(Query(_select_probed("llm_prefill_tokens_per_second"), MODEL_LEGEND),),
            width=12,
            height=8,
            unit=TOKENS_PER_SECOND,
            minimum=0,
            no_value=NO_PROBE,
        ),
        TimeSeries(
            title="Time to first token",
            description=(
                "Of the newest probe, a prompt of about 200 tokens, with its wait behind other requests; the load of a model is not in it. "
                "Seconds beside a short prefill: it had to queue, as users do; raise OLLAMA_NUM_PARALLEL if there is memory for it."
            ),
            queries=(Query(_select_probed("llm_time_to_first_token_mean_seconds"), MODEL_LEGEND),),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            no_value=NO_PROBE,
        ),
    )


def _select_probed(name: str, **labels: str) -> str:
    """A metric of the models whose figures come from probes."""
    return f"{select_ollama_models(name, **labels)}\n{PROBES}"
