"""docs/demo.md lists the acts, figures and flags that the demo has, and nothing else."""

from phasewatch.base import units
from phasewatch.demo.common.roofline import BANDWIDTH_SHARE, COMPUTE_SHARE
from phasewatch.demo.llamacpp.script import LLAMA_CYCLE, LLAMA_CYCLE_SECONDS, LLAMA_METRICS_TO_WATCH
from phasewatch.demo.llamacpp.server import LLAMA_DEVICE, LLAMA_SETTINGS
from phasewatch.demo.ollama import demo_models as ollama_models
from phasewatch.demo.ollama import users as ollama_users
from phasewatch.demo.ollama.child import PARALLEL
from phasewatch.demo.prometheus import DEFAULT_PORT as PROMETHEUS_PORT
from phasewatch.demo.run import INTERVAL, LLAMA_NAME, OLLAMA_NAME, PROBE_BUDGET, PROBE_INTERVAL, VLLM_NAME
from phasewatch.demo.vllm.script import CYCLE, CYCLE_SECONDS, METRICS_TO_WATCH
from phasewatch.demo.vllm.simulation import DEVICE, SETTINGS
from tests.support.command_line import flags_of
from tests.support.markdown import code, every_code, page, tables, words

PAGE = page("docs/demo.md")
WORDS = words("docs/demo.md")


def test_every_act_is_documented_and_nothing_else_is() -> None:
    rows = [cells for _, cells in tables(PAGE, "act", "seconds", "state", "what happens")]
    acts = [
        *((act, METRICS_TO_WATCH[act.state]) for act in CYCLE),
        *((act, LLAMA_METRICS_TO_WATCH[act.name]) for act in LLAMA_CYCLE),
    ]
    assert [
        [name, seconds, code(state), about, tuple(every_code(metrics))] for name, seconds, state, about, metrics in rows
    ] == [[act.name, f"{act.seconds:g}", act.state.value, act.about, metrics] for act, metrics in acts]


def test_the_figures_of_the_demo_are_those_of_the_program() -> None:
    for seconds in (CYCLE_SECONDS, LLAMA_CYCLE_SECONDS):
        assert f"which take {units.format_duration(seconds)} together" in WORDS
    assert f"prompts are computed in batches of {LLAMA_SETTINGS.batch:,} tokens" in WORDS
    assert LLAMA_SETTINGS.slots == 4
    assert "has four slots (`--parallel`)" in WORDS
    assert LLAMA_DEVICE in WORDS
    assert PARALLEL == 1
    assert "one slot per model" in WORDS
    assert (ollama_users.CYCLE_SECONDS, ollama_users.KEEP_ALIVE_SECONDS) == (300, 60)
    assert "in five minutes and then anew" in WORDS
    assert "`OLLAMA_KEEP_ALIVE=1m`" in WORDS
    interval, probe_interval = (text.replace("s", " s") for text in (INTERVAL, PROBE_INTERVAL))
    assert f"an `interval` of {interval}" in WORDS
    assert f"probes every {probe_interval} with a budget of {PROBE_BUDGET * 100:.0f} %" in WORDS
    large = ollama_models.LARGE
    assert f"only {large.vram_bytes / large.resident_bytes:.1f} fit" in WORDS
    assert (
        f"reaches {BANDWIDTH_SHARE * 100:.0f} % of its bandwidth and {COMPUTE_SHARE * 100:.0f} % of its compute"
        in WORDS
    )
    assert f"{SETTINGS.max_num_seqs} slots and a KV cache of {SETTINGS.kv_cache_size_tokens:,} tokens" in WORDS
    assert f"decode reaches {ollama_models.EFFICIENCY * 100:.0f} %" in WORDS
    assert f"{DEVICE} that reaches" in WORDS
    assert ollama_models.DEVICE in WORDS
    for name in (VLLM_NAME, LLAMA_NAME, OLLAMA_NAME, *(model.name for model in ollama_models.MODELS)):
        assert f"`{name}`" in WORDS
    assert f"port {PROMETHEUS_PORT} of" in WORDS


def test_every_flag_of_the_demo_is_on_its_page_and_nothing_else_is() -> None:
    listed = {flag for _, cells in tables(PAGE, "flag", "what it is for") for flag in every_code(cells[0])}
    assert listed == flags_of("demo").keys()
