"""Distance of two arrays, and whether a tolerance allows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Tolerance:
    """The error that is allowed: ``atol + rtol * size``, for both measures of size.

    Attributes:
        largest: What ``rtol`` is for the largest absolute value, where it is not the same.
        are_steps: Whether whole numbers are what floats were rounded to, and may be as far off.
    """

    rtol: float
    atol: float
    largest: float | None = None
    are_steps: bool = False

    @property
    def shares(self) -> tuple[float, float]:
        """Shares of the sizes, in the order in which ``sizes`` returns these."""
        return self.rtol, self.rtol if self.largest is None else self.largest


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing two arrays.

    Attributes:
        relative_error: Euclidean norm of the difference over that of the expected array.
        worst_position: Where the largest difference is; the first element that differs, of those
            that must be equal; empty where there are no elements.
        argmax_agreement: Share of rows (last axis) whose largest element is at the same place.
        unequal: Elements that differ and must be equal: whole numbers and truth values, and those
            that are NaN or infinite in either array.
        passed: Whether none are unequal, and both norms stay within the tolerance.
    """

    relative_error: float
    max_abs_error: float
    worst_position: tuple[int, ...]
    argmax_agreement: float
    unequal: int
    size: int
    is_exact: bool  # all elements must be equal
    rtol: float
    atol: float
    passed: bool

    def __str__(self) -> str:
        if self.is_exact:
            place = f", most at {list(self.worst_position)}" if self.unequal else ""
            return f"{self.unequal} of {self.size} whole numbers differ{place}"
        unequal = f", {self.unequal} NaN or infinite values differ" if self.unequal else ""
        tiny = self.passed and self.relative_error > self.rtol
        beside = f", and {self.atol:.0e} of any size" if tiny else ""
        return (
            f"relative error {self.relative_error:.2e} (allowed {self.rtol:.0e}{beside}), largest "
            f"difference {self.max_abs_error:.2e} at {list(self.worst_position)}, same top choice "
            f"in {self.argmax_agreement:.1%} of rows{unequal}"
        )


def compare(actual: NDArray[Any], expected: NDArray[Any], tolerance: Tolerance) -> Comparison:
    """Compare floats in float64, and whole numbers and truth values as they are.

    Floats pass when ``size(actual - expected) <= atol + rtol * size(expected)`` holds for two
    measures of size, each with its own ``rtol``: the root mean square, which ordinary rounding
    decides, and the largest absolute value, which one wrong element among millions decides. NaN
    equals NaN, and an infinity itself; neither equals anything else. Others pass when all are
    equal, unless they are steps of floats.

    Raises:
        ValueError: If the shapes differ.
    """
    if actual.shape != expected.shape:
        raise ValueError(
            f"the output has shape {list(actual.shape)}, the reference {list(expected.shape)}"
        )
    is_exact = expected.dtype.kind in WHOLE and not tolerance.are_steps
    wide, reference = (np.atleast_1d(array).astype(np.float64) for array in (actual, expected))
    unequal = _unequal(np.atleast_1d(actual), np.atleast_1d(expected), is_exact=is_exact)
    finite_reference = np.where(np.isfinite(reference), reference, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(wide - reference)
        # Equal infinities have no difference; whole numbers may be too large to have one here.
        difference = np.where(unequal, apart.clip(1) if is_exact else np.inf, np.nan_to_num(apart))
        passed = not unequal.any() and all(
            error <= tolerance.atol + share * size
            for error, size, share in zip(
                sizes(difference), sizes(finite_reference), tolerance.shares, strict=True
            )
        )
        relative_error = _relative(difference, finite_reference)
    return Comparison(
        relative_error=relative_error,
        max_abs_error=_largest(difference),
        worst_position=_position(difference),
        argmax_agreement=_agreement(wide, reference),
        unequal=int(unequal.sum()),
        size=unequal.size,
        is_exact=is_exact,
        rtol=tolerance.rtol,
        atol=tolerance.atol,
        passed=passed,
    )


def sizes(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return both measures of size: the root mean square, and the largest absolute value."""
    return _root_mean_square(values), _largest(values)


WHOLE = "biu"  # kinds of NumPy's types that are compared exactly: truth values, whole numbers


def _unequal(actual: NDArray[Any], expected: NDArray[Any], *, is_exact: bool) -> NDArray[np.bool_]:
    """Mark the elements that differ and must be equal."""
    if is_exact:
        return np.asarray(actual != expected)
    wide, reference = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(reference)
    return np.asarray(~finite & (wide != reference) & ~(np.isnan(wide) & np.isnan(reference)))


def _root_mean_square(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def _largest(values: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def _relative(difference: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Zero over zero is no error; something over zero is an infinite one."""
    error, size = _root_mean_square(difference), _root_mean_square(reference)
    if not np.isfinite(error):
        return float("inf")
    return error / size if size else float("inf") if error else 0.0


def _position(difference: NDArray[np.float64]) -> tuple[int, ...]:
    if not difference.size:
        return ()
    return tuple(int(axis) for axis in np.unravel_index(difference.argmax(), difference.shape))


def _agreement(actual: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """A row with NaN agrees only by accident, which ``passed`` does not look at."""
    if not actual.size:
        return 1.0
    return float(np.mean(np.argmax(actual, axis=-1) == np.argmax(expected, axis=-1)))
