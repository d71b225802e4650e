"""What an operation of a recipe is: on arrays, on shapes, and undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from maxtool.dtype import DType

Array = NDArray[Any]
Shape = tuple[int, ...]
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """One operation with its parameters, sizes as numbers."""

    op: str
    params: Params


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    Attributes:
        params: Parameter name to kind; the kinds are those of ``parse_rules.KINDS``.
        optional: Parameters that need not be given, with what they then are.
        apply: The operation on arrays.
        shapes: The operation on shapes; raises MisshapenWeight where it cannot be applied.
        inverse: The step that undoes it.
        inputs: "one" (each array by itself), "many" (joins them).
        admits: The element types it is exact for; others are widened to float32 first.
        whole_rows: Whether it moves whole rows only, given parameters and number of dimensions.
        result: The element type it gives.
        rounds: Whether some values get rounded or lost, and the inverse then gives other bits.
        problems: What is wrong with the parameters themselves.
        recipe: Whether a recipe may name it; the others exist as inverses only.
    """

    params: Mapping[str, str]
    apply: Callable[[Sequence[Array], Params], list[Array]]
    shapes: Callable[[Sequence[Shape], Params], list[Shape]]
    inverse: Callable[[Params], Step]
    optional: Mapping[str, Any] = field(default_factory=dict)
    inputs: str = "one"
    admits: Callable[[DType], bool] = lambda _dtype: True
    whole_rows: Callable[[Params, int], bool] = lambda _params, _ndim: False
    result: Callable[[DType, Params], DType] = lambda dtype, _params: dtype
    rounds: bool = False
    problems: Callable[[Params], list[str]] = lambda _params: []
    recipe: bool = True
