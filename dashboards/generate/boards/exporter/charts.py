"""The part of the board Exporter below the fold: scrapes, the process, versions."""

from collections.abc import Mapping
from typing import Final

from dashboards.generate.model import Column, Lines, Override, Panel, Query, Section, Shown, Steps, Table, Timeline
from dashboards.generate.pack import BAD, CARE, GOOD, NEUTRAL, OF_EXPORTER, OF_TARGET, TARGET_NAME, of_target, threshold
from dashboards.generate.states import DOWN, SEEN, STATES, UNKNOWN

UP: Final[Mapping[str, Shown]] = {"1": Shown("Up", GOOD), "0": STATES[DOWN]}
ANSWERS: Final[Mapping[str, Shown]] = {"-1": STATES[UNKNOWN], **UP}
"""The same of a target, of which nobody may tell any more."""

AGE: Final[Steps] = ((None, NEUTRAL), (threshold("collection_age_seconds"), BAD))
_OPEN_FILES: Final[Steps] = ((None, GOOD), (0.8, CARE), (0.95, BAD))

NO_TARGET: Final = "No target is known: does the configuration of the exporter name any?"

_SMALL_COUNTS: Final = (Override({"custom.axisSoftMax": 2}, pattern=".+"),)
"""Without it the axis of zeros ends at 100."""


def of_exporters(expr: str) -> str:
    """Without those of other jobs: when all are chosen, the variables let every job pass."""
    return f"{expr} and on (job, instance) last_over_time(phasewatch_build_info{{{OF_EXPORTER}}}[1d])"


def failed(over: str) -> str:
    """Failed scrapes of each target by reason."""
    return f"max by (target, reason) (increase(llm_target_scrape_errors_total{{{OF_TARGET}}}[{over}]))"


def missed(over: str) -> str:
    """Missed scrapes of each exporter."""
    return f"max by (job, instance) (increase(phasewatch_scrapes_missed_total{{{OF_EXPORTER}}}[{over}]))"


def news_age() -> str:
    """Seconds since the newest complete scrape of each target, also of one of which nobody tells any more."""
    newest = f"last_over_time(llm_target_last_success_timestamp_seconds{{{OF_TARGET}}}[{SEEN}])"
    return f"time() - max by (target) ({newest})"


def untold() -> str:
    """The targets that some exporter knew and of which none tells now."""
    seen = f"max by (target, backend) (last_over_time(llm_target_up{{{OF_TARGET}}}[{SEEN}]))"
    return f"({seen}\n  unless on (target) llm_target_up{{{OF_TARGET}}})"


def details() -> tuple[Section, ...]:
    """What is below the fold."""
    return (
        Section("Scrapes of the servers", _scrapes()),
        Section("The process, and what Prometheus sees of it", _process()),
        Section("Versions", _versions(), closed=True),
    )


def _scrapes() -> tuple[Panel, ...]:
    return (
        Timeline(
            title="Targets that answered",
            description="Green: the newest scrape gave metrics; dark red: it failed. A gap: the exporter itself did not answer.",
            queries=(Query(of_target("llm_target_up"), TARGET_NAME),),
            width=12,
            height=8,
            mappings=UP,
            empty=NO_TARGET,
        ),
        Lines(
            title="Failed scrapes by reason",
            description=(
                "About how many in the moments before each point. connect: the server does not run, or the address is wrong; timeout: "
                "overloaded, or hung; auth and tls: credentials and certificates; the others: see docs/metrics.md, Reasons of failed scrapes."
            ),
            queries=(Query(f"{failed('$__rate_interval')} > 0", "{{target}} {{reason}}"),),
            width=12,
            height=8,
            unit="none",
            minimum=0,
            bars=True,
            empty="None in this time",
        ),
        Lines(
            title="Age of the newest news",
            description=(
                "Seconds since the newest complete scrape of each target. A saw of a few seconds is good; a line that climbs is a server "
                "without news, or an exporter that is gone. Above the dashed line the alert LLMCollectionStale follows."
            ),
            queries=(Query(news_age(), TARGET_NAME),),
            width=8,
            height=8,
            unit="s",
            minimum=0,
            steps=AGE,
            marked=True,
            empty="No target answered in this time, or in the hour before",
        ),
        Lines(
            title="Duration of a scrape",
            description=(
                "How long the newest scrape of each target took. vLLM answers on the loop that streams tokens, so this grows with its load; "
                "near `timeout` scrapes begin to fail: raise `timeout`, and `interval` with it."
            ),
            queries=(Query(of_target("llm_target_scrape_duration_seconds"), TARGET_NAME),),
            width=8,
            height=8,
            unit="s",
            minimum=0,
            empty=NO_TARGET,
        ),
        Lines(
            title="Missed scrapes",
            description=(
                "Scrapes that were not made because the one before was still under way, about how many in the moments before each point. 0 "
                "is good. Otherwise a target takes longer than its `interval`: set `timeout` below it, or a longer interval."
            ),
            queries=(Query(missed("$__rate_interval"), "{{instance}}"),),
            width=8,
            height=8,
            unit="none",
            minimum=0,
            empty="No exporter answers",
            overrides=_SMALL_COUNTS,
        ),
    )


