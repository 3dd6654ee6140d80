"""Ollama: memory that models take, and how often and how slowly they are loaded."""

from dashboards.generate.boards.ollama.queries import KEEP_FOREVER_SECONDS, NO_MODEL, NO_MODEL_IN_MEMORY
from dashboards.generate.colours import BAD, GOOD, WARNING
from dashboards.generate.model import Query, TimeSeries
from dashboards.generate.queries import BY_MODEL, MODEL_LEGEND, MODEL_MATCHERS, select_models
from dashboards.generate.thresholds import read_threshold


def build_memory() -> tuple[TimeSeries, ...]:
    """Memory of each model, time until it is unloaded, and its loads."""
    on_devices, everywhere = select_models("llm_model_vram_bytes"), select_models("llm_model_bytes")
    expiry = select_models("llm_model_expiry_timestamp_seconds")
    return (
        TimeSeries(
            title="Memory of the models",
            description=(
                "What each model takes with the KV cache of all its slots, stacked: its part on the devices, and what is left for the "
                "host's memory. Anything in the host's memory is read by the CPU and slows down every token."
            ),
            queries=(
                Query(on_devices, f"{MODEL_LEGEND} on devices"),
                Query(f"{everywhere} - {on_devices} > 0", f"{MODEL_LEGEND} in host memory"),
            ),
            width=8,
            height=8,
            unit="decbytes",
            minimum=0,
            stacked=True,
            no_value=NO_MODEL_IN_MEMORY,
        ),
        TimeSeries(
            title="Share on the GPU",
            description=(
                "Bytes on the devices / all bytes of the model. Below the dashed line a part is on the CPU and the alert "
                "LLMModelPartlyOnCpu follows. It changes with the context that a user asks for, and with what else is loaded."
            ),
            queries=(Query(select_models("llm_model_gpu_ratio"), MODEL_LEGEND),),
            width=8,
            height=8,
            unit="percentunit",
            minimum=0,
            maximum=1,
            thresholds=((None, WARNING), (read_threshold("model_gpu_ratio"), GOOD)),
            show_thresholds=True,
            no_value=NO_MODEL_IN_MEMORY,
        ),
        TimeSeries(
            title="Time until unloaded",
            description=(
                "Seconds until the model leaves memory if nobody asks for it again. Each request sets it back to the keep-alive; a line that "
                "runs down to 0 is a model that is about to leave. Below 0: a request runs for longer than the keep-alive. Models "
                "that are kept for ever are not shown."
            ),
            queries=(Query(f"{expiry} - time() < {KEEP_FOREVER_SECONDS}", MODEL_LEGEND),),
            width=8,
            height=8,
            unit="s",
            no_value="Nothing in memory, or kept for ever",
        ),
        TimeSeries(
            title="Loads in an hour",
            description=(
                "How often each model was loaded in the hour before. Each load lets a request wait. Above the dashed line the alert "
                "LLMColdLoadsFrequent follows: a longer keep-alive (OLLAMA_KEEP_ALIVE), or more models at once "
                "(OLLAMA_MAX_LOADED_MODELS) if they fit. A model that is never in memory stays at 0."
            ),
            queries=(Query(_query_loads("1h"), MODEL_LEGEND),),
            width=12,
            height=8,
            unit="none",
            decimals=0,
            minimum=0,
            thresholds=((None, GOOD), (read_threshold("cold_loads_per_hour"), BAD)),
            show_thresholds=True,
            no_value=f"{NO_MODEL} in this time, or in the hour before",
        ),
        TimeSeries(
            title="Duration of a load",
            description=(
                "How long the newest load took that a probe has seen: one that the configuration allows (load: true), or one that a "
                "probe caused. Loads by users cannot be timed. It is what a user waits for a model on disk: a faster disk or a "
                "smaller model shortens it."
            ),
            queries=(Query(select_models("llm_model_load_duration_seconds"), MODEL_LEGEND),),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            no_value="No probe has loaded a model: users' loads cannot be timed",
        ),
    )


def _query_loads(time_range: str) -> str:
    """PromQL: loads of each model, which are transitions of llm_model_loaded from 0 to 1.

    changes() counts both directions, so halve its result, and round up if the series ends at 1.
    """
    loaded = f"llm_model_loaded{{{MODEL_MATCHERS}}}[{time_range}]"
    return f"max by ({BY_MODEL}) (floor((changes({loaded}) + last_over_time({loaded})) / 2))"
