"""Phases: how requests end, how long they take, and how long their prompts and outputs are."""

from typing import Final

from dashboards.generate.colours import BAD, DECODE, GOOD, GREY, PREFILL, WARNING
from dashboards.generate.model import PER_SECOND, TOKENS_PER_SECOND, Query, TimeSeries
from dashboards.generate.no_value import NO_ENGINE, NO_REQUEST_FINISHED
from dashboards.generate.overrides import UNFILLED, shade_query
from dashboards.generate.queries import (
    ENGINE_LEGEND,
    TARGET_LEGEND,
    build_quantile_queries,
    select_engines,
    select_targets,
)

_REASONS: Final = {"stop": GOOD, "length": DECODE, "error": BAD, "other": GREY}
"""Reasons that every vLLM shows. `abort` is there only once a server has counted one."""

_STATUSES: Final = {"2xx": GOOD, "4xx": WARNING, "5xx": BAD}
_SOURCES: Final = {
    "computed": ("Computed", PREFILL),
    "local_cache": ("Own prefix cache", GOOD),
    "external_cache": ("From elsewhere", GREY),
}
"""Name and colour of each source."""


def build_requests() -> tuple[TimeSeries, ...]:
    """How requests end, above; their times, lengths and sources of tokens, below."""
    return (
        TimeSeries(
            title="Finished requests by reason",
            description=(
                "Requests that finished per second: stop is an end that the model chose, length a limit of tokens, error a "
                "failure. Much length: answers are cut off, so clients should allow more tokens. vLLM does not count "
                "aborted requests."
            ),
            queries=tuple(
                Query(f"sum({select_engines('llm_requests_finished_per_second', reason=reason)})", reason, reason)
                for reason in _REASONS
            ),
            width=8,
            height=8,
            unit=PER_SECOND,
            minimum=0,
            stacked=True,
            overrides=tuple(shade_query(reason, colour) for reason, colour in _REASONS.items()),
            no_value=NO_ENGINE,
        ),
        TimeSeries(
            title="HTTP answers by status",
            description=(
                "Answers per second of the endpoints that make the model work. 4xx: clients send what the server does not "
                "accept. 5xx: it refuses or fails; its log has the reason, and the Saturation board says whether it sheds "
                "load."
            ),
            queries=tuple(
                Query(f"sum({select_targets('llm_http_requests_per_second', status=status)})", status, status)
                for status in _STATUSES
            ),
            width=8,
            height=8,
            unit=PER_SECOND,
            minimum=0,
            stacked=True,
            overrides=tuple(shade_query(status, colour) for status, colour in _STATUSES.items()),
            no_value="No request yet, or no page with HTTP requests",
        ),
        TimeSeries(
            title="Error ratio",
            description=(
                "Share of the requests that ended in an error of the server: an error finish, a refusal, or HTTP 5xx. Above 0 "
                "users see failures: look for 5xx on the left and for refusals on the Saturation board, then in the log of "
                "the server."
            ),
            queries=(Query(select_targets("llm_request_error_ratio"), TARGET_LEGEND),),
            width=8,
            height=8,
            unit="percentunit",
            minimum=0,
            maximum=1,
            overrides=(UNFILLED,),
            no_value="No request ended in this time",
        ),
        TimeSeries(
            title="Request latency",
            description=(
                "Time from arrival to the last token. It grows with the length of the output, so compare it with the lengths "
                "beside it before calling it slow. Queue, prefill and decode each have a part in it: the rows above show which."
            ),
            queries=(
                *build_quantile_queries("llm_request_latency_seconds"),
                Query(select_engines("llm_request_latency_mean_seconds"), f"mean {ENGINE_LEGEND}", "mean"),
            ),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            overrides=(UNFILLED,),
            no_value=NO_REQUEST_FINISHED,
        ),
        TimeSeries(
            title="Length of prompts and outputs, means",
            description=(
                "Mean tokens of the requests that finished: prompts in blue, cached tokens included, outputs in purple. Longer "
                "prompts cost prefill time and KV cache, longer outputs hold their place in the batch for longer."
            ),
            queries=(
                Query(select_engines("llm_request_prompt_mean_tokens"), f"prompt {ENGINE_LEGEND}", "prompt"),
                Query(select_engines("llm_request_output_mean_tokens"), f"output {ENGINE_LEGEND}", "output"),
            ),
            width=12,
            height=8,
            unit="none",
            decimals=0,
            minimum=0,
            overrides=(UNFILLED, shade_query("prompt", PREFILL), shade_query("output", DECODE)),
            no_value=NO_REQUEST_FINISHED,
        ),
        TimeSeries(
            title="Prompt tokens by source",
            description=(
                "Prompt tokens per second, all chosen engines together: computed, found in the engine's own prefix cache, or "
                "taken from another cache or server. Much that is computed although prompts share their beginning: the prefix "
                "cache is off, too small, or requests go to a replica that does not have it."
            ),
            queries=tuple(
                Query(f"sum({select_engines('llm_prompt_tokens_per_second', source=source)})", name, source)
                for source, (name, _) in _SOURCES.items()
            ),
            width=24,
            height=7,
            unit=TOKENS_PER_SECOND,
            minimum=0,
            stacked=True,
            overrides=tuple(shade_query(source, colour) for source, (_, colour) in _SOURCES.items()),
            no_value="No server answered that reports where they come from",
        ),
    )
