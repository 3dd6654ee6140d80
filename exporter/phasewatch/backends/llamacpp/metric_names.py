"""The llama-server metrics that are read, under every name that a build or a wrapper gives them.

Read in the pages of b10434 and in the sources of builds from 2024 on. Left out on purpose are the averages
`prompt_tokens_seconds` and `predicted_tokens_seconds`: they cover the time since anybody's last scrape (b10408 and
newer, and before b9842), or since the start (in between).
"""

from typing import Final

from phasewatch.backends.metric_table import MetricKind, MetricTable, UpstreamMetric

_ALL: Final = "all"

_METRICS: Final = (
    UpstreamMetric("requests_running", MetricKind.GAUGE, {"requests_processing": _ALL}),
    UpstreamMetric("requests_waiting", MetricKind.GAUGE, {"requests_deferred": _ALL}),
    UpstreamMetric("streams_per_step", MetricKind.GAUGE, {"n_busy_slots_per_decode": "September 2024 and newer"}),
    UpstreamMetric("kv_cache_usage", MetricKind.GAUGE, {"kv_cache_usage_ratio": "up to May 2025"}, highest=1.0),
    UpstreamMetric("prompt_tokens_computed", MetricKind.COUNTER, {"prompt_tokens": _ALL}),
    UpstreamMetric("prompt_tokens_local_hits", MetricKind.COUNTER, {"prompt_tokens_cached": "b10408 and newer"}),
    UpstreamMetric("prefill_seconds", MetricKind.COUNTER, {"prompt_seconds": "March 2024 and newer"}),
    UpstreamMetric("generation_tokens", MetricKind.COUNTER, {"tokens_predicted": _ALL}),
    UpstreamMetric("decode_seconds", MetricKind.COUNTER, {"tokens_predicted_seconds": "March 2024 and newer"}),
    UpstreamMetric("engine_steps", MetricKind.COUNTER, {"n_decode": "September 2024 and newer"}),
    UpstreamMetric("draft_tokens", MetricKind.COUNTER, {"spec_decode_num_draft_tokens": "2026"}),
    UpstreamMetric("accepted_draft_tokens", MetricKind.COUNTER, {"spec_decode_num_accepted_tokens": "2026"}),
)

METRIC_NAMES: Final = MetricTable(
    _METRICS,
    prefixes=("llamacpp:", "llamacpp_"),
    model_label="model",
    engine_label="engine",
    absent="the page has no llamacpp metrics: is this a llama-server's own address?",
)
"""The page of a llama-server. A fork labels its samples with the model; the original has no labels."""

LEMONADE_NAMES: Final = MetricTable(
    _METRICS,
    prefixes=("lemonade_llamacpp_",),
    model_label="model_name",
    engine_label="engine",
    absent="the page has no lemonade_llamacpp metrics: has Lemonade loaded a model with its llamacpp recipe?",
)
"""The page of Lemonade (10.4), which has those of its llama-servers, each with the name of its model."""
