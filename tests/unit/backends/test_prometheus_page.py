"""Parsing pages: every name and dialect, and every way in which a page can be invalid."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from phasewatch.analysis.samples import EngineKey, EngineSample, Page
from phasewatch.backends.metric_table import MetricKind
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.base.errors import Reason, ScrapeError
from tests.support.pages import body_at, histogram, page

KEY = EngineKey("m", "0")
GOOD = page({"generation_tokens_total": 5})


def read(text: str) -> EngineSample:
    engines = PageReader(METRIC_NAMES).read(text).engines
    assert list(engines) == [KEY]
    return engines[KEY]


def test_every_prefix_gives_the_same_sample() -> None:
    for prefix in ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_"):
        samples = {
            "num_requests_running": 2,
            "generation_tokens_total": 7,
            **histogram("inter_token_latency_seconds", [0.01, 0.1], [1, 2, 3], 4.5),
        }
        assert read(page(samples, prefix=prefix)) == read(page(samples)), prefix


def list_spellings() -> Iterator[tuple[str, str]]:
    for upstream in METRIC_NAMES.metrics:
        where = ",".join(f'{label}="{value}"' for label, value in upstream.where.items())
        for name in upstream.names:
            for suffix in {MetricKind.GAUGE: ("",), MetricKind.COUNTER: ("", "_total")}.get(upstream.kind, ()):
                yield upstream.field, f"{name}{suffix}{{{where}}}" if where else f"{name}{suffix}"


def test_every_name_of_every_metric_is_read() -> None:
    for field, sample in list(list_spellings()):
        other = "num_requests_running" if field == "requests_waiting" else "num_requests_waiting"
        assert getattr(read(page({sample: 0.5, other: 1})), field) == 0.5, field


def test_a_counter_of_a_model_counts_for_each_of_its_engines() -> None:
    text = "".join(page({"num_requests_running": 1}, labels=f'engine="{rank}",model_name="m"') for rank in (3, 4))
    for reason, count in (("max_num_queued_reqs", 5), ("max_num_queued_tokens", 2)):
        text += page({"admission_rejections_total": count}, labels=f'model_name="m",reason="{reason}"')
    engines = PageReader(METRIC_NAMES).read(text).engines
    assert {key.engine: sample.rejections for key, sample in engines.items()} == {"3": 7, "4": 7}


def test_a_histogram_is_read_with_the_buckets_that_are_there() -> None:
    for name in ("inter_token_latency_seconds", "time_per_output_token_seconds"):
        latency = read(page(histogram(name, [0.01, 0.5], [1, 2, 3], 4.5))).inter_token_latency
        assert latency is not None, name
        assert latency.upper_bounds == (0.01, 0.5, float("inf")), name
        assert latency.cumulative == (1, 3, 6), name
        assert (latency.sum, latency.count) == (4.5, 6), name


def test_of_two_names_of_one_metric_the_newer_one_is_read() -> None:
    sample = read(page({"kv_cache_usage_perc": 0.5, "gpu_cache_usage_perc": 0.4}))
    assert sample.kv_cache_usage == 0.5


def test_a_page_without_an_engine_label_is_about_engine_0() -> None:
    assert read(page({"generation_tokens_total": 1}, labels='model_name="m"')).generation_tokens == 1


def test_each_model_and_engine_has_a_sample_of_its_own() -> None:
    text = page({"generation_tokens_total": 1}) + page(
        {"generation_tokens_total": 2}, labels='engine="1",model_name="m"'
    )
    engines = PageReader(METRIC_NAMES).read(text).engines
    assert {key.engine: sample.generation_tokens for key, sample in engines.items()} == {"0": 1, "1": 2}


def test_ray_replicas_of_one_engine_are_added_but_not_their_cache_usage() -> None:
    text = "".join(
        page(
            {"generation_tokens": 5, "num_requests_running": 2, "kv_cache_usage_perc": usage},
            prefix="ray_vllm_",
            labels=f'engine="0",model_name="m",ReplicaId="{replica}"',
        )
        for replica, usage in (("a", 0.2), ("b", 0.6))
    )
    sample = read(text)
    assert (sample.generation_tokens, sample.requests_running, sample.kv_cache_usage) == (10, 4, 0.6)


def test_gauges_of_several_processes_are_views_of_one_engine() -> None:
    text = "".join(
        page({"num_requests_running": running, "generation_tokens_total": 5}, labels=f'model_name="m",pid="{pid}"')
        for pid, running in (("7", 3), ("8", 1))
    )
    sample = read(text)
    assert (sample.requests_running, sample.generation_tokens) == (3, 10)


def test_openmetrics_timestamps_and_exemplars_are_skipped() -> None:
    text = (
        "# TYPE vllm:generation_tokens counter\n"
        'vllm:generation_tokens_total{model_name="m",engine="0"} 5 1700000000.5\n'
        'vllm:inter_token_latency_seconds_bucket{model_name="m",engine="0",le="0.1"} 4 # {trace_id="a} 9"} 0.05 17.5\n'
        'vllm:inter_token_latency_seconds_bucket{model_name="m",engine="0",le="+Inf"} 4\n'
        'vllm:inter_token_latency_seconds_count{model_name="m",engine="0"} 4\n'
        'vllm:inter_token_latency_seconds_sum{model_name="m",engine="0"} 0.2\n'
        "# EOF\n"
    )
    sample = PageReader(METRIC_NAMES).read(text, openmetrics=True).engines[KEY]
    assert sample.generation_tokens == 5
    assert sample.inter_token_latency is not None
    assert sample.inter_token_latency.cumulative == (4, 4)


def test_labels_are_read_as_prometheus_reads_them() -> None:
    name = r"a \"quoted\" \\ back\nslash } , { x=\"1\""
    text = f'vllm:generation_tokens_total{{ engine = "0" , model_name="{name}", }} 5\n'
    (key,) = PageReader(METRIC_NAMES).read(text).engines
    (family,) = text_string_to_metric_families(text.replace(" engine = ", "engine=").replace(" , ", ",", 1))
    assert key.model_name == family.samples[0].labels["model_name"]


def test_a_multiprocess_page_without_gauges_is_read() -> None:
    (sample,) = PageReader(METRIC_NAMES).read(body_at("two-api-servers", 0)).engines.values()
    assert sample.requests_running is None
    assert sample.generation_tokens == 0


def test_the_cache_configuration_is_joined_by_engine() -> None:
    engines = PageReader(METRIC_NAMES).read(body_at("data-parallel", 30)).engines
    assert [sample.cache_config["kv_cache_size_tokens"] for sample in engines.values()] == ["46592", "46592"]


def test_the_cache_configuration_is_unknown_if_two_models_share_an_engine_index() -> None:
    text = (
        page({"generation_tokens_total": 1})
        + page({"generation_tokens_total": 1}, labels='engine="0",model_name="n"')
        + 'vllm:cache_config_info{engine="0",kv_cache_size_tokens="512"} 1.0\n'
    )
    assert [dict(sample.cache_config) for sample in PageReader(METRIC_NAMES).read(text).engines.values()] == [{}, {}]


def test_a_cached_series_is_read_like_a_new_one() -> None:
    reader = PageReader(METRIC_NAMES)
    for time in (0, 30, 60):
        text = body_at("data-parallel", time)
        assert reader.read(text) == PageReader(METRIC_NAMES).read(text)


def test_only_series_on_the_newest_page_stay_cached() -> None:
    reader = PageReader(METRIC_NAMES)
    for model in range(50):
        reader.read(page({"generation_tokens_total": 1}, labels=f'engine="0",model_name="m{model}"'))
    assert len(reader._by_text) == len(reader._by_identity) == 1  # noqa: SLF001


def test_a_page_with_only_a_cache_configuration_is_valid() -> None:
    assert PageReader(METRIC_NAMES).read('vllm:cache_config_info{block_size="128"} 1.0\n').engines == {}


def test_cache_usage_of_the_engine_is_preferred_to_that_of_each_process() -> None:
    text = page({"gpu_cache_usage_perc": 0.003}) + "".join(
        page({"kv_cache_usage_perc": usage}, labels=f'engine="0",model_name="m",pid="{pid}"')
        for pid, usage in ((1, 0.003), (2, 0.022))
    )
    assert read(text).kv_cache_usage == 0.003


def test_a_page_has_the_start_of_the_process_and_the_dialect() -> None:
    assert PageReader(METRIC_NAMES).read(GOOD + "process_start_time_seconds 5\n") == Page(5.0, False, {KEY: read(GOOD)})
    assert PageReader(METRIC_NAMES).read(GOOD + "# EOF\n") == Page(None, True, {KEY: read(GOOD)})


def http(handler: str, status: str, count: object = 3, method: str = "POST") -> str:
    return f'http_requests_total{{handler="{handler}",method="{method}",status="{status}"}} {count}\n'


def test_http_requests_are_counted_by_class_for_the_endpoints_that_make_the_model_work() -> None:
    counted = (
        *("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/pooling"),
        *("/score", "/v1/score", "/rerank", "/v2/rerank", "/classify", "/generate", "/v1/audio/transcriptions"),
    )
    others = (
        *("/metrics", "/health", "/v1/models", "/tokenize", "/detokenize", "/v1/responses/{response_id}", "/pause"),
        *("/version", "none", "/v1/messages/count_tokens", "/v1/completions/render"),
    )
    for handler in counted:
        for status, kind in (("2xx", "2xx"), ("200", "2xx"), ("404", "4xx"), ("503", "5xx"), ("5xx", "5xx")):
            read_page = PageReader(METRIC_NAMES).read(GOOD + http(handler, status))
            assert read_page.http_requests == {kind: 3}, (handler, status)
    for handler in others:
        assert PageReader(METRIC_NAMES).read(GOOD + http(handler, "2xx")).http_requests == {}, handler


def test_http_requests_of_all_endpoints_and_statuses_of_a_class_are_added() -> None:
    text = http("/v1/completions", "200") + http("/v1/completions", "202") + http("/v1/chat/completions", "2xx", 10)
    assert PageReader(METRIC_NAMES).read(GOOD + text).http_requests == {"2xx": 16}
    for line in (http("/v1/completions", "2xx", method="GET"), http("/v1/completions", "307")):
        assert PageReader(METRIC_NAMES).read(GOOD + line).http_requests == {}, line


def test_a_page_with_http_requests_alone_is_not_a_server_of_models() -> None:
    with pytest.raises(ScrapeError) as caught:
        PageReader(METRIC_NAMES).read(http("/v1/completions", "2xx"))
    assert caught.value.reason is Reason.NO_METRICS


def test_an_impossible_or_repeated_count_of_http_requests_makes_the_page_unusable() -> None:
    for text in (
        http("/v1/completions", "2xx", "-1"),
        http("/v1/completions", "2xx", "NaN"),
        2 * http("/score", "2xx"),
    ):
        with pytest.raises(ScrapeError) as caught:
            PageReader(METRIC_NAMES).read(GOOD + text)
        assert caught.value.reason is Reason.PARSE, text


def test_a_reason_to_finish_that_is_not_known_counts_as_other() -> None:
    reasons = {"stop": 1, "length": 2, "abort": 3, "error": 4, "repetition": 5, "reason_of_2030": 6}
    sample = read(page({f'request_success_total{{finished_reason="{name}"}}': n for name, n in reasons.items()}))
    finished = (sample.finished_stop, sample.finished_length, sample.finished_abort, sample.finished_error)
    assert (*finished, sample.finished_other) == (1, 2, 3, 4, 11)


def test_a_cache_usage_above_1_is_left_out_with_a_note() -> None:
    for text, notes in (
        (page({"kv_cache_usage_perc": 1.0}), ()),
        (page({"kv_cache_usage_perc": 1.7}), ("vllm:kv_cache_usage_perc is above 1 and therefore left out",)),
        (page({"gpu_cache_usage_perc": 42}), ("vllm:gpu_cache_usage_perc is above 1 and therefore left out",)),
        # As many engines as there are: one note.
        (
            page({"kv_cache_usage_perc": 1.7}) + page({"kv_cache_usage_perc": 3}, labels='engine="1",model_name="m"'),
            ("vllm:kv_cache_usage_perc is above 1 and therefore left out",),
        ),
        (page({"kv_cache_usage_perc": -1}), ()),
        (page({"kv_cache_usage_perc": float("nan")}), ()),
    ):
        parsed = PageReader(METRIC_NAMES).read(GOOD + text)
        assert parsed.notes == notes, text
        assert parsed.engines[KEY].kv_cache_usage == (1.0 if text.endswith(" 1.0\n") else None), text


def list_harmless_additions() -> list[tuple[str, str]]:
    names = ",".join(f"tenant-{number:04}-sql-v2-r16" for number in range(1000))
    return [
        ("a label of 25 kB", f'vllm:lora_requests_info{{waiting_lora_adapters="{names}"}} 1.0\n'),
        ("a label of 2 MB", f'vllm:lora_requests_info{{waiting_lora_adapters="{names * 80}"}} 1.0\n'),
        ("a malformed series", 'vllm:odd{a="b} 1\n'),
        ("another program's long series", f'http_requests_total{{path="{names}",code="200"}} 1\n'),
        ("another program's quoted label", 'http_requests_total{"quoted.label"="x"} 1\n'),
        ("another program's long start", f'process_start_time_seconds{{x="{names}"}} 1\n'),
        ("no value", "vllm:odd\n"),
        ("a value that is no number", "vllm:odd{} many\n"),
        ("an impossible value", "vllm:odd_total -1\n"),
        ("the same series twice", "vllm:odd 1\nvllm:odd 1\n"),
        ("a quoted name", '{"vllm:odd", model_name="m"} 1\n'),
        (
            "bytes that are not UTF-8",
            b'# \xff\nother{a="\xe9"} 1\nvllm:odd{a="\xe9"} 1\n'.decode(errors="surrogateescape"),
        ),
        ("a longer name", "vllm:generation_tokens_total_by_tenant{tenant=1} x\nprocess_start_time_seconds_odd x\n"),
        ("labels that are not read", 'vllm:prompt_tokens_by_source{source="x"} 1\n' * 2),
        ("an end without a line feed", "# EOF"),
        ("blank lines", "\n \n\t\n"),
    ]


def test_a_line_that_nobody_reads_does_no_harm_whatever_it_is() -> None:
    reader = PageReader(METRIC_NAMES)
    for name, text in list_harmless_additions():
        for whole in (f"{text.rstrip(chr(10))}\n{GOOD}", GOOD + text):
            assert reader.read(whole).engines == {KEY: read(GOOD)}, name
        assert sum(map(len, reader._by_text)) < 1000, name  # noqa: SLF001  # no huge text stays in memory


def test_start_times_of_several_processes_leave_the_servers_unknown() -> None:
    reader = PageReader(METRIC_NAMES)
    start = "process_start_time_seconds 1700000000.0\n"
    for extra, expected in (
        (start, 1.7e9),
        (start + "process_start_time_seconds 1600000000.0\n", None),
        ("process_start_time_seconds 1600000000.0\n" + start, None),
        (start + start, None),
        (start + 'process_start_time_seconds{container="queue-proxy"} 1600000000.0\n', None),
        (start + 'process_start_time_seconds{container="a"} 1\nprocess_start_time_seconds{container="b"} 1\n', None),
        ('process_start_time_seconds{pod="chat-0"} 1700000000.0\n', 1.7e9),
        ("process_start_time_seconds NaN\n", None),
    ):
        for text in (GOOD + extra, extra + GOOD):
            parsed = reader.read(text)
            assert (parsed.process_start, parsed.engines) == (expected, {KEY: read(GOOD)}), extra


ROUTER_GAUGES = ("num_requests_running", "num_requests_waiting", "current_qps", "num_prefill_requests")
"""Gauges of the router of vLLM's production stack, for each server behind it."""


