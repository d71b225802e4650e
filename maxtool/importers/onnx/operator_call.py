"""One node as its operator sees it: operands, attributes, and how its graphs are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Dim, Tensor, Weight
from maxtool.importers.onnx.origins import Origins
from maxtool.importers.onnx.refusals import RefusedNode, UnknownValues, require
from maxtool.importers.onnx.values import (
    Size,
    Sizes,
    TensorSequence,
    Value,
    as_tensor,
    is_known,
)


@dataclass(frozen=True)
class OperatorCall:
    """A node.

    Attributes:
        op_type: The operator's name.
        opset: The version of the operator's domain.
        operands: The values of the inputs; None for one that is left out.
        names: The names of the inputs.
        results: The names of the outputs; empty for one that is not used.
        attributes: The attributes by name, as Python has them.
        run_graph: Runs a graph among the attributes on values, and gives its outputs.
        new_name: Gives a name for a size that only a run of the graph says.
        at_most: Says that no call may bring a larger size of a name.
        origins: What tensors are known to be made of.
    """

    op_type: str
    opset: int
    operands: Sequence[Value]
    names: Sequence[str]
    results: Sequence[str]
    attributes: Mapping[str, Any]
    run_graph: Callable[[Any, Sequence[Value]], list[Value]]
    new_name: Callable[[str], str]
    at_most: Callable[[str, int], None]
    origins: Origins = field(default_factory=Origins)
    _used: set[str] = field(default_factory=set, repr=False)

    def has(self, index: int) -> bool:
        """Return whether there is an input of that number."""
        return index < len(self.operands) and self.operands[index] is not None

    def wants(self, index: int) -> bool:
        """Return whether the output of that number is used."""
        return index < len(self.results) and bool(self.results[index])

    def value(self, index: int) -> Value:
        """An input, which must be there."""
        require(self.has(index), f"it has no input {index}")
        return self.operands[index]

    def x(self, index: int = 0) -> Tensor:
        """An input as a tensor."""
        value = self.value(index)
        if isinstance(value, Tensor | Sizes):
            return as_tensor(value)
        raise RefusedNode(f"its input {index} is not a tensor")

    def maybe(self, index: int) -> Tensor | None:
        """An input as a tensor, or None if it is left out."""
        return self.x(index) if self.has(index) else None

    def tensors(self) -> list[Tensor]:
        """All inputs as tensors."""
        return [self.x(index) for index in range(len(self.operands))]

    def sequence(self, index: int = 0) -> TensorSequence:
        """An input that is a sequence."""
        value = self.value(index)
        if isinstance(value, TensorSequence):
            return value
        raise RefusedNode(f"its input {index} is not a sequence")

    def known(self, index: int) -> NDArray[Any]:
        """The elements of an input, which must be known."""
        tensor = self.x(index)
        if isinstance(tensor, Weight) or is_known(tensor):
            return tensor.to_numpy()
        raise UnknownValues([(self.names[index], tensor)])

    def known_or(self, index: int, default: Any) -> NDArray[Any]:  # noqa: ANN401 - numbers
        """The elements of an input, or others if it is left out."""
        return self.known(index) if self.has(index) else np.asarray(default)

    def ints(self, index: int) -> list[int]:
        """The whole numbers of an input, which must be known."""
        return [int(one) for one in self.known(index).reshape(-1)]

    def sizes(self, index: int) -> list[Size]:
        """The whole numbers of an input, of which some may be named sizes."""
        value = self.value(index)
        if isinstance(value, Sizes):
            return [*value.elements.flat]
        return list(self.ints(index))

    def size(self, index: int) -> Size:
        """The one whole number of an input."""
        sizes = self.sizes(index)
        require(len(sizes) == 1, f"its input {index} is not one number")
        return sizes[0]

    def decide(self, *indices: int) -> None:
        """Refuse all of some inputs at once whose elements are not known, and decide shapes."""
        if unknown := self.unknown(*indices):
            raise UnknownValues(unknown)

    def unknown(self, *indices: int) -> list[tuple[str, Tensor]]:
        """Inputs, of some, whose elements are not known, each with its name."""
        values = [(self.names[i], self.operands[i]) for i in indices if self.has(i)]
        return [
            (name, value)
            for name, value in values
            if isinstance(value, Tensor) and not (isinstance(value, Weight) or is_known(value))
        ]

    def attribute(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - of any type
        """An attribute; a :class:`RefusedNode` if it is absent and has no default."""
        value = self.attributes.get(name, default)
        require(value is not None, f"it has no attribute {name!r}")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """An attribute that is a whole number."""
        return int(self._of(name, default, int))

    def flag(self, name: str, default: int = 0) -> bool:
        """An attribute that is 0 or 1."""
        return bool(self.number(name, default))

    def real(self, name: str, default: float | None = None) -> float:
        """An attribute that is a number."""
        return float(self._of(name, default, (int, float)))

    def text(self, name: str, default: str | None = None) -> str:
        """An attribute that is a text."""
        return str(self._of(name, default, str))

    def numbers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """An attribute that is a list of whole numbers."""
        return [int(one) for one in self._of(name, default, (list, tuple))]

    def dtype(self, name: str, default: DType | None = None) -> DType:
        """An attribute that is an element type."""
        code = self.attributes.get(name)
        if code is None and default is not None:
            return default
        return dtype_of(self.number(name))

    def axis(self, rank: int, default: int | None = None) -> int:
        """The attribute ``axis``, counted from the first of so many dimensions."""
        return axis_in(self.number("axis", default), rank)

    def only(self, attributes: str, inputs: int) -> None:
        """Refuse attributes, by their names in a list, and inputs that an operator has no use for.

        ONNX checks those of its own operators; other domains have no schemas here.
        """
        unknown = sorted({*self.attributes} - {*attributes.split()})
        require(not unknown, f"its attributes {', '.join(unknown)} are not supported")
        more = [at for at in range(inputs, len(self.operands)) if self.has(at)]
        require(not more, f"its inputs {', '.join(map(str, more))} are not supported")

    def dim(self, label: str) -> Dim:
        """A new size that only a run of the graph says."""
        return Dim(self.new_name(label))

    def _of(self, name: str, default: Any, kinds: Any) -> Any:  # noqa: ANN401 - of these kinds
        if name not in self.attributes and default is not None:
            return default
        value = self.attribute(name)
        require(isinstance(value, kinds), f"its attribute {name!r} is of the wrong type")
        return value


def axis_in(axis: int, rank: int) -> int:
    """A dimension counted from the first; a :class:`RefusedNode` if there is none."""
    require(-rank <= axis < rank, f"there is no dimension {axis} in {rank}")
    return axis % rank


def dtype_of(code: int) -> DType:
    """The element type of a number of ``TensorProto.DataType``."""
    from maxtool.dtype import BY_ONNX
    from maxtool.weights.formats.onnx import OTHER_TYPES, STRING

    if code in BY_ONNX:
        return BY_ONNX[code]
    name = "STRING" if code == STRING else OTHER_TYPES.get(code, str(code))
    raise RefusedNode(f"the element type {name} is not supported")
