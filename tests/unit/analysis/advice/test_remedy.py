"""Remedies as words: what is known is left out, what a server lacks is not offered."""

from phasewatch.analysis.advice.remedy import Cause, Condition, Known, Remedy, list_words
from phasewatch.backends.vllm.state_advice import RELEASES

NEW = Remedy("set --watermark.", restart=True, releases=RELEASES)
OLD = Remedy("set --max-num-seqs.", restart=True)


def test_a_flag_is_offered_from_the_release_on_that_has_it() -> None:
    for version, offered in (
        ("0.8.5", False),
        ("0.23.0", False),
        ("v0.23.1rc1.dev5+g1", False),
        ("0.24.0", True),
        ("0.32.0+cpu", True),
        ("1.0.0", True),
    ):
        words = list_words((NEW, OLD), Known(version))
        assert words == (("Set --watermark. Needs a restart.",) if offered else ()) + (
            "Set --max-num-seqs. Needs a restart.",
        ), version


def test_without_a_known_release_the_words_name_it() -> None:
    for version in (None, "", "dev", "0.1.dev1+gabc", "unknown"):
        assert list_words((NEW,), Known(version)) == ("Set --watermark (vLLM 0.24 and newer). Needs a restart.",), (
            version
        )


def test_the_release_is_named_once_and_only_for_the_flag_itself() -> None:
    twice = Remedy("set --watermark, then --watermark-x and --watermark again.", releases=RELEASES)
    assert list_words((twice,)) == ("Set --watermark (vLLM 0.24 and newer), then --watermark-x and --watermark again.",)


def test_a_remedy_is_left_out_if_its_condition_is_known_to_fail() -> None:
    remedy = Remedy("raise it.", conditions=(Condition.TOKENS_FAST, Condition.CACHE_FREE))
    known = Known(conditions=frozenset({Condition.TOKENS_SLOW}))
    assert list_words((remedy,), known) == ()


def test_a_condition_is_named_unless_it_is_known_to_hold() -> None:
    remedy = Remedy("raise it.", conditions=(Condition.TOKENS_FAST, Condition.CACHE_FREE))
    for conditions, words in (
        (set(), "While inter-token latency is within its objective and the KV cache has room, raise it."),
        ({Condition.CACHE_FREE}, "While inter-token latency is within its objective, raise it."),
        ({Condition.CACHE_FREE, Condition.TOKENS_FAST}, "Raise it."),
    ):
        assert list_words((remedy,), Known(conditions=frozenset(conditions))) == (words,), conditions


def test_a_remedy_that_is_a_restart_does_not_ask_for_another() -> None:
    assert list_words((Remedy("restart it.", restart=True),)) == ("Restart it.",)


def test_a_cause_and_what_helps_at_once_come_first() -> None:
    assert list_words(
        (
            Remedy("send less.", at_once=True),
            Remedy("lower it.", cause=Cause.MANY_STREAMS),
            Remedy("raise it.", cause=Cause.PREFILL, conditions=(Condition.SLOTS_FREE,)),
        )
    ) == ("At once: send less.", "Many streams: lower it.", "Prefill, while slots are free: raise it.")


def test_every_release_is_a_supported_one() -> None:
    assert all((0, 8) < release < (1, 0) for release in RELEASES.first.values())
