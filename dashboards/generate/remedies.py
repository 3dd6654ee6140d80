"""Sentences of `phasewatch.analysis.advice` for descriptions of panels."""

from phasewatch.analysis.advice import COMPLAINTS


def find_remedy(complaint: str, cause: str) -> str:
    """What helps against a complaint if it has this cause: the advice that begins with the cause, without it."""
    start = f"{cause}: "
    (remedy,) = (
        sentence.removeprefix(start) for sentence in COMPLAINTS[complaint].change if sentence.startswith(start)
    )
    return remedy
