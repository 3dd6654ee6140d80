"""What the configuration must know of each kind of server. The backends provide it: they lie above this package."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BackendRules:
    """The configuration's view of one kind of server.

    Attributes:
        name: the value of the key `backend`.
        default_url: address that is watched where there is no configuration file; None for none.
        least_interval: shortest interval, in seconds, that a target takes over from the whole file.
        interval_note: why a target should not be scraped more often; shown where its own interval is shorter.
        unused_keys: keys of a target that are accepted and have no effect, with the note about each.
        refused_keys: keys of `model` that the server itself reports, with the complaint about each.
    """

    name: str
    default_url: str | None = None
    least_interval: float = 0.0
    interval_note: str = ""
    unused_keys: Mapping[str, str] = field(default_factory=dict)
    refused_keys: Mapping[str, str] = field(default_factory=dict)


Rules = Mapping[str, BackendRules]
"""The rules of every kind of server, by its name."""
