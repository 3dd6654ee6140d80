"""What the landing page may have to show, and the page on loopback as a browser gets it."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import sin

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from phasewatch.analysis.ceiling import Ceiling
from phasewatch.analysis.distribution import Distribution
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.quantiles import Quantile
from phasewatch.analysis.queue import Load
from phasewatch.analysis.samples import EngineKey
from phasewatch.analysis.saturation import SaturationState
from phasewatch.base.errors import Reason
from phasewatch.metrics.descriptor import SelfStatus
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import Trouble
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.probes import ProbeRecord
from phasewatch.snapshot.target import ServerFacts, TargetSnapshot
from phasewatch.web.landing.load_history import HISTORY_SLOTS, SLOT_SECONDS, LoadHistory
from phasewatch.web.landing.page import RenderContext, render_page
from phasewatch.web.landing.text import Moment
from phasewatch.web.routes import View, create_app
from phasewatch.web.server import bind
from tests.support.processes import PATIENCE, eventually

STATUS = SelfStatus("1.2.3", reload_successful=True, reload_success_time=0.0, scrapes_missed=0)
PREFIX = "/watch"
HOSTILE = """<script>alert('x')</script>"><img src=x onerror=alert(1)>&amp;\u05d0\u05d1\u202e""" + "long" * 60

KNOWN = EngineSnapshot(
    EngineKey("meta-llama/Llama-3.1-8B-Instruct", "0"),
    Phases(
        prefill_tokens_per_second=6_120.4,
        prefill_throughput_tokens_per_second=2_303.0,
        decode_tokens_per_second=33.21,
        decode_throughput_tokens_per_second=812.6,
    ),
    Latencies(
        time_to_first_token=Distribution(0.3, ((0.5, Quantile(0.2541, 0.25, 0.5)),)),
        inter_token=Distribution(0.03, ((0.99, Quantile(0.01, 0.0, 0.01)),)),
    ),
    Load(requests_running=24.0, requests_waiting=17.0, kv_cache_usage_ratio=0.93),
    Ceiling(
        device_info=("NVIDIA L40S", 1),
        device_memory_bandwidth_bytes_per_second={"table": 864e9},
        device_flops_per_second={"table": 362e12},
        weight_bytes={"files": 16.06e9},
        weight_read_bytes=15.01e9,
        decode_ceiling_tokens_per_second={"weights": 57.6, "read": 48.4},
        decode_ceiling_ratio={"weights": 0.577, "read": 0.686},
        memory_bandwidth_utilization_ratio={"derived": 0.71},
        prefill_ceiling_tokens_per_second=22_500.0,
        prefill_ceiling_ratio=0.272,
    ),
    0.4,
    SaturationState.KV_CACHE_FULL,
)
UNKNOWN = EngineSnapshot(EngineKey("tiny", "0"), state=SaturationState.IDLE)
UP = TargetSnapshot(
    name="chat",
    backend="vllm",
    url="http://127.0.0.1:8000",
    optional=False,
    answered=True,
    up=True,
    trouble=None,
    errors=dict.fromkeys(Reason, 0),
    scrape_seconds=0.01,
    last_success=1_800_000_000.0,
    facts=ServerFacts("0.32.0"),
    engines=(KNOWN,),
)
DOWN = replace(
    UP,
    name="embeddings",
    up=False,
    trouble=Trouble(5.0, 3, Reason.CONNECT, "cannot connect: Connection refused"),
    errors={**UP.errors, Reason.CONNECT: 3, Reason.TIMEOUT: 1},
    engines=(),
    facts=ServerFacts(),
)
OLLAMA = replace(
    UP,
    name="workstation",
    backend="ollama",
    url="http://127.0.0.1:11434",
    facts=ServerFacts("0.33.0"),
    engines=(
        EngineSnapshot(
            EngineKey("qwen3:14b", None),
            Phases(prefill_tokens_per_second=1_640.0, decode_tokens_per_second=21.7),
            Latencies(time_to_first_token=Distribution(mean=0.412)),
            ceiling=Ceiling(
                device_info=("NVIDIA RTX 4090", 1),
                device_memory_bandwidth_bytes_per_second={"table": 1008e9},
                weight_bytes={"server": 9.3e9},
                decode_ceiling_tokens_per_second={"weights": 30.0},
                decode_ceiling_ratio={"weights": 0.7233},
            ),
        ),
    ),
    models=(
        ModelSnapshot(
            "qwen3:14b", loaded=1.0, bytes=12.4e9, gpu_ratio=0.82, context_length_tokens=8192.0,
            expiry=time.time() + 252, probe=ProbeRecord(probes=7, success=True, last_success=time.time() - 185),
        ),
        ModelSnapshot("llama3.1:8b", loaded=0.0),
    ),
)  # fmt: skip


