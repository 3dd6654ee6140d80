"""Rules of the configuration that depend on the kind of server. Backends define them: they lie above this package."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BackendRules:
    """The rules for one kind of server.

    Attributes:
        name: the value of the key `backend`.
        default_url: address that is watched if there is no configuration file; None for none.
        least_interval: shortest interval, in seconds, that a target inherits from the whole file.
        interval_note: why a target should not be scraped more often; the note if its own interval is shorter.
        any_window: whether the window may be shorter than the interval, since it is filled by other reads than scrapes.
        unused_keys: keys of a target that are accepted without effect, or with little, with a note about each.
        refused_keys: keys of `model` that are refused because the server reports them, with an error about each.
    """

    name: str
    default_url: str | None = None
    least_interval: float = 0.0
    interval_note: str = ""
    any_window: bool = False
    unused_keys: Mapping[str, str] = field(default_factory=dict)
    refused_keys: Mapping[str, str] = field(default_factory=dict)


Rules = Mapping[str, BackendRules]
"""Rules by the name of the backend."""
