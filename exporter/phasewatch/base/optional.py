"""Arithmetic with figures that may not be known: what follows from one that is not is not known either."""


def add(a: float | None, b: float | None) -> float | None:
    """A sum, or None where a side is unknown."""
    return None if a is None or b is None else a + b


def multiply(a: float | None, b: float | None) -> float | None:
    """A product, or None where a side is unknown."""
    return None if a is None or b is None else a * b


def average(a: float | None, b: float | None) -> float | None:
    """The middle of two figures, or None where one is unknown."""
    return None if a is None or b is None else (a + b) / 2
