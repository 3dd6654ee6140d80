"""The part of the board Ollama that is about probes: what they found, what they cost, and that they do no harm."""

from collections.abc import Mapping
from typing import Final

from dashboards.generate.model import (
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
)
from dashboards.generate.pack import BAD, CARE, GOOD, MODEL_NAME, NEUTRAL, OF_MODEL, of_model

NO_PROBE: Final = "No probe answered in this time: they run for models in memory, unless probe.enabled is false"
_UNPROBED: Final = "No model in memory was probed in this time"
_NO_NUMBERS: Final = "No numbers of a model in memory"

PROBE: Final[Mapping[str, Shown]] = {"1": Shown("Answered", GOOD), "0": Shown("Failed", BAD)}
"""Values of llm_probe_success."""

_NONE_ALLOWED: Final[Steps] = ((None, NEUTRAL), (0.0, GOOD), (0.5, BAD))

_QUEUED: Final[Steps] = ((None, GOOD), (0.25, CARE))
"""From there on the exporter counts a probe as one that had to queue, and pauses."""


def last_success_age() -> str:
    """Seconds since a probe of each model last gave numbers."""
    return f"time() - {of_model('llm_probe_last_success_timestamp_seconds')}"


def _increase(name: str, over: str, by: str = "target, model_name") -> str:
    return f"max by ({by}) (increase({name}{{{OF_MODEL}}}[{over}]))"


def _reloads() -> str:
    """Loads that probes caused; the alert knows those that the counter began with, too."""
    fired = f'ALERTS{{{OF_MODEL}, alertname="LLMProbeCausedReload", alertstate="firing"}}'
    counted = f"increase(llm_probe_caused_reloads_total{{{OF_MODEL}}}[$__range])"
    return f"sum(max by (target, model_name) ({counted} or {fired}))"


FAILING: Final = (
    Tile(
        title="Bad probes",
        description=(
            "Models in memory whose newest probe failed. A single one happens when a model is removed, say; more than that: see the "
            "reasons below and the log of the server. A server that answers its inventory and no probe hangs."
        ),
        queries=(Query(f"sum({of_model('llm_probe_success')} == bool 0)"),),
        decimals=0,
        steps=_NONE_ALLOWED,
        empty="No probe of a model in memory",
    ),
    Tile(
        title="Probe loads",
        description=(
            "Loads of a model that a probe has caused, in the shown time or with the alert LLMProbeCausedReload firing. It must be 0. "
            "Otherwise that model is not probed any more: see the log line 'model no longer probed', and give the options that its "
            "users load it with (probe.models), or switch its probes off."
        ),
        queries=(Query(_reloads(), "in this time"),),
        decimals=0,
        steps=_NONE_ALLOWED,
        empty="No probe yet",
        named=True,
    ),
    Tile(
        title="Probe age",
        description=(
            "Time since a probe last gave numbers, of the model in memory that has waited longest. Probes are 5 minutes apart by "
            "default, more where the budget paces them or the server is busy with its users, which is no fault. Much more: see "
            "below why probes were not sent."
        ),
        queries=(Query(f"max({last_success_age()} and {of_model('llm_model_loaded')} == 1)"),),
        unit="s",
        decimals=0,
        empty=_NO_NUMBERS,
    ),
)


def probe_sections() -> tuple[Section, ...]:
    """What is below the fold about probes."""
    return (
        Section("Probes", (*_newest(), _counted())),
        Section("Probes over time", _over_time(), closed=True),
    )


