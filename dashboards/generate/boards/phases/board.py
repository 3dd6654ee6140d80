"""Phases: prefill and decode side by side, and which wall of the hardware is near."""

from dashboards.generate.boards.phases.facts import facts, missing
from dashboards.generate.boards.phases.latency import first_token, inter_token
from dashboards.generate.boards.phases.speeds import context, speeds, steps
from dashboards.generate.model import Bars, Board, Lines, Query, Section, Steps
from dashboards.generate.pack import (
    DECODE,
    DECODE_SHARE,
    ENGINE_NAME,
    NEUTRAL,
    PREFILL,
    UNFILLED,
    UTILIZATION,
    board,
    of_engine,
    shades,
    utilization,
)

_EMPTY = "Idle, down, or a fact is missing"
_MFU, _MBU = "MFU", "MBU"


def phases() -> Board:
    """The board for how fast each phase is, and what limits it."""
    return board(
        "phasewatch-phases",
        "Prefill is limited by compute and decode by memory bandwidth: which wall is near, and what does a user feel?",
        Section("Which wall is near", (*_shares(), *_roofline(), missing(), facts())),
        Section("Prefill and decode", speeds()),
        Section("Time to the first token", first_token()),
        Section("Time between tokens", inter_token()),
        Section("Steps of the engine", steps()),
        Section("Context", context()),
    )


def _bars(title: str, description: str, expr: str, *, height: int = 6, colours: Steps = UTILIZATION) -> Bars:
    return Bars(
        title=title,
        description=description,
        queries=(Query(expr, ENGINE_NAME),),
        width=6,
        height=height,
        unit="percentunit",
        decimals=0,
        minimum=0,
        maximum=1,
        steps=colours,
        empty=_EMPTY,
    )


def _shares() -> tuple[Bars, ...]:
    return (
        _bars(
            "Prefill of ceiling",
            (
                "Speed at which one prompt is read / what compute allows. Matrix products reach 50 to 87 % of published "
                "rates, so hope for no more. It falls when prompts are read together or beside decoding streams, since each counts the whole time. Low "
                "while alone: short prompts, or something else than compute."
            ),
            of_engine("llm_prefill_ceiling_ratio"),
        ),
        _bars(
            "Decode of ceiling, read",
            (
                "Speed of one stream / what memory bandwidth allows at the present batch and context. Half and more is good "
                "on most devices. Yellow, below the threshold of the alert: prompts in the steps, a small model, or a slow "
                "device. Above 100 %: speculation, a mixture of experts, or a wrong fact."
            ),
            of_engine("llm_decode_ceiling_ratio", basis="read"),
            colours=DECODE_SHARE,
        ),
        _bars(
            "Memory bandwidth, MBU",
            (
                "Model bandwidth utilization: engine steps per second x bytes per step / bandwidth, idle time included. Good "
                "engines reach 50 to 80 % under load; there decode gets no faster without smaller weights, fewer or shorter "
                "streams, or more bandwidth."
            ),
            utilization("llm_memory_bandwidth_utilization_ratio"),
        ),
        _bars(
            "Compute, MFU",
            (
                "Model FLOPs utilization: operations that the tokens took / what the devices can do, idle time included. Low "
                "is right while only decode runs. 50 to 87 % is all that real devices give; there prefill gets no faster "
                "without shorter prompts, prefix caching, or more devices."
            ),
            utilization("llm_compute_utilization_ratio"),
        ),
    )


def _roofline() -> tuple[Lines | Bars, ...]:
    mbu = utilization("llm_memory_bandwidth_utilization_ratio")
    mfu = utilization("llm_compute_utilization_ratio")
    return (
        Lines(
            title="Memory and compute in use",
            description=(
                "Purple is memory bandwidth (MBU), the wall of decode; blue is compute (MFU), the wall of prefill. The one "
                "near 100 % limits the server. Both low under load: requests are few, or steps are held up by something "
                "else, such as the CPU that starts them."
            ),
            queries=(Query(mbu, f"MBU {ENGINE_NAME}", _MBU), Query(mfu, f"MFU {ENGINE_NAME}", _MFU)),
            width=9,
            height=7,
            unit="percentunit",
            minimum=0,
            overrides=(UNFILLED, shades(_MBU, DECODE), shades(_MFU, PREFILL)),
            empty=_EMPTY,
        ),
        Lines(
            title="Balance of the two, MFU / MBU",
            description=(
                "Below the dashed line memory is the nearer wall, as decode makes it: smaller weights and caches help, and a "
                "larger batch costs little. Above it compute is, as prefill makes it: prefix caching, shorter prompts or "
                "more devices help."
            ),
            queries=(Query(f"{mfu}\n/ ({mbu} > 0) > 0", ENGINE_NAME),),
            width=9,
            height=7,
            decimals=2,
            logarithmic=10,
            steps=((None, NEUTRAL), (1, NEUTRAL)),
            marked=True,
            overrides=(UNFILLED,),
            empty=_EMPTY,
        ),
        _bars(
            "Decode, weights alone",
            (
                "Speed of one stream / what it could be with the device to itself: a fixed mark, the same for every load. It "
                "falls as batches and contexts grow, which is no fault. Low here and high in basis read: the device is at its limit "
                "with this load; fewer streams, shorter contexts, smaller weights, or more bandwidth."
            ),
            of_engine("llm_decode_ceiling_ratio", basis="weights"),
            height=7,
        ),
    )