def write_router_page(*names: str) -> str:
    servers = ("http://10.0.0.1:8000", "http://10.0.0.2:8000")
    lines = [f'vllm:{name}{{server="{server}"}} 3.0\n' for name in names for server in servers]
    return "".join([*lines, 'vllm:healthy_pods_total{server=""} 2.0\n'])


def test_the_page_of_a_router_is_not_that_of_an_engine() -> None:
    # Newer routers show the totals of the cache as gauges, under the names of the engines' counters.
    newer = (*ROUTER_GAUGES, "gpu_prefix_cache_hits_total", "gpu_prefix_cache_queries_total")
    for text in (
        write_router_page(*ROUTER_GAUGES),
        write_router_page(*newer) + "process_start_time_seconds 1700000000.0\n",
        "vllm:num_requests_running 3\n",
    ):
        reason, message = refuse(text)
        assert reason is Reason.NO_METRICS, text
        assert "router: watch each server behind it as a target of its own" in message, text


def test_an_engine_without_counters_or_without_a_name_is_still_one() -> None:
    config = 'vllm:cache_config_info{block_size="128",engine="0"} 1.0\n'
    for text in (
        page({"num_requests_running": 0, "num_requests_waiting": 0}),
        page({"num_requests_running": 0}, prefix="ray_vllm_", labels='model_name="m",ReplicaId="a"'),
        page({"generation_tokens_total": 0}, labels='engine="0"'),
        page({"num_requests_running": 0}, labels='engine="0"') + config,
    ):
        (sample,) = PageReader(METRIC_NAMES).read(text).engines.values()
        assert sample.requests_running == 0 or sample.generation_tokens == 0, text