def _newest() -> tuple[Panel, ...]:
    return (
        Timeline(
            title="Newest probe of each model",
            description=(
                "Green: the newest probe was answered; red: it failed. A gap: the model is not in memory, or none was sent since it "
                "is. Red that stays raises the alert LLMProbeFailing."
            ),
            queries=(Query(of_model("llm_probe_success"), MODEL_NAME),),
            width=12,
            height=8,
            mappings=PROBE,
            empty=_UNPROBED,
        ),
        Lines(
            title="Age of the newest numbers",
            description=(
                "Time since a probe last gave numbers, of models in memory. It falls to 0 with each good probe and rises between them, "
                "5 minutes by default, longer where the budget paces them. Rising without end: see why probes were not sent."
            ),
            queries=(Query(f"{last_success_age()} and {of_model('llm_model_loaded')} == 1", MODEL_NAME),),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            empty=f"{_NO_NUMBERS} in this time",
        ),
        Lines(
            title="Duration of a probe",
            description=(
                "Time that the newest probe took, its wait included and failed ones too. On a server with one slot a user who comes in it "
                "waits for the rest of it. A probe of 1 s is followed by 99 s without one at the default budget."
            ),
            queries=(Query(of_model("llm_probe_duration_seconds"), MODEL_NAME),),
            width=6,
            height=8,
            unit="s",
            minimum=0,
            empty=_UNPROBED,
        ),
        Lines(
            title="Wait for a slot",
            description=(
                "How long the newest probe had to wait behind users' requests; users wait as long. Above the dashed line the "
                "server counts as busy and is left alone for a while. Often above it: raise OLLAMA_NUM_PARALLEL if there is memory "
                "for it, or add a server."
            ),
            queries=(Query(of_model("llm_probe_queue_seconds"), MODEL_NAME),),
            width=6,
            height=8,
            unit="s",
            minimum=0,
            steps=_QUEUED,
            marked=True,
            empty=NO_PROBE,
            overrides=(Override({"custom.axisSoftMax": 0.3}, pattern=".+"),),
        ),
    )


def _counted() -> Table:
    kinds = {
        "failed": "llm_probe_failures_total",
        "not sent": "llm_probes_skipped_total",
        "counts for nothing": "llm_probes_discarded_total",
    }
    by = "target, model_name, reason"
    parts = [
        f'label_replace(round({_increase(name, "$__range", by)}) > 0, "what", "{what}", "", "")'
        for what, name in kinds.items()
    ]
    return Table(
        title="Probes without numbers in this time",
        description=(
            "How often in the shown time a probe failed, was due and not sent, or gave an answer that counts for nothing, by reason. "
            "budget, active and first_after_load are everyday; quarantined is not. docs/ollama.md has each reason and what to do."
        ),
        queries=(Query("sort_desc(\n  " + "\n  or ".join(parts) + "\n)", name="times"),),
        columns=(
            Column("target", "Target", width=130),
            Column("model_name", "Model"),
            Column("what", "Probe", width=140),
            Column("reason", "Reason", width=140),
            Column("times", "Times", unit="none", decimals=0, width=70),
        ),
        width=12,
        height=8,
        empty="None in this time",
    )


def _over_time() -> tuple[Panel, ...]:
    kinds = (
        (
            "Probes sent",
            "llm_probes_total",
            "",
            "Idle servers and busy ones are probed least: only models in memory are, when nobody uses them.",
        ),
        (
            "Failed probes by reason",
            "llm_probe_failures_total",
            "reason",
            "Any that comes again and again is worth a look at the server's log.",
        ),
        (
            "Probes not sent by reason",
            "llm_probes_skipped_total",
            "reason",
            "A probe that stays due is counted when its reason begins and then once an interval.",
        ),
        (
            "Discarded answers by reason",
            "llm_probes_discarded_total",
            "reason",
            "The first answer after a load always is: the model was not up to speed.",
        ),
    )
    return tuple(
        Lines(
            title=title,
            description=f"About how many in the moments before each point. {words} docs/ollama.md has the reasons and what to do.",
            queries=(
                Query(
                    _increase(name, "$__rate_interval", f"target, model_name{', reason' if label else ''}")
                    + (" > 0" if label else ""),
                    MODEL_NAME + (" {{reason}}" if label else ""),
                ),
            ),
            width=12,
            height=7,
            unit="none",
            minimum=0,
            bars=True,
            steps=((None, NEUTRAL),),
            empty="None in this time",
        )
        for title, name, label, words in kinds
    )
