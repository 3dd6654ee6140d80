from phasewatch.hardware.resolve import AmbiguousDevice, UnresolvedDevice, resolve_device
from phasewatch.hardware.wording import (
    DEFAULT_ADVICE,
    advise_on_unresolved,
    describe_unknown_device,
    explain_unresolved,
    is_this_machine,
)

GIB = 2.0**30


def unresolved(name: str, memory: float | None = None) -> UnresolvedDevice:
    resolution = resolve_device(name, memory)
    assert isinstance(resolution, UnresolvedDevice)
    return resolution


def test_only_the_name_cpu_stands_for_this_machine() -> None:
    for name, expected in (("CPU", True), (" cpu ", True), ("CPU 1", False), ("", False)):
        assert is_this_machine(name) is expected, name


def test_the_message_on_an_ambiguous_name_lists_its_candidates_and_what_distinguishes_them() -> None:
    ambiguous = unresolved("NVIDIA GeForce RTX 3080")
    assert explain_unresolved(ambiguous) == (
        "'NVIDIA GeForce RTX 3080' may be any of GeForce RTX 3080 (10GB), GeForce RTX 3080 (12GB): "
        "the memory size decides"
    )
    assert (
        advise_on_unresolved(ambiguous) == "set device.memory, one of these as device.name, or device.memory_bandwidth"
    )


def test_memory_is_not_asked_for_where_it_would_not_distinguish() -> None:
    (first, second) = unresolved("NVIDIA GeForce RTX 3080").candidates  # type: ignore[union-attr]  # it is ambiguous
    alike = AmbiguousDevice("X", (first, first), "the exact model")
    assert first.memory != second.memory
    assert advise_on_unresolved(alike) == "set one of these as device.name, or device.memory_bandwidth"


def test_the_message_on_an_unknown_name_lists_similar_ones_and_shortens_the_name() -> None:
    assert explain_unresolved(unresolved("NVIDIA L20Y")) == "'NVIDIA L20Y': the table has no such device (similar: L20)"
    assert advise_on_unresolved(unresolved("NVIDIA L20Y")) == DEFAULT_ADVICE
    assert len(explain_unresolved(unresolved("x" * 10_000))) < 200


def test_the_advice_on_a_processor_is_to_measure_it() -> None:
    assert advise_on_unresolved(unresolved("AMD EPYC 9354 32-Core Processor")).startswith(
        "run `phasewatch devices --measure`"
    )


def test_only_a_name_that_does_not_resolve_is_reported() -> None:
    assert describe_unknown_device("NVIDIA L40S", None) is None
    assert describe_unknown_device("cpu", None) is None
    assert describe_unknown_device("NVIDIA GeForce RTX 3080", 12 * GIB) is None
    description = describe_unknown_device("NVIDIA L40S", 12 * GIB)
    assert description is not None
    assert description.startswith("'NVIDIA L40S': L40S has 48 GB, not 12 GiB; set device.memory_bandwidth")
