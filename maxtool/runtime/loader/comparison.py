"""How far two arrays are apart, and whether a tolerance allows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class SupportsTolerance(Protocol):
    """What a recipe allows for one dtype."""

    @property
    def rtol(self) -> float:
        """Error allowed as a share of the expected size."""

    @property
    def atol(self) -> float:
        """Error allowed whatever the expected size."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing two arrays found.

    Attributes:
        relative_error: Euclidean norm of the difference over that of the expected array.
        max_abs_error: The largest absolute difference.
        worst_position: Where that difference is; the first element that is not finite, if any.
        argmax_agreement: Share of rows (last axis) whose largest element is at the same place.
        non_finite: Elements that are NaN or infinite in either array.
        rtol: Error allowed as a share of the expected size.
        atol: Error allowed whatever the expected size.
        passed: Whether both norms stay within the tolerance and every element is finite.
    """

    relative_error: float
    max_abs_error: float
    worst_position: tuple[int, ...]
    argmax_agreement: float
    non_finite: int
    rtol: float
    atol: float
    passed: bool

    def __str__(self) -> str:
        finite = f", {self.non_finite} values are not finite" if self.non_finite else ""
        return (
            f"relative error {self.relative_error:.2e} (allowed {self.rtol:.0e}), largest "
            f"difference {self.max_abs_error:.2e} at {list(self.worst_position)}, same top choice "
            f"in {self.argmax_agreement:.1%} of rows{finite}"
        )


def compare(
    actual: NDArray[Any], expected: NDArray[Any], tolerance: SupportsTolerance
) -> Comparison:
    """Compare in float64.

    It passes when ``size(actual - expected) <= atol + rtol * size(expected)`` holds for two
    measures of size: the root mean square, which ordinary rounding decides, and the largest
    absolute value, which one wrong element among millions decides. NaN and infinity never pass.

    Args:
        actual: Any shape, at least one element.
        expected: The same shape.
        tolerance: ``rtol`` and ``atol`` of the rule above.

    Raises:
        ValueError: If the shapes differ or there is nothing to compare.
    """
    _check_shapes(actual, expected)
    wide, reference = (np.atleast_1d(array).astype(np.float64) for array in (actual, expected))
    finite = np.isfinite(wide) & np.isfinite(reference)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(finite, np.abs(wide - reference), np.inf)
        passed = bool(finite.all()) and all(
            size(difference) <= tolerance.atol + tolerance.rtol * size(reference)
            for size in (_root_mean_square, _largest)
        )
        relative_error = _relative(difference, reference)
    return Comparison(
        relative_error=relative_error,
        max_abs_error=_largest(difference),
        worst_position=_position(difference),
        argmax_agreement=_agreement(wide, reference),
        non_finite=int(finite.size - finite.sum()),
        rtol=tolerance.rtol,
        atol=tolerance.atol,
        passed=passed,
    )


def _check_shapes(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    if actual.shape != expected.shape:
        raise ValueError(
            f"the output has shape {list(actual.shape)}, the reference {list(expected.shape)}"
        )
    if not actual.size:
        raise ValueError(f"nothing to compare: the shape is {list(actual.shape)}")


def _root_mean_square(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _largest(values: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(values)))


def _relative(difference: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Zero over zero is no error; something over zero is an infinite one."""
    error, size = _root_mean_square(difference), _root_mean_square(reference)
    if not np.isfinite(error):
        return float("inf")
    return error / size if size else float("inf") if error else 0.0


def _position(difference: NDArray[np.float64]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.unravel_index(difference.argmax(), difference.shape))


def _agreement(actual: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """A row with NaN agrees only by accident, which ``passed`` does not look at."""
    return float(np.mean(np.argmax(actual, axis=-1) == np.argmax(expected, axis=-1)))
