"""Ollama: the models, and where they are."""

from typing import Final

from dashboards.generate.boards.ollama.probes import PROBE_RESULTS
from dashboards.generate.boards.ollama.queries import (
    KEEP_FOREVER_SECONDS,
    LAST_SUCCESS_AGE_IN_MEMORY,
    NO_MODEL,
    NO_MODEL_IN_MEMORY,
    select_ollama_models,
)
from dashboards.generate.boards.ollama.traffic import SOURCES
from dashboards.generate.colours import DECODE_SHARE, GOOD, GREY, NEUTRAL, WARNING
from dashboards.generate.model import RANGE, Column, Query, Stat, StateTimeline, Table, Thresholds, ValueMapping
from dashboards.generate.queries import BY_MODEL, MODEL_LEGEND, MODEL_MATCHERS, select_models, select_targets
from dashboards.generate.states import IN_MEMORY, STATES, UP
from dashboards.generate.thresholds import read_threshold

_WHOLE_ON_GPU: Final = read_threshold("model_gpu_ratio")
# 0 is not coloured: a model on the CPU alone is deliberate, or there is no device for it.
_ON_GPU: Final[Thresholds] = ((None, NEUTRAL), (0.001, WARNING), (_WHOLE_ON_GPU, GOOD))
_ON_DISK: Final = ValueMapping("On disk", GREY)


def build_model_stats() -> tuple[Stat, ...]:
    """Servers, models in memory, and the smallest share on the devices."""
    return (
        Stat(
            title="Servers",
            description=(
                "Whether every chosen Ollama answers. Down: it does not run, or its address is not right from where the exporter "
                "runs; the board Exporter has the reason of each failed scrape."
            ),
            queries=(Query(f"min({select_targets('llm_target_up', backend='ollama')})"),),
            no_value="No Ollama chosen or known",
            mappings=UP,
            thresholds=((None, GREY),),
            colour_background=True,
        ),
        Stat(
            title="In memory",
            description=(
                "Models that answer without being loaded first. 0 is an idle server: the next request waits for a load. One that "
                "always has as many as OLLAMA_MAX_LOADED_MODELS allows, or as fit, pushes one out for each other that is asked for."
            ),
            queries=(Query(f"sum({select_models('llm_model_loaded')})"),),
            decimals=0,
            minimum=0,
            no_value=NO_MODEL,
        ),
        Stat(
            title="On the GPU",
            description=(
                "Of the models in memory, the one with the smallest part on the devices. Below 100 % the CPU sets the pace of every "
                "token: use a smaller quantisation or context (num_ctx), lower OLLAMA_NUM_PARALLEL, or unload others. 0 %: a model "
                "on the CPU alone."
            ),
            queries=(Query(f"min({select_models('llm_model_gpu_ratio')})"),),
            unit="percentunit",
            decimals=0,
            minimum=0,
            maximum=1,
            thresholds=_ON_GPU,
            no_value="Nothing in memory, or not told",
        ),
    )


