"""Says in the log, each thing once, what was found of an Ollama's children, what is missing, and which have ended."""

from typing import Final

from phasewatch.backends.ollama.runner.endings import Ending, KnownChildren, follow_children
from phasewatch.backends.ollama.runner.findings import (
    REMOTE,
    RunnerLook,
    Topic,
    list_findings,
)
from phasewatch.base.log import get_logger
from phasewatch.config.settings import Target

_AT_ONCE: Final = frozenset({Topic.EXACT, Topic.ESTIMATED})
"""Findings that one look proves. What is missing can be on its way, so it is said when two looks in a row lack it."""


class RunnerLog:
    """The log of the children of one Ollama.

    Args:
        target: the server.
    """

    def __init__(self, target: Target) -> None:
        self._target = target.name
        self._procfs = target.ollama.procfs
        self._said: set[Topic] = set()
        self._before: frozenset[Topic] = frozenset()
        self._found = False
        self._known: KnownChildren = {}

    def report_distance(self) -> None:
        """Log that the server is not on this machine, so that its children are not looked for."""
        self._say(Topic.REMOTE, REMOTE)

    def report(self, look: RunnerLook) -> None:
        """Log what a look has found, unless it was said before, and what has happened since the look before."""
        findings = list_findings(look, self._procfs, found_before=self._found)
        for topic, note in findings.items():
            if topic in _AT_ONCE or topic in self._before:
                self._say(topic, note)
        self._before = frozenset(findings)
        self._found = self._found or bool(look.matching.children)
        self._known, endings = follow_children(self._known, look)
        for (name, _), ending in endings:
            self._report_ending(name, ending)

    def _say(self, topic: Topic, note: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            get_logger().info("runners", target=self._target, note=note)

    def _report_ending(self, model: str, ending: Ending) -> None:
        log = get_logger().bind(target=self._target, model=model)
        match ending:
            case Ending.ENDED:
                note = "its process is gone: it has crashed or was killed; the next request loads the model again"
                log.warning("runner ended", note=note)
            case Ending.REPLACED:
                note = "its process ended during a request and another took its place: it has crashed or was killed"
                log.warning("runner ended", note=note)
            case Ending.RETURNED:
                log.info("runner is back")
