"""Sentences of `phasewatch.analysis.advice` for descriptions of panels."""

from dataclasses import replace

from phasewatch.analysis.advice.remedy import Advice, Cause, list_words


def describe_remedies(complaint: Advice, cause: Cause) -> str:
    """What helps against a complaint if it has this cause, which is not named again."""
    remedies = [replace(remedy, cause=None) for remedy in complaint.change if remedy.cause is cause]
    return " ".join(list_words(tuple(remedies)))
