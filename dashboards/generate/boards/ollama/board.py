"""Ollama: which models are in memory and where, how fast they are, and what the probes found."""

from typing import Final

from dashboards.generate.boards.ollama.memory import KEPT_SECONDS, NOTHING_LOADED, UNTOLD, memory
from dashboards.generate.boards.ollama.probes import FAILING, NO_PROBE, PROBE, last_success_age, probe_sections
from dashboards.generate.model import (
    Board,
    Column,
    Lines,
    Override,
    Panel,
    Query,
    Section,
    Shown,
    Steps,
    Table,
    Tile,
    Timeline,
    Variable,
)
from dashboards.generate.pack import (
    CARE,
    DECODE_SHARE,
    GOOD,
    INSTANCE,
    JOB,
    MODEL_NAME,
    NEUTRAL,
    OF_EXPORTER,
    OF_MODEL,
    OF_TARGET,
    board,
    of_model,
    of_target,
    threshold,
)
from dashboards.generate.states import DOWN, STATES

_TARGET: Final = Variable("target", "Target", f'llm_target_up{{{OF_EXPORTER}, backend="ollama"}}')
_MODEL: Final = Variable("model_name", "Model", f"llm_model_loaded{{{OF_TARGET}}}")

_PARTLY: Final = threshold("model_gpu_ratio")
_ON_GPU: Final[Steps] = ((None, NEUTRAL), (0.001, CARE), (_PARTLY, GOOD))
"""A model on the CPU alone is what somebody wanted, or there is no device for it."""

_NO_CEILING: Final = "No probe answered in this time, or no device is known: set device: {name: ...}"


def ollama() -> Board:
    """The board of Ollama servers."""
    return board(
        "phasewatch-ollama",
        "Which models are in memory, are they on the GPU, how fast are they, and do the probes do no harm?",
        Section("Now", (*_tiles(), _in_memory(), _residency())),
        Section("Speed, as probes measure it", _speeds()),
        Section("Memory and loads", memory()),
        *probe_sections(),
        Section("Models on disk", (_on_disk(),), closed=True),
        variables=(JOB, INSTANCE, _TARGET, _MODEL),
    )


def _of_ollama(name: str, **labels: str) -> str:
    return of_model(name, backend="ollama", **labels)


def _tiles() -> tuple[Tile, ...]:
    return (
        Tile(
            title="Servers",
            description=(
                "Whether every chosen Ollama answers. Down: it does not run, or its address is not right from where the exporter "
                "runs; the board Exporter has the reason of each failed scrape."
            ),
            queries=(Query(f"min({of_target('llm_target_up', backend='ollama')})"),),
            empty="No Ollama chosen or known",
            mappings={"1": Shown("Up", GOOD), "0": STATES[DOWN]},
            steps=((None, STATES["idle"].colour),),
            filled=True,
        ),
        Tile(
            title="In memory",
            description=(
                "Models that answer without being loaded first. 0 is an idle server: the next request waits for a load. One that "
                "always has as many as OLLAMA_MAX_LOADED_MODELS allows, or as fit, pushes one out for each other that is asked for."
            ),
            queries=(Query(f"sum({of_model('llm_model_loaded')})"),),
            decimals=0,
            minimum=0,
            empty=UNTOLD,
        ),
        Tile(
            title="On the GPU",
            description=(
                "Of the models in memory, the one with the smallest part on the devices. Below 100 % the CPU sets the pace of every "
                "token: use a smaller quantisation or context (num_ctx), lower OLLAMA_NUM_PARALLEL, or unload others. 0 %: a model "
                "on the CPU alone."
            ),
            queries=(Query(f"min({of_model('llm_model_gpu_ratio')})"),),
            unit="percentunit",
            decimals=0,
            minimum=0,
            maximum=1,
            steps=_ON_GPU,
            empty="Nothing in memory, or not told",
        ),
        *FAILING,
    )


def _in_memory() -> Table:
    expiry = of_model("llm_model_expiry_timestamp_seconds")
    columns = (
        Column("target", "Target", width=150),
        Column("model_name", "Model"),
        Column("size", "Size", unit="decbytes", decimals=1, width=90),
        Column("gpu", "On the GPU", unit="percentunit", decimals=0, width=150, steps=_ON_GPU, bar=True),
        Column("context", "Context", unit="none", decimals=0, width=90),
        Column("left", "Unloaded in", unit="s", width=110, mappings={str(KEPT_SECONDS): Shown("never")}),
        Column("prefill", "Prefill tok/s", unit="none", decimals=0, width=110),
        Column("decode", "Decode tok/s", unit="none", decimals=1, width=110),
        Column("decode_share", "of its ceiling", unit="percentunit", decimals=0, width=110, steps=DECODE_SHARE),
        Column("probe", "Newest probe", width=120, mappings=PROBE),
        Column("age", "Newest numbers", unit="s", width=130),
    )
    return Table(
        title="Models in memory",
        description=(
            "A row for each model in memory. On the GPU: green is all of it; yellow is a part, so that the CPU sets the pace; 0 % is a "
            "model on the CPU alone. Unloaded in: time left if nobody asks for it again; below 0 a request runs for longer than the "
            "keep-alive. Speeds are those of the newest valid probe; an empty cell: none has answered yet, or the newest is too old. "
            "Newest numbers: how long ago a probe last gave some."
        ),
        queries=(
            Query(f"{of_model('llm_model_loaded')} == 1", name="loaded"),
            Query(of_model("llm_model_bytes"), name="size"),
            Query(of_model("llm_model_gpu_ratio"), name="gpu"),
            Query(of_model("llm_model_context_length_tokens"), name="context"),
            Query(f"clamp_max({expiry} - time(), {KEPT_SECONDS})", name="left"),
            Query(_of_ollama("llm_prefill_tokens_per_second"), name="prefill"),
            Query(_of_ollama("llm_decode_tokens_per_second"), name="decode"),
            Query(_of_ollama("llm_decode_ceiling_ratio", basis="read"), name="decode_share"),
            Query(of_model("llm_probe_success"), name="probe"),
            Query(f"{last_success_age()} and {of_model('llm_model_loaded')} == 1", name="age"),
        ),
        columns=columns,
        width=24,
        height=6,
        empty=f"{UNTOLD} in memory: nothing is loaded, it is down or late, or none is chosen",
    )


