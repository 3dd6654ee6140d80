"""The four counters of the page, without a prefix."""

from typing import Final

from phasewatch.backends.metric_table import MetricKind, MetricTable, UpstreamMetric

METRIC_NAMES: Final = MetricTable(
    (
        UpstreamMetric("prompt_tokens_computed", MetricKind.COUNTER, {"prompt_tokens": "all"}),
        UpstreamMetric("prefill_seconds", MetricKind.COUNTER, {"prompt_seconds": "all"}),
        UpstreamMetric("generation_tokens", MetricKind.COUNTER, {"tokens_predicted": "all"}),
        UpstreamMetric("decode_seconds", MetricKind.COUNTER, {"tokens_predicted_seconds": "all"}),
    ),
    prefixes=("",),
    model_label="model",
    engine_label="slot",
    absent="the page has none of the four counters",
)
