"""Logging to standard error as logfmt or JSON, the same for the program's own lines and those of libraries."""

import logging
import sys
from typing import Final

import structlog

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("logfmt", "json")

# httpx logs the full address of each request at INFO; APScheduler logs each overrun, which a metric counts instead.
_LIBRARY_LEVELS: Final = {"httpx": "WARNING", "httpcore": "WARNING", "apscheduler": "ERROR", "uvicorn": "WARNING"}


def configure(level: str, log_format: str) -> None:
    """Set up logging for the process.

    Args:
        level: one of `LEVELS`.
        log_format: one of `FORMATS`.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.EventRenamer("msg"),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.processors.LogfmtRenderer(key_order=["time", "level", "msg"], bool_as_flag=False)
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name, library_level in _LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(library_level)


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """The program's logger."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger("phasewatch")
    return bound
