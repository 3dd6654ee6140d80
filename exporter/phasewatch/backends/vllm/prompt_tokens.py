"""Where vLLM's prompt tokens came from: computed by the engine, its own prefix cache, or another cache or server."""

from dataclasses import dataclass

from phasewatch.analysis.samples import EngineSample
from phasewatch.base.optional import add


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Prompt tokens by source; None where unknown. If all are known, they add up to the prompts."""

    computed: float | None = None
    local_cache: float | None = None
    external_cache: float | None = None

    @property
    def total(self) -> float | None:
        """All prompt tokens; None unless every source is known."""
        return add(add(self.computed, self.local_cache), self.external_cache)


def count_prompt_tokens(growth: EngineSample, now: EngineSample, version: str | None) -> PromptTokens:
    """Prompt tokens in a window by source.

    `prompt_tokens_by_source` has them since 0.16; front ends that create a series when it first counts (Rust, Ray) lack
    sources that are 0. Before, cached tokens have to be subtracted from all: those of the
    prefix cache and those that a KV connector loaded (`external_prefix_cache_hits`, 0.12 and newer), whichever of the
    two there are. They are counted at admission and prompts at their first token.

    Args:
        growth: growth of the counters.
        now: the newest sample, for the cache configuration.
        version: the server's version; None if unknown.
    """
    sources = (growth.prompt_tokens_computed, growth.prompt_tokens_local_hits, growth.prompt_tokens_transferred)
    if any(count is not None for count in sources):
        return PromptTokens(*(count or 0.0 for count in sources))
    if growth.prompt_tokens is None:
        return PromptTokens()
    # The counter came with 0.12; a connector of an older release leaves no trace on the page.
    external = growth.external_prefix_cache_hits or 0.0
    if growth.prompt_tokens_cached is not None:
        return _subtract_cached(growth.prompt_tokens, growth.prompt_tokens_cached - external, external)
    local = _count_local_hits(growth, now, version)
    return PromptTokens() if local is None else _subtract_cached(growth.prompt_tokens, local, external)


def takes_from_elsewhere(now: EngineSample) -> bool:
    """Whether the engine has ever taken prompt tokens from another cache or server."""
    return bool(now.prompt_tokens_transferred or now.external_prefix_cache_hits)


def never_caches(now: EngineSample) -> bool:
    """Whether prefix caching is off. The V0 engine (0.8) reports None in that case, and does not count look-ups."""
    setting = now.cache_config.get("enable_prefix_caching")
    return setting == "False" or (setting == "None" and now.prefix_cache_queries is None)


def _subtract_cached(prompt: float, local: float, external: float) -> PromptTokens:
    """The rest is computed. Unknown if a source is negative, as over a short window: see `count_prompt_tokens`."""
    computed = prompt - local - external
    return PromptTokens(computed, local, external) if computed >= 0 and local >= 0 else PromptTokens()


def _count_local_hits(growth: EngineSample, now: EngineSample, version: str | None) -> float | None:
    """Tokens found in the prefix cache. 0.8 counted them in blocks, so they are unknown with an unknown version."""
    if never_caches(now) or growth.prefix_cache_hits == 0:
        return 0.0
    if growth.prefix_cache_hits is None or version is None:
        return None
    if not version.startswith("0.8."):
        return growth.prefix_cache_hits
    block_size = now.cache_config.get("block_size", "")
    return growth.prefix_cache_hits * int(block_size) if block_size.isdigit() else None
