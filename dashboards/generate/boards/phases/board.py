"""Phases: assembles the dashboard, with the panels on utilization of the hardware."""

from typing import Final

from dashboards.generate.boards.phases.facts import build_facts, build_missing_facts
from dashboards.generate.boards.phases.latency import build_first_token, build_inter_token
from dashboards.generate.boards.phases.requests import build_requests
from dashboards.generate.boards.phases.speeds import build_context, build_speeds, build_steps
from dashboards.generate.colours import DECODE, DECODE_SHARE, NEUTRAL, PREFILL, UTILIZATION
from dashboards.generate.model import BarGauge, Dashboard, Query, Row, Thresholds, TimeSeries
from dashboards.generate.overrides import UNFILLED, shade_query
from dashboards.generate.pack import PHASES, build_dashboard
from dashboards.generate.queries import (
    DECODE_CEILING_RATIO,
    ENGINE_LEGEND,
    MBU,
    MFU,
    PREFILL_CEILING_RATIO,
    select_engines,
)

_NO_SHARE: Final = "Idle, down, or a fact is missing"


def build_phases() -> Dashboard:
    """How fast each phase is, and whether memory bandwidth or compute limits it."""
    return build_dashboard(
        PHASES,
        "Prefill is limited by compute and decode by memory bandwidth: which wall is near, and what does a user feel?",
        Row("Which wall is near", (*_build_shares(), *_build_roofline(), build_missing_facts(), build_facts())),
        Row("Prefill and decode", build_speeds()),
        Row("Time to the first token", build_first_token()),
        Row("Time between tokens", build_inter_token()),
        Row("Requests", build_requests()),
        Row("Steps of the engine", build_steps()),
        Row("Context", build_context()),
    )


def _build_bar_gauge(
    title: str, description: str, expr: str, *, height: int = 6, thresholds: Thresholds = UTILIZATION
) -> BarGauge:
    """A share of each engine, as a bar up to 100 %."""
    return BarGauge(
        title=title,
        description=description,
        queries=(Query(expr, ENGINE_LEGEND),),
        width=6,
        height=height,
        unit="percentunit",
        decimals=0,
        minimum=0,
        maximum=1,
        thresholds=thresholds,
        no_value=_NO_SHARE,
    )


def _build_shares() -> tuple[BarGauge, ...]:
    return (
        _build_bar_gauge(
            "Prefill of ceiling",
            (
                "Speed at which one prompt is read / what compute allows. Matrix products reach 50 to 87 % of published "
                "rates, so hope for no more. It falls when prompts are read together or beside decoding streams, since each counts the whole time. Low "
                "while alone: short prompts, or something else than compute."
            ),
            PREFILL_CEILING_RATIO,
        ),
        _build_bar_gauge(
            "Decode of ceiling, read",
            (
                "Speed of one stream / what memory bandwidth allows at the present batch and context. Half and more is good "
                "on most devices. Yellow, below the threshold of the alert: prompts in the steps, a small model, or a slow "
                "device. Above 100 %: speculation, a mixture of experts, or a wrong fact."
            ),
            DECODE_CEILING_RATIO,
            thresholds=DECODE_SHARE,
        ),
        _build_bar_gauge(
            "Memory bandwidth, MBU",
            (
                "Model bandwidth utilization: engine steps per second x bytes per step / bandwidth, idle time included. Good "
                "engines reach 50 to 80 % under load; there decode gets no faster without smaller weights, fewer or shorter "
                "streams, or more bandwidth."
            ),
            MBU,
        ),
        _build_bar_gauge(
            "Compute, MFU",
            (
                "Model FLOPs utilization: operations that the tokens took / what the devices can do, idle time included. Low "
                "is right while only decode runs. 50 to 87 % is all that real devices give; there prefill gets no faster "
                "without shorter prompts, prefix caching, or more devices."
            ),
            MFU,
        ),
    )


def _build_roofline() -> tuple[TimeSeries | BarGauge, ...]:
    return (
        TimeSeries(
            title="Memory and compute in use",
            description=(
                "Purple is memory bandwidth (MBU), the wall of decode; blue is compute (MFU), the wall of prefill. The one "
                "near 100 % limits the server. Both low under load: requests are few, or steps are held up by something "
                "else, such as the CPU that starts them."
            ),
            queries=(Query(MBU, f"MBU {ENGINE_LEGEND}", "MBU"), Query(MFU, f"MFU {ENGINE_LEGEND}", "MFU")),
            width=9,
            height=7,
            unit="percentunit",
            minimum=0,
            overrides=(UNFILLED, shade_query("MBU", DECODE), shade_query("MFU", PREFILL)),
            no_value=_NO_SHARE,
        ),
        TimeSeries(
            title="Balance of the two, MFU / MBU",
            description=(
                "Below the dashed line memory is the nearer wall, as decode makes it: smaller weights and caches help, and a "
                "larger batch costs little. Above it compute is, as prefill makes it: prefix caching, shorter prompts or "
                "more devices help."
            ),
            queries=(Query(f"{MFU}\n/ ({MBU} > 0) > 0", ENGINE_LEGEND),),
            width=9,
            height=7,
            decimals=2,
            log_base=10,
            thresholds=((None, NEUTRAL), (1, NEUTRAL)),
            show_thresholds=True,
            overrides=(UNFILLED,),
            no_value=_NO_SHARE,
        ),
        _build_bar_gauge(
            "Decode, weights alone",
            (
                "Speed of one stream / what it could be with the device to itself: a fixed mark, the same for every load. It "
                "falls as batches and contexts grow, which is no fault. Low here and high in basis read: the device is at its limit "
                "with this load; fewer streams, shorter contexts, smaller weights, or more bandwidth."
            ),
            select_engines("llm_decode_ceiling_ratio", basis="weights"),
            height=7,
        ),
    )
