"""Differences between two checkpoints, tensor by tensor, by the names in their files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from maxtool.weights.checkpoint import Checkpoint
from maxtool.weights.names import selected
from maxtool.weights.pairing import Difference, by_names
from maxtool.weights.tensor_info import TensorInfo


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two checkpoints, compared.

    Attributes:
        only_left: Tensors that only the first has.
        only_right: Tensors that only the second has.
        changed: Tensors of one name with another type or shape, first and second.
        same: How many tensors of one name have one type and shape.
        differences: How far values lie apart, of every tensor with one shape in both; empty
            unless values were compared.
    """

    only_left: tuple[TensorInfo, ...]
    only_right: tuple[TensorInfo, ...]
    changed: tuple[tuple[TensorInfo, TensorInfo], ...]
    same: int
    differences: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """Return whether nothing differs."""
        apart = any(difference.distance.differing for difference in self.differences)
        return not (self.only_left or self.only_right or self.changed or apart)


def compare(
    left: Checkpoint,
    right: Checkpoint,
    *,
    pattern: str | None = None,
    values: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare names, types and shapes, and if asked for also values, block types decoded.

    ``progress`` is told the bytes of the first one's payloads done since the last call.
    """
    names = selected(dict.fromkeys([*left.tensors, *right.tensors]), pattern)
    pairs = [(left.tensors.get(name), right.tensors.get(name)) for name in names]
    both = [(one, other) for one, other in pairs if one and other]
    changed = tuple((one, other) for one, other in both if _form(one) != _form(other))
    measured = by_names(left, right, pattern).pairs if values else ()
    return Comparison(
        tuple(one for one, other in pairs if one and not other),
        tuple(other for one, other in pairs if other and not one),
        changed,
        len(both) - len(changed),
        tuple(pair.measure(progress) for pair in measured),
    )


def _form(tensor: TensorInfo) -> object:
    return tensor.type_name, tensor.shape
