"""Steps of a rule, and the rows of the table of operations that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """Operation with its parameters, sizes as numbers."""

    op: str
    params: Params


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    Attributes:
        params: Parameter name to kind, a row of ``parse_rules.KINDS``.
        apply: The operation on arrays.
        shapes: The operation on shapes; raises MisshapenWeight where it cannot be applied.
        inverse: The step that undoes it.
        optional: Parameters that may be left out, with their values then.
        joins: Whether it joins several arrays.
        whole_rows: Whether it moves whole rows only, by parameters and number of dimensions.
        computes: Whether it computes, in float32 at least: values may be rounded.
        rounds: Whether some values get rounded or lost, and the inverse then gives other bits.
        problems: Problems with the parameters themselves.
        recipe: Whether a recipe may name it; the others exist as inverses only.
    """

    params: Mapping[str, str]
    apply: Callable[[Sequence[Array], Params], list[Array]]
    shapes: Callable[[Sequence[Shape], Params], list[Shape]]
    inverse: Callable[[Params], Step]
    optional: Mapping[str, Any] = field(default_factory=dict)
    joins: bool = False
    whole_rows: Callable[[Params, int], bool] = lambda _params, _ndim: False
    computes: bool = False
    rounds: bool = False
    problems: Callable[[Params], list[str]] = lambda _params: []
    recipe: bool = True