def eight() -> tuple[TargetSnapshot, ...]:
    """Eight models, in as many states."""
    states = (SaturationState.HEALTHY, *(state for state in SaturationState if state is not SaturationState.HEALTHY))[
        :8
    ]
    return tuple(
        replace(
            UP, name=f"chat-{number}", engines=(replace(KNOWN, key=EngineKey(f"model-{number}", "0"), state=state),)
        )
        for number, state in enumerate(states)
    )


def recorded(*targets: TargetSnapshot, seconds: int = HISTORY_SLOTS * SLOT_SECONDS) -> LoadHistory:
    """Minutes of waves for every engine, with half a minute missing."""
    history, now = LoadHistory(), time.monotonic()
    for second in range(-seconds, 1):
        if not -200 < second < -170:
            history.record([_wave(target, second) for target in targets], now + second)
    return history


def _wave(target: TargetSnapshot, second: float) -> TargetSnapshot:
    swell = 1 + sin(second / 40)
    load = Load(requests_running=24.0, requests_waiting=round(17 * swell), kv_cache_usage_ratio=min(1.0, 0.5 * swell))
    return replace(target, engines=tuple(replace(engine, load=load) for engine in target.engines if engine.state))


def render_html(*targets: TargetSnapshot, status: SelfStatus = STATUS, notice: str = "") -> str:
    """The landing page as it is when it is loaded, at 2027-01-15 08:00 UTC."""
    history = recorded(*targets, seconds=20)
    return render_page(
        status, targets, RenderContext(history, lambda _target, _model: True, Moment(1_800_000_000.0, 0.0)), notice
    )


def render_everything() -> str:
    """A landing page with every part that it may have, and with hostile names wherever there are names."""
    hostile = replace(
        UP,
        name=HOSTILE,
        url=HOSTILE,
        facts=ServerFacts(HOSTILE),
        engines=(replace(KNOWN, key=EngineKey(HOSTILE, HOSTILE)),),
        models=(ModelSnapshot(HOSTILE, loaded=0.0),),
    )
    failed = replace(
        hostile, backend=HOSTILE, up=False, trouble=Trouble(0.0, 1, Reason.PARSE, HOSTILE), engines=(), models=()
    )
    waiting = replace(UP, name="not yet", up=None, engines=())
    status = replace(STATUS, version=HOSTILE, reload_successful=False)
    return render_html(hostile, failed, OLLAMA, waiting, *eight(), status=status, notice=HOSTILE)


@dataclass
class Shown:
    """What the page shows; may be changed while it is served."""

    targets: tuple[TargetSnapshot, ...] = ()
    history: LoadHistory = field(default_factory=LoadHistory)
    status: SelfStatus = STATUS
    notice: str = ""


@contextlib.contextmanager
def served(shown: Shown, port: int = 0) -> Iterator[str]:
    """The exporter's web side below a prefix, as behind a reverse proxy, while the block runs; gives its address."""
    view = View(lambda: (shown.status, shown.targets), lambda: None, lambda: True, shown.history, notice=shown.notice)
    app = Starlette(routes=[Mount(PREFIX, create_app(view, enable_lifecycle=False))])
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
    )
    with bind("127.0.0.1", port) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            eventually(lambda: server.started, "a web server")
            yield f"http://127.0.0.1:{listening.getsockname()[1]}{PREFIX}/"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
