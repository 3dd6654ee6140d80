"""Objectives and causes mean the same on the page, in the alerts and in the docs."""

import re
from typing import Final

from alerts.generate.thresholds import THRESHOLDS, read_thresholds
from phasewatch.analysis.advice.diagnosis import LONG_CONTEXT, MANY_STREAMS, PROMPT_SHARE, STALLING_RATIO
from phasewatch.analysis.objectives import P50_OUTPUTS, P99_OUTPUTS
from tests.support.markdown import words
from tests.support.rule_files import alerts
from tests.support.targets import new_target

DEFAULTS: Final = {threshold.name: threshold.value for threshold in read_thresholds(THRESHOLDS)}


def test_the_default_objectives_are_the_thresholds_of_the_alerts() -> None:
    objectives = new_target("chat", "vllm", "http://h").objectives
    assert objectives.inter_token_latency == DEFAULTS["inter_token_latency_seconds"]
    assert objectives.time_to_first_token == DEFAULTS["time_to_first_token_seconds"]
    assert (
        DEFAULTS["inter_token_latency_outputs"],
        DEFAULTS["inter_token_latency_median_outputs"],
    ) == (P99_OUTPUTS, P50_OUTPUTS)


def test_the_alert_and_the_page_look_for_causes_by_the_same_numbers() -> None:
    (rule,) = (rule for rule in alerts() if rule["alert"] == "LLMInterTokenLatencyHigh")
    text = " ".join(rule["annotations"]["description"].split())
    assert f"llm_inter_token_latency_mean_seconds{{%[1]s}} * {STALLING_RATIO:g} <= " in text
    assert f"llm_context_tokens{{%s}} >= {LONG_CONTEXT:g}" in text
    assert f"llm_decode_streams{{%s}} >= {MANY_STREAMS:g}" in text
    # As many prompt tokens as generated ones are half of both together.
    assert PROMPT_SHARE == 0.5
    assert "llm_prefill_throughput_tokens_per_second{%[1]s} >= llm_decode_throughput_tokens_per_second{%[1]s}" in text
    order = ["preemptions", "prefill_throughput", "context_tokens", "decode_streams"]
    assert re.findall(r'if printf "llm_(\w+?)(?:_(?:tokens_)?per_second)?\{', text) == order


def test_the_page_about_saturation_has_the_numbers_of_the_causes() -> None:
    text = words("docs/saturation.md")
    assert "p99 is three times the mean or more" in text
    assert STALLING_RATIO == 3
    assert "at least half of the tokens computed are prompt tokens" in text
    assert f"from {LONG_CONTEXT:g} tokens per running request on" in text
    assert f"many streams, from {MANY_STREAMS:g} on" in text


def test_the_page_about_configuration_says_when_too_few_outputs_decide() -> None:
    text = words("docs/configuration.md")
    assert f"With fewer than {P99_OUTPUTS:g} outputs per minute the median decides" in text
    assert f"with fewer than {P50_OUTPUTS:g} nothing does" in text