def test_a_routers_gauges_beside_an_engine_make_no_second_engine() -> None:
    assert PageReader(METRIC_NAMES).read(GOOD + write_router_page(*ROUTER_GAUGES)).engines == {KEY: read(GOOD)}


def test_a_page_of_very_many_engines_is_refused_in_linear_time() -> None:
    text = "".join(f'vllm:generation_tokens_total{{model_name="m",engine="{rank}"}} 1\n' for rank in range(60_000))
    assert refuse(text) == (Reason.TOO_LARGE, "the page speaks of 60000 engines, more than 256")


def test_invalid_pages_leave_nothing_in_the_cache() -> None:
    reader = PageReader(METRIC_NAMES)
    for number in range(20):
        with pytest.raises(ScrapeError):
            reader.read(
                page({"generation_tokens_total": 1}, labels=f'model_name="m{number}"') + "vllm:prompt_tokens{\n"
            )
    assert len(reader._by_text) == len(reader._by_identity) == 0  # noqa: SLF001


def test_a_series_under_two_prefixes_is_a_duplicate() -> None:
    assert refuse(GOOD + GOOD.replace("vllm:", "vllm_"))[0] is Reason.PARSE


def test_the_cache_configuration_of_replicas_on_one_page_is_unknown() -> None:
    text = GOOD + "".join(
        f'vllm:cache_config_info{{engine="0",kv_cache_size_tokens="512",ReplicaId="{replica}"}} 1.0\n'
        for replica in "ab"
    )
    assert read(text).cache_config == {}


