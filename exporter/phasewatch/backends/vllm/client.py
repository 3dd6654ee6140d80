"""vLLM client: /metrics, /version, /v1/models and /server_info."""

from dataclasses import replace
from typing import Any

import httpx

from phasewatch.backends.client import get_text
from phasewatch.backends.page_client import PageClient
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.config.settings import ServerSettings, Target
from phasewatch.snapshot.models import ServedModel
from phasewatch.snapshot.target import ServerFacts


class VllmClient(PageClient):
    """HTTP client of one vLLM server.

    Args:
        target: the server.
        transport: replaces the network in tests.
    """

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(target, METRIC_NAMES, transport)

    async def fetch_facts(self) -> ServerFacts:
        """Request version, models and settings. The part of an endpoint without a valid response stays empty."""
        facts = parse_facts(await self.get_json_or_none("/version"), await self.get_json_or_none("/v1/models"))
        info = await self.get_json_or_none("/server_info?config_format=json")
        return replace(facts, server=parse_server_settings(info))


def parse_facts(version: Any, models: Any) -> ServerFacts:
    """Facts from any responses of /version and /v1/models. LoRA adapters (entries with a parent) are not models."""
    release = version.get("version") if isinstance(version, dict) else None
    listed = models.get("data") if isinstance(models, dict) else None
    return ServerFacts(
        version=get_text(release),
        models={
            entry["id"]: _parse_model(entry)
            for entry in (listed if isinstance(listed, list) else ())
            if isinstance(entry, dict) and get_text(entry.get("id")) is not None and not entry.get("parent")
        },
    )


def parse_server_settings(server_info: Any) -> ServerSettings:
    """Settings from any response of /server_info, which exists only in development mode (0.32).

    The limits on active requests and scheduled tokens take precedence over the number of slots and the size of a step.
    """
    config = server_info.get("vllm_config") if isinstance(server_info, dict) else None
    scheduler = config.get("scheduler_config") if isinstance(config, dict) else None
    settings = scheduler if isinstance(scheduler, dict) else {}
    return ServerSettings(
        max_num_seqs=_get_count(settings.get("max_num_active_seqs")) or _get_count(settings.get("max_num_seqs")),
        max_num_batched_tokens=_get_count(settings.get("max_num_scheduled_tokens"))
        or _get_count(settings.get("max_num_batched_tokens")),
    )


def _get_count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _parse_model(entry: dict[str, Any]) -> ServedModel:
    root, length = entry.get("root"), entry.get("max_model_len")
    return ServedModel(
        root=get_text(root),
        max_model_len=length if isinstance(length, int) else None,
    )
