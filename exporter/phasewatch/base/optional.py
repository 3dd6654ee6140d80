"""None-propagating arithmetic: the result is None if any operand is."""


def add(a: float | None, b: float | None) -> float | None:
    """A + b."""
    return None if a is None or b is None else a + b


def multiply(a: float | None, b: float | None) -> float | None:
    """A x b."""
    return None if a is None or b is None else a * b


def divide(numerator: float | None, denominator: float | None) -> float | None:
    """Numerator / denominator; also None if the denominator is not above 0."""
    if numerator is None or denominator is None or denominator <= 0:
        return None
    return numerator / denominator


def compute_share(part: float | None, whole: float | None) -> float | None:
    """Part / whole; also None if that is above 1, which a share cannot be: the two were not counted at one moment."""
    ratio = divide(part, whole)
    return ratio if ratio is not None and ratio <= 1 else None


def average(a: float | None, b: float | None) -> float | None:
    """(a + b) / 2."""
    return None if a is None or b is None else (a + b) / 2
