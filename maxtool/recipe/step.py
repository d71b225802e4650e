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
    """A row of the table."""

    params: Mapping[str, str]  # parameter name to kind, a row of parse_rules.KINDS
    apply: Callable[[Sequence[Array], Params], list[Array]]
    # The operation on shapes; raises MisshapenWeight where it cannot be applied.
    shapes: Callable[[Sequence[Shape], Params], list[Shape]]
    inverse: str  # the operation that undoes it
    optional: Mapping[str, Any] = field(default_factory=dict)  # to their values when left out
    undoing: Callable[[Params], Params] = lambda params: params  # the inverse's parameters
    joins: bool = False  # several arrays
    # Whether only whole rows move, by parameters and number of dimensions.
    whole_rows: Callable[[Params, int], bool] = lambda _params, _ndim: False
    computes: bool = False  # in float32 at least: values may be rounded
    rounds: bool = False  # some values, or loses them: the inverse then gives other bits
    problems: Callable[[Params], list[str]] = lambda _params: []  # of the parameters themselves
    # Whether it changes nothing, by resolved parameters: such a step is left out.
    does_nothing: Callable[[Params], bool] = lambda _params: False
    recipe: bool = True  # whether a recipe may name it; the others exist as inverses only


def each(function: Callable[..., Any]) -> Callable[[Sequence[Any], Params], list[Any]]:
    """``function`` on every array, or every shape, by itself."""
    return lambda items, params: [function(item, params) for item in items]