def refuse(text: str, *, openmetrics: bool = False) -> tuple[Reason, str]:
    with pytest.raises(ScrapeError) as caught:
        PageReader(METRIC_NAMES).read(text, openmetrics=openmetrics)
    return caught.value.reason, caught.value.message


def test_an_invalid_page_is_refused_with_its_reason() -> None:
    for text, reason, message in (
        ("", Reason.NO_METRICS, "the page has no vllm metrics"),
        ('python_info{version="3.12"} 1.0\n', Reason.NO_METRICS, "the page has no vllm metrics"),
        ("<!doctype html>\n<html></html>\n", Reason.PARSE, "this is no page of metrics"),
        ('{"detail": "Not Found"}\n', Reason.PARSE, "this is no page of metrics"),
        (GOOD[:-1], Reason.PARSE, "the page is cut off: its last line has no end"),
        (GOOD + 'vllm:generation_tokens_total{engine="1\n', Reason.PARSE, "line 2 is no valid sample"),
        (GOOD + 'vllm:generation_tokens_total{engine="1"}\n', Reason.PARSE, "line 2 is no valid sample"),
        (GOOD + 'vllm:prompt_tokens{a="' + "b" * 20_000 + '"} 1\n', Reason.PARSE, "line 2 is no valid sample"),
        (GOOD + 'vllm:prompt_tokens{a="\udcff"} 1\n', Reason.PARSE, "line 2 is not UTF-8"),
        (GOOD + GOOD, Reason.PARSE, "line 2: the page holds a series of vllm:generation_tokens_total twice"),
        (
            GOOD + 'vllm:generation_tokens_total{model_name="m",engine="0"} 5\n',
            Reason.PARSE,
            "line 2: the page holds a series of vllm:generation_tokens_total twice",
        ),
        (page({"generation_tokens_total": "x"}), Reason.PARSE, "line 1: the value of vllm:generation_tokens_total"),  # type: ignore[dict-item]
        (page({"generation_tokens_total": "1_000"}), Reason.PARSE, "line 1: the value of vllm:generation_tokens_total"),  # type: ignore[dict-item]
        (page({"generation_tokens_total": float("nan")}), Reason.PARSE, "vllm:generation_tokens_total is nan"),
        (page({"generation_tokens_total": float("inf")}), Reason.PARSE, "vllm:generation_tokens_total is inf"),
        (page({"generation_tokens_total": -1}), Reason.PARSE, "vllm:generation_tokens_total is -1.0"),
        (page({'request_queue_time_seconds_bucket{le="x"}': 1}), Reason.PARSE, "line 1: the value of"),
        (page({"request_queue_time_seconds_sum": float("nan")}), Reason.PARSE, "is nan, which no counter can be"),
    ):
        actual_reason, actual_message = refuse(text)
        assert actual_reason is reason, text
        assert message in actual_message, text


