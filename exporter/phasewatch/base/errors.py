"""The errors of the program, and the closed set of reasons why a scrape fails.

PhaseWatchError
├── ConfigError      the configuration is invalid; carries every problem found
├── ScrapeError      a scrape failed; carries one `Reason`
├── RecordingError   a recording cannot be read or written
├── BindError        the program cannot listen on the configured address
├── AssetError       the shipped dashboards and rules cannot be found or written out
├── DemoError        something that the demo needs is missing
├── MeasurementError the memory of this machine cannot be measured (hardware.measure)
├── ModelError       a figure of a model cannot be determined from its files (models.errors)
└── ProbeError       a probe failed; carries one `ProbeReason` (backends.ollama.probes.response)
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a scrape failed: the `reason` label of `llm_target_scrape_errors_total`, and `reason` in log lines."""

    CONNECT = "connect"
    TIMEOUT = "timeout"
    TLS = "tls"
    HTTP_STATUS = "http_status"
    AUTH = "auth"
    TOO_LARGE = "too_large"
    PARSE = "parse"
    NO_METRICS = "no_metrics"
    INTERNAL = "internal"


class PhaseWatchError(Exception):
    """Base class of all errors that the program raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a configuration, or a note about it: `path` names the key, `message` says what is expected."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigError(PhaseWatchError):
    """The configuration is invalid.

    Args:
        problems: all mistakes found.
    """

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class ScrapeError(PhaseWatchError):
    """A scrape failed.

    Args:
        reason: the class of the failure.
        message: what is wrong and what to do. Never contains a credential or a part of the server's response.
        refused: whether the connection was refused at every address of the server: its process has ended, and whatever
            was known of it with it. After any other failure the process may still be the same one.
    """

    def __init__(self, reason: Reason, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.refused = refused


class RecordingError(PhaseWatchError):
    """A recording cannot be read or written."""


class AssetError(PhaseWatchError):
    """The shipped dashboards and rules cannot be found or written out."""


class DemoError(PhaseWatchError):
    """Something that the demo needs is missing."""


class BindError(PhaseWatchError):
    """The program cannot listen on the configured address."""