def _residency() -> Timeline:
    partly = f"2 + 0 * (llm_model_gpu_ratio{{{OF_MODEL}}} > 0 < {_PARTLY:g})"
    loaded = f"llm_model_loaded{{{OF_MODEL}}}"
    in_this_time = f"max by (target, model_name) (max_over_time({loaded}[$__range] @ end())) == 1"
    return Timeline(
        title="Loaded or on disk",
        description=(
            "Models that were in memory in the shown time. Blue: on the devices, or on the CPU alone; yellow: partly on the CPU; grey: "
            "on disk, so that the next request waits for a load. Short blue pieces again and again are cold loads: give the model a "
            "longer keep-alive (OLLAMA_KEEP_ALIVE), or let more models stay. A gap: the server did not answer, or not in time."
        ),
        queries=(
            Query(f"max by (target, model_name) (\n  {partly}\n  or {loaded}\n)\nand {in_this_time}", MODEL_NAME),
        ),
        width=24,
        height=6,
        mappings={"0": Shown("On disk", "#6e7687"), "1": STATES["in_memory"], "2": Shown("Partly on the CPU", CARE)},
        empty=NOTHING_LOADED,
    )


def _speeds() -> tuple[Panel, ...]:
    ceiling = _of_ollama("llm_decode_ceiling_tokens_per_second", basis="read")
    return (
        Lines(
            title="Decode, one stream",
            description=(
                "Tokens per second after the first, and dashed what memory bandwidth allows. For a model that is partly on the CPU the "
                "ceiling is the mixed one: its times on the devices and in the host's memory add, and the slower part is most of it. "
                "Far below the ceiling: other users at the same time, or a device that is slowed down."
            ),
            queries=(
                Query(_of_ollama("llm_decode_tokens_per_second"), MODEL_NAME),
                Query(ceiling, f"{MODEL_NAME} ceiling", name="ceiling"),
            ),
            width=12,
            height=8,
            unit="suffix: tok/s",
            logarithmic=10,
            empty=NO_PROBE,
            overrides=(
                Override(
                    {"custom.lineStyle": {"fill": "dash", "dash": [6, 6]}, "custom.fillOpacity": 0}, query="ceiling"
                ),
            ),
        ),
        Lines(
            title="Decode, percent of its ceiling",
            description=(
                "Speed of one stream / what memory bandwidth allows (basis read). Half and more is good on most devices; small models "
                "are limited by the launch of each step and stay far lower. Needs the device, and for a model that is partly on the "
                "CPU device.cpu_memory_bandwidth as well. Above 100 % a fact is wrong."
            ),
            queries=(Query(_of_ollama("llm_decode_ceiling_ratio", basis="read"), MODEL_NAME),),
            width=12,
            height=8,
            unit="percentunit",
            minimum=0,
            empty=_NO_CEILING,
        ),
        Lines(
            title="Prefill",
            description=(
                "Prompt tokens read per second. With probes of two lengths what a request costs whatever its length is left out. Far "
                "lower than usual: other users at the same time, or layers that went to the CPU. There is no ceiling of prefill for an "
                "Ollama."
            ),
            queries=(Query(_of_ollama("llm_prefill_tokens_per_second"), MODEL_NAME),),
            width=12,
            height=8,
            unit="suffix: tok/s",
            minimum=0,
            empty=NO_PROBE,
        ),
        Lines(
            title="Time to first token",
            description=(
                "Of the newest probe, a prompt of about 200 tokens, with its wait behind other requests; the load of a model is not in it. "
                "Seconds beside a short prefill: it had to queue, as users do; raise OLLAMA_NUM_PARALLEL if there is memory for it."
            ),
            queries=(Query(_of_ollama("llm_time_to_first_token_mean_seconds"), MODEL_NAME),),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            empty=NO_PROBE,
        ),
    )


def _on_disk() -> Table:
    info = f'llm_model_info{{{OF_MODEL}, backend="ollama"}}'
    labels = "target, model_name, parameter_size, quantization, family, digest"
    return Table(
        title="Models",
        description="Every model that the servers have, and whether it is in memory now. Models that run elsewhere (cloud) are not shown.",
        queries=(
            Query(f'max by ({labels}) (label_replace({info}, "digest", "$1", "digest", "(.{{12}}).*"))', name="info"),
            Query(of_model("llm_model_loaded"), name="loaded"),
        ),
        columns=(
            Column("target", "Target", width=150),
            Column("model_name", "Model"),
            Column("loaded", "Where", width=120, mappings={"1": STATES["in_memory"], "0": Shown("On disk", "#6e7687")}),
            Column("parameter_size", "Parameters", width=110),
            Column("quantization", "Quantization", width=120),
            Column("family", "Family", width=120),
            Column("digest", "Digest", width=140),
        ),
        width=24,
        height=8,
        empty=f"{UNTOLD}: down, late, without models, or none is chosen",
    )