def test_an_openmetrics_page_without_its_end_is_truncated() -> None:
    assert refuse(GOOD, openmetrics=True)[0] is Reason.PARSE


def test_an_impossible_value_of_anything_but_a_counter_is_left_out() -> None:
    labels = 'engine="0",model_name="m"'
    for value in ("NaN", "+Inf", "-1"):
        for name in ("num_requests_running", "generation_tokens_created", "cache_config_info"):
            assert read(f"{GOOD}vllm:{name}{{{labels}}} {value}\n") == read(GOOD), (name, value)


def test_the_sum_of_a_histogram_may_be_negative() -> None:
    sample = read(page({"request_queue_time_seconds_sum": -2000, "request_queue_time_seconds_count": 1}))
    assert sample.queue_time is not None
    assert sample.queue_time.sum == -2000


def test_every_sample_agrees_with_the_parser_of_prometheus_client() -> None:
    for recording in ("batch-ramp", "data-parallel", "speculative"):
        text = body_at(recording, 40)
        expected: dict[tuple[str, str | None], float] = {
            (sample.name, sample.labels["engine"]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if "engine" in sample.labels and sample.labels.keys() == {"engine", "model_name"}
        }
        for key, sample in PageReader(METRIC_NAMES).read(text).engines.items():
            assert sample.generation_tokens == expected["vllm:generation_tokens_total", key.engine], recording
            assert sample.requests_running == expected["vllm:num_requests_running", key.engine], recording
            assert sample.created == expected.get(("vllm:generation_tokens_created", key.engine)), recording
            for field, name in (
                ("time_to_first_token", "time_to_first_token_seconds"),
                ("inter_token_latency", "inter_token_latency_seconds"),
                ("iteration_tokens", "iteration_tokens_total"),
            ):
                assert getattr(sample, field).sum == expected[f"vllm:{name}_sum", key.engine], recording
                assert getattr(sample, field).count == expected[f"vllm:{name}_count", key.engine], recording


@given(st.text(alphabet='vllm:generation_tokens_total{}="0, \\\n1e+#', max_size=200))
def test_any_text_is_read_or_raises_a_scrape_error(text: str) -> None:
    try:
        PageReader(METRIC_NAMES).read(text)
    except ScrapeError as error:
        assert error.reason in {Reason.PARSE, Reason.NO_METRICS}  # noqa: PT017  # most texts raise, some need not


@given(st.integers(0, 60_000))
def test_a_page_cut_anywhere_but_at_the_end_of_a_line_is_refused(length: int) -> None:
    text = body_at("single-stream", 40)
    cut = text[: length % len(text)]
    if cut and not cut.endswith("\n"):
        assert refuse(cut)[0] is Reason.PARSE


def test_a_hostile_line_takes_no_more_than_linear_time() -> None:
    for filling in (" " * 200_000, 'a="' * 50_000, '"\\' * 100_000, "a=" * 100_000):
        assert refuse(f"vllm:prompt_tokens{{{filling}\n")[0] is Reason.PARSE
        assert read(f"{GOOD}vllm:x{{{filling}\n") == read(GOOD)


def test_the_metric_table_has_each_name_once() -> None:
    seen = [
        (name, tuple(upstream.where.items()), upstream.kind is MetricKind.CREATED)
        for upstream in METRIC_NAMES.metrics
        for name in upstream.names
    ]
    assert len(seen) == len(set(seen))
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name, _, _ in seen)