def _process() -> tuple[Panel, ...]:
    cpu = f"max by (job, instance) (rate(process_cpu_seconds_total{{{OF_EXPORTER}}}[$__rate_interval]))"
    files = f"max by (job, instance) (process_open_fds{{{OF_EXPORTER}}} / process_max_fds{{{OF_EXPORTER}}})"
    kinds = (
        (
            "CPU",
            "Seconds of CPU per second; 0.01 is one percent of one core. It grows with the number of targets, and falls with a longer interval.",
            cpu,
            "suffix: cores",
            (),
        ),
        (
            "Resident memory",
            "Memory of the process. It grows with targets and `window` and then stays; a line that never stops to rise is a defect to report.",
            f"max by (job, instance) (process_resident_memory_bytes{{{OF_EXPORTER}}})",
            "bytes",
            (),
        ),
        (
            "Open files of the limit",
            "Open files and connections / what the process may have. Near 100 % new connections fail: raise the limit (LimitNOFILE).",
            files,
            "percentunit",
            _OPEN_FILES,
        ),
        (
            "Scrape by Prometheus",
            "How long the exporter took to answer Prometheus. Milliseconds are good: it answers from what it knows and asks no server meanwhile.",
            f"max by (job, instance) (scrape_duration_seconds{{{OF_EXPORTER}}})",
            "s",
            (),
        ),
        (
            "Samples of a scrape",
            "How many samples Prometheus got. It follows the number of targets, engines and models; 0 is a failed scrape.",
            f"max by (job, instance) (scrape_samples_scraped{{{OF_EXPORTER}}})",
            "none",
            (),
        ),
        (
            "Restarts",
            "How often the exporter was started anew in the hour before. It should stay at 0 but for updates: counters and windows begin anew each time.",
            f"max by (job, instance) (changes(process_start_time_seconds{{{OF_EXPORTER}}}[1h]))",
            "none",
            (),
        ),
    )
    return tuple(
        Lines(
            title=title,
            description=words,
            queries=(Query(of_exporters(expr), "{{instance}}"),),
            width=8,
            height=7,
            unit=unit,
            minimum=0,
            steps=steps or ((None, NEUTRAL),),
            empty="No exporter answers",
            overrides=_SMALL_COUNTS if unit == "none" else (),
        )
        for title, words, expr, unit, steps in kinds
    )


def _versions() -> tuple[Table, ...]:
    labels = "target, backend, model_name, root, max_model_len, parameter_size, quantization, family"
    return (
        Table(
            title="Models",
            description="What the servers tell of the models that they serve or have on disk. A vLLM with --api-key tells it only to a target with `authorization`.",
            queries=(Query(f"max by ({labels}) (llm_model_info{{{OF_TARGET}}})", name="info"),),
            columns=(
                Column("target", "Target", width=150),
                Column("backend", "Kind", width=90),
                Column("model_name", "Model"),
                Column("root", "Loaded from"),
                Column("max_model_len", "Context", width=110),
                Column("parameter_size", "Parameters", width=110),
                Column("quantization", "Quantization", width=120),
                Column("family", "Family", width=110),
            ),
            width=24,
            height=8,
            empty="No server tells: an API key may guard it",
        ),
    )
