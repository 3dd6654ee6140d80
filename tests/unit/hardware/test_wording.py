import pytest

from phasewatch.hardware.resolve import AmbiguousDevice, UnknownDevice, resolve_device
from phasewatch.hardware.wording import (
    ADVICE,
    advise_on_unresolved,
    describe_unknown_device,
    explain_unresolved,
    means_this_machine,
)

GIB = 2.0**30


def unresolved(name: str, memory: float | None = None) -> AmbiguousDevice | UnknownDevice:
    found = resolve_device(name, memory)
    assert isinstance(found, AmbiguousDevice | UnknownDevice)
    return found


@pytest.mark.parametrize(("name", "meant"), [("CPU", True), (" cpu ", True), ("CPU 1", False), ("", False)])
def test_one_name_means_this_machine(name: str, meant: bool) -> None:
    assert means_this_machine(name) is meant


def test_a_name_of_several_devices_is_told_with_all_of_them_and_what_decides() -> None:
    found = unresolved("NVIDIA GeForce RTX 3080")
    assert explain_unresolved(found) == (
        "'NVIDIA GeForce RTX 3080' may be any of GeForce RTX 3080 (10GB), GeForce RTX 3080 (12GB): "
        "the memory size decides"
    )
    assert advise_on_unresolved(found) == "set device.memory, one of these as device.name, or device.memory_bandwidth"


def test_memory_that_would_not_decide_is_not_asked_for() -> None:
    (first, second) = unresolved("NVIDIA GeForce RTX 3080").candidates  # type: ignore[union-attr]  # it is ambiguous
    alike = AmbiguousDevice("X", (first, first), "the exact model")
    assert first.memory != second.memory
    assert advise_on_unresolved(alike) == "set one of these as device.name, or device.memory_bandwidth"


def test_an_unknown_name_is_told_with_similar_ones_and_cut_if_it_is_long() -> None:
    assert explain_unresolved(unresolved("NVIDIA L20Y")) == "'NVIDIA L20Y': the table has no such device (similar: L20)"
    assert advise_on_unresolved(unresolved("NVIDIA L20Y")) == ADVICE
    assert len(explain_unresolved(unresolved("x" * 10_000))) < 200


def test_a_processor_is_to_be_measured() -> None:
    assert advise_on_unresolved(unresolved("AMD EPYC 9354 32-Core Processor")).startswith(
        "run `phasewatch devices --measure`"
    )


def test_only_a_name_that_means_nothing_is_complained_of() -> None:
    assert describe_unknown_device("NVIDIA L40S", None) is None
    assert describe_unknown_device("cpu", None) is None
    assert describe_unknown_device("NVIDIA GeForce RTX 3080", 12 * GIB) is None
    told = describe_unknown_device("NVIDIA L40S", 12 * GIB)
    assert told is not None
    assert told.startswith("'NVIDIA L40S': L40S has 48 GB, not 12 GiB; set device.memory_bandwidth")