def build_models_in_memory() -> Table:
    """Size, place, speed and probes of each model in memory."""
    expiry = select_models("llm_model_expiry_timestamp_seconds")
    columns = (
        Column("target", "Target", width=150),
        Column("model_name", "Model"),
        Column("size", "Size", unit="decbytes", decimals=1, width=90),
        Column("gpu", "On the GPU", unit="percentunit", decimals=0, width=150, thresholds=_ON_GPU, gauge=True),
        Column("context", "Context", decimals=0, width=90),
        Column("left", "Unloaded in", unit="s", width=110, mappings={str(KEEP_FOREVER_SECONDS): ValueMapping("never")}),
        Column("prefill", "Prefill tok/s", decimals=0, width=110),
        Column("decode", "Decode tok/s", decimals=1, width=110),
        Column("source", "Measured on", width=110, mappings=SOURCES),
        Column("decode_share", "of its ceiling", unit="percentunit", decimals=0, width=110, thresholds=DECODE_SHARE),
        Column("probe", "Newest probe", width=120, mappings=PROBE_RESULTS),
        Column("age", "Newest numbers", unit="s", width=130),
    )
    return Table(
        title="Models in memory",
        description=(
            "A row for each model in memory. On the GPU: green is all of it; yellow is a part, so that the CPU sets the pace; 0 % is a "
            "model on the CPU alone. Unloaded in: time left if nobody asks for it again; below 0 a request runs for longer than the "
            "keep-alive. Speeds are those of users' requests over the window, where they are seen, or of the newest valid probe; Measured on says which. An empty cell: nothing was decoded, or no probe has answered yet. "
            "Newest numbers: how long ago a probe last gave some."
        ),
        queries=(
            Query(f"{select_models('llm_model_loaded')} == 1", ref_id="loaded"),
            Query(select_models("llm_model_bytes"), ref_id="size"),
            Query(select_models("llm_model_gpu_ratio"), ref_id="gpu"),
            Query(select_models("llm_model_context_length_tokens"), ref_id="context"),
            Query(f"clamp_max({expiry} - time(), {KEEP_FOREVER_SECONDS})", ref_id="left"),
            Query(select_ollama_models("llm_prefill_tokens_per_second"), ref_id="prefill"),
            Query(select_ollama_models("llm_decode_tokens_per_second"), ref_id="decode"),
            Query(select_ollama_models("llm_decode_ceiling_ratio", basis="read"), ref_id="decode_share"),
            Query(select_ollama_models("llm_measurement_source", source="traffic"), ref_id="source"),
            Query(select_models("llm_probe_success"), ref_id="probe"),
            Query(LAST_SUCCESS_AGE_IN_MEMORY, ref_id="age"),
        ),
        columns=columns,
        width=24,
        height=6,
        no_value=f"{NO_MODEL} in memory: nothing is loaded, it is down or late, or none is chosen",
    )


def build_residency() -> StateTimeline:
    """When each model was in memory."""
    partly = f"2 + 0 * (llm_model_gpu_ratio{{{MODEL_MATCHERS}}} > 0 < {_WHOLE_ON_GPU:g})"
    loaded = f"llm_model_loaded{{{MODEL_MATCHERS}}}"
    in_this_time = f"max by ({BY_MODEL}) (max_over_time({loaded}[{RANGE}] @ end())) == 1"
    return StateTimeline(
        title="Loaded or on disk",
        description=(
            "Models that were in memory in the shown time. Blue: on the devices, or on the CPU alone; yellow: partly on the CPU; grey: "
            "on disk, so that the next request waits for a load. Short blue pieces again and again are cold loads: give the model a "
            "longer keep-alive (OLLAMA_KEEP_ALIVE), or let more models stay. A gap: the server did not answer, or not in time."
        ),
        queries=(Query(f"max by ({BY_MODEL}) (\n  {partly}\n  or {loaded}\n)\nand {in_this_time}", MODEL_LEGEND),),
        width=24,
        height=6,
        mappings={"0": _ON_DISK, "1": STATES[IN_MEMORY], "2": ValueMapping("Partly on the CPU", WARNING)},
        no_value=NO_MODEL_IN_MEMORY,
    )


def build_models_on_disk() -> Table:
    """All models of the servers."""
    info = f'llm_model_info{{{MODEL_MATCHERS}, backend="ollama"}}'
    labels = "target, model_name, parameter_size, quantization, family, digest"
    return Table(
        title="Models",
        description="Every model that the servers have, and whether it is in memory now. Models that run elsewhere (cloud) are not shown.",
        queries=(
            Query(f'max by ({labels}) (label_replace({info}, "digest", "$1", "digest", "(.{{12}}).*"))', ref_id="info"),
            Query(select_models("llm_model_loaded"), ref_id="loaded"),
        ),
        columns=(
            Column("target", "Target", width=150),
            Column("model_name", "Model"),
            Column("loaded", "Where", width=120, mappings={"1": STATES[IN_MEMORY], "0": _ON_DISK}),
            Column("parameter_size", "Parameters", width=110),
            Column("quantization", "Quantization", width=120),
            Column("family", "Family", width=120),
            Column("digest", "Digest", width=140),
        ),
        width=24,
        height=8,
        no_value=f"{NO_MODEL}: down, late, without models, or none is chosen",
    )
