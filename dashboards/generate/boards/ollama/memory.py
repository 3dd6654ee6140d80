"""The part of the board Ollama that is about memory: what models take, where they are, and how often they are loaded."""

from typing import Final

from dashboards.generate.model import Lines, Panel, Query
from dashboards.generate.pack import BAD, CARE, GOOD, MODEL_NAME, OF_MODEL, of_model, threshold

UNTOLD: Final = "No Ollama tells of a model"
"""None is chosen, it is down, its inventory is late, or it has no models."""
NOTHING_LOADED: Final = "No Ollama told of a model in memory in this time"

KEPT_SECONDS: Final = 3_000_000_000
"""More than is left to any model that is not kept for ever, of which the server says some 292 years."""


def memory() -> tuple[Panel, ...]:
    """How much memory the models take, where, and how often they have to be loaded."""
    on_devices, everywhere = of_model("llm_model_vram_bytes"), of_model("llm_model_bytes")
    expiry = of_model("llm_model_expiry_timestamp_seconds")
    return (
        Lines(
            title="Memory of the models",
            description=(
                "What each model takes with the KV cache of all its slots, stacked: its part on the devices, and what is left for the "
                "host's memory. Anything in the host's memory is read by the CPU and slows down every token."
            ),
            queries=(
                Query(on_devices, f"{MODEL_NAME} on devices"),
                Query(f"{everywhere} - {on_devices} > 0", f"{MODEL_NAME} in host memory"),
            ),
            width=8,
            height=8,
            unit="decbytes",
            minimum=0,
            stacked=True,
            empty=NOTHING_LOADED,
        ),
        Lines(
            title="Share on the GPU",
            description=(
                "Bytes on the devices / all bytes of the model. Below the dashed line a part is on the CPU and the alert "
                "LLMModelPartlyOnCpu follows. It changes with the context that a user asks for, and with what else is loaded."
            ),
            queries=(Query(of_model("llm_model_gpu_ratio"), MODEL_NAME),),
            width=8,
            height=8,
            unit="percentunit",
            minimum=0,
            maximum=1,
            steps=((None, CARE), (threshold("model_gpu_ratio"), GOOD)),
            marked=True,
            empty=NOTHING_LOADED,
        ),
        Lines(
            title="Time until unloaded",
            description=(
                "Seconds until the model leaves memory if nobody asks for it again. Each request sets it back to the keep-alive; a line that "
                "runs down to 0 is a model that is about to leave. Below 0: a request runs for longer than the keep-alive. Models "
                "that are kept for ever are not shown."
            ),
            queries=(Query(f"{expiry} - time() < {KEPT_SECONDS}", MODEL_NAME),),
            width=8,
            height=8,
            unit="s",
            empty="Nothing in memory, or kept for ever",
        ),
        Lines(
            title="Loads in an hour",
            description=(
                "How often each model was loaded in the hour before. Each load lets a request wait. Above the dashed line the alert "
                "LLMColdLoadsFrequent follows: a longer keep-alive (OLLAMA_KEEP_ALIVE), or more models at once "
                "(OLLAMA_MAX_LOADED_MODELS) if they fit. A model that is never in memory stays at 0."
            ),
            queries=(Query(_loads("1h"), MODEL_NAME),),
            width=12,
            height=8,
            unit="none",
            decimals=0,
            minimum=0,
            steps=((None, GOOD), (threshold("cold_loads_per_hour"), BAD)),
            marked=True,
            empty=f"{UNTOLD} in this time, or in the hour before",
        ),
        Lines(
            title="Duration of a load",
            description=(
                "How long the newest load took that a probe has seen: one that the configuration allows (load: true), or one that a "
                "probe caused. Loads by users cannot be timed. It is what a user waits for a model on disk: a faster disk or a "
                "smaller model shortens it."
            ),
            queries=(Query(of_model("llm_model_load_duration_seconds"), MODEL_NAME),),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            empty="No probe has loaded a model: users' loads cannot be timed",
        ),
    )


def _loads(over: str) -> str:
    """Loads of each model: changes to 1. Of the changes to 1 and to 0, which alternate, that is half, and more if the last was one."""
    loaded = f"llm_model_loaded{{{OF_MODEL}}}[{over}]"
    return f"max by (target, model_name) (floor((changes({loaded}) + last_over_time({loaded})) / 2))"
