"""Storage of each weight of an artifact: packed for the kernels that read it, or plain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum, auto
from math import prod
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from maxtool.compiler.filter_storage import FilterForm, filter_forms
from maxtool.compiler.fusion.epilogue_fusions import FUSED, matrices_of
from maxtool.compiler.fusion.node_index import AnyNode, NodeIndex
from maxtool.compiler.packing import pack_linear, packed_shape
from maxtool.compiler.placement import Placement, device_of
from maxtool.compiler.quantized_layout import LAYOUTS
from maxtool.compiler.quantized_packing import pack_quantized, quantized_shape, unpack_quantized
from maxtool.compiler.storage_types import bits, stored
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.graph import CallNode, Graph, Node, Tensor
from maxtool.quantization import QuantizationEncoding
from maxtool.runtime.loader.memory import aligned
from maxtool.weights.weight_data import WeightData


class Reading(Enum):
    """Ways to read a weight: as it is, row by row in any packing, or as a packed matrix."""

    PLAIN = auto()
    ROWS = auto()
    MATRIX = auto()


# How a weight is read, as the filter of a convolution in one of some forms.
Role: TypeAlias = Reading | tuple[FilterForm, ...]

# Operations whose second operand is a weight that their kernel reads packed: how, and its rank.
PACKED_OPERANDS = {
    "linear": (Reading.MATRIX, 2),
    "embedding": (Reading.ROWS, 2),
    "expert_linear": (Reading.MATRIX, 3),
}

# The block encodings that the kernels of each kind of target read, by the rank of the weight.
ENCODINGS: Mapping[str, Mapping[int, Collection[QuantizationEncoding]]] = {
    "cpu": dict.fromkeys((2, 3), LAYOUTS.keys()),
    "cuda": {},
}


@dataclass(frozen=True, slots=True)
class WeightStorage:
    """The storage of one weight in an artifact."""

    name: str  # in full
    dtype: DType  # of its elements
    shape: tuple[int, ...]  # in the module
    # Output features in a packed block, 1 of a table that is read by rows alone; None if it is
    # stored as it is, or quantized.
    block: int | None
    # How its blocks of elements are encoded where it is stored quantized.
    encoding: QuantizationEncoding | None = None
    # Neighbouring terms of an output feature that lie side by side in a packed block; where they
    # are several, kernels round what several rows of them are multiplied with to the same type.
    terms: int = 1
    # How it lies where it is the filter of a convolution that has a kernel of its own.
    form: FilterForm | None = None

    @property
    def is_packed(self) -> bool:
        """Return whether it lies as kernels of matrices read it, not as it is."""
        return self.block is not None or self.encoding is not None

    @property
    def type_name(self) -> str:
        """Name of what its elements are stored as: an encoding or an element type."""
        return self.dtype.value if self.encoding is None else self.encoding.name

    @property
    def held_dtype(self) -> DType:
        """Type of the elements of the array in the file: bytes where it is quantized."""
        return self.dtype if self.encoding is None else DType.uint8

    @property
    def stored_dtype(self) -> str:
        """Element type of the kernel's parameter."""
        return stored(self.held_dtype)

    @property
    def held_shape(self) -> tuple[int, ...]:
        """The shape of the array that :meth:`store` takes: rows of bytes where it is quantized."""
        if self.encoding is None:
            return self.shape
        return (*self.shape[:-1], self.encoding.row_bytes(self.shape[-1]))

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in the file and in the kernel's parameter."""
        if self.form is not None:
            return self.form.shape(self.shape)
        if not self.is_packed:
            return self.shape
        *experts, n, k = self.shape
        return *experts, *self._matrix_shape(n, k)

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return prod(self.stored_shape) * self.held_dtype.size_in_bytes

    def readable(self, target_kind: str) -> Collection[QuantizationEncoding]:
        """The encodings in which kernels of a kind of target could read it."""
        return ENCODINGS[target_kind].get(len(self.shape), ()) if self.is_packed else ()

    def as_stored(self, data: WeightData) -> WeightData:
        """A weight in the type that it is stored in; decoded unless it is stored quantized."""
        if self.encoding is None:
            return data.astype(self.dtype)
        if data.quantization_encoding is not self.encoding:
            raise ValueError(
                f"{self.name} is stored as {self.encoding.name}, and is not so encoded"
            )
        return data

    def store(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """``values``, of the module's shape and any float type, as they are stored.

        Of a weight that is stored quantized they are its bytes ``[..., bytes of a row]``.
        """
        typed = values.astype(self.held_dtype.to_numpy(), copy=False)
        if self.form is not None:
            return bits(self.form.store(typed))
        return bits(self._packed(typed) if self.is_packed else typed)

    def restore(self, stored: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Undo :meth:`store`: a copy of what it was given, in the module's element type."""
        if self.encoding is not None:
            matrices = stored.reshape(-1, *stored.shape[-3:])
            undone = [unpack_quantized(each, self.encoding, self.shape[-2]) for each in matrices]
            return np.stack(undone).reshape(self.held_shape)
        values = np.ascontiguousarray(stored).view(self.dtype.to_numpy())
        if self.form is not None:
            return self.form.restore(values, self.shape)
        if self.block is not None:
            *outer, n, k = self.shape
            steps = -(-k // self.terms)
            values = values.reshape(*outer, -1, steps, self.block, self.terms).swapaxes(-3, -2)
            values = values.reshape(*outer, -1, steps * self.terms)[..., :n, :k]
        return values.reshape(self.shape).copy()

    def _matrix_shape(self, n: int, k: int) -> tuple[int, ...]:
        """The shape of one packed matrix."""
        if self.encoding is not None:
            return quantized_shape(self.encoding, n, k)
        return packed_shape(n, k, self.block or 1, self.terms)

    def _packed(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The matrix, or one after the other those of all experts."""
        laid = aligned(self.stored_shape, values.dtype, np.empty)
        matrices = values.reshape(-1, *values.shape[-2:])
        places = laid.reshape(-1, *self._matrix_shape(*self.shape[-2:]))
        for matrix, out in zip(matrices, places, strict=True):
            if self.encoding is not None:
                pack_quantized(matrix, self.encoding, out=out)
            else:
                pack_linear(matrix, self.block or 1, self.terms, out=out)
        return laid


def plan_storage(
    graphs: Iterable[Graph],
    placement: Placement,
    rewritten: Callable[[Graph], NodeIndex],
    encodings: Mapping[str, QuantizationEncoding],
) -> dict[str, WeightStorage]:
    """Return the storage of every weight that the graphs need, sorted by name.

    A weight is packed when every use of it, in any graph, reads it packed; it stays quantized if it
    comes so and there are kernels for its encoding. ``rewritten`` gives the nodes of a graph, or of
    a subgraph, as they are lowered, ``encodings`` how the values of quantized weights are encoded.
    """
    uses: dict[str, set[Role]] = defaultdict(set)
    types: dict[str, Tensor] = {}
    known: dict[Graph, Mapping[int, set[Role]]] = {}
    for graph in graphs:
        roles = _roles(graph, placement, rewritten, known)
        for name, value in graph.weight_values.items():
            uses[name] |= roles[id(value)]
            types[name] = value
    return {
        name: _storage(
            name,
            types[name],
            placement.target(types[name].device),
            _agreed(ways),
            encodings.get(name),
        )
        for name, ways in sorted(uses.items(), key=itemgetter(0))
    }


def _agreed(ways: Set[Role]) -> Reading | FilterForm:
    """Return how a weight is stored that is read in some ways: as all of them can read it."""
    if ways and ways <= {Reading.ROWS, Reading.MATRIX}:
        return Reading.MATRIX if Reading.MATRIX in ways else Reading.ROWS
    forms = [way for way in ways if isinstance(way, tuple)]
    if len(forms) < len(ways):
        return Reading.PLAIN
    common = [form for form in forms[0] if all(form in way for way in forms)]
    ranked = sorted(common, key=lambda form: (sum(way.index(form) for way in forms), repr(form)))
    return ranked[0] if ranked else Reading.PLAIN


def encodings_of(storage: Mapping[str, WeightStorage]) -> dict[str, QuantizationEncoding]:
    """Return how the weights are encoded that are stored quantized, by name."""
    return {name: each.encoding for name, each in storage.items() if each.encoding is not None}


def _storage(
    name: str,
    value: Tensor,
    target: Target,
    role: Reading | FilterForm,
    encoding: QuantizationEncoding | None,
) -> WeightStorage:
    """The storage of a weight for the kernels of a target, which all read it in one way."""
    plain = name, value.dtype, value.shape.static()
    if role is Reading.PLAIN:
        return WeightStorage(*plain, None)
    if isinstance(role, FilterForm):
        return WeightStorage(*plain, None, form=role)
    storage = WeightStorage(*plain, target.packing, terms=target.terms(value.dtype))
    if value.dtype is DType.float32 and encoding in storage.readable(target.kind):
        return WeightStorage(*plain, None, encoding)
    if role is Reading.ROWS and storage.is_packed:
        return WeightStorage(*plain, 1)  # the elements of a row side by side
    return storage


def _role(node: AnyNode, index: int, placement: Placement) -> Role:
    """Return how an operand of a node is read."""
    if isinstance(node, CallNode):
        return Reading.PLAIN
    forms = filter_forms(node, placement.target(device_of(node))) if index == 1 else ()
    return forms or _reading(node, index)


def _reading(node: Node, index: int) -> Reading:
    """Return how a kernel takes that operand; packed are matrices that are added up in float32."""
    reading, rank = PACKED_OPERANDS.get(node.op, (Reading.PLAIN, 0))
    is_matrix = index == 1 and node.inputs[index].rank == rank
    if node.op == FUSED and index in matrices_of(node):
        reading, is_matrix = Reading.MATRIX, True
    is_wide = DType.float64 in (node.inputs[0].dtype, node.inputs[index].dtype)
    return reading if is_matrix and not is_wide else Reading.PLAIN


def _roles(
    graph: Graph,
    placement: Placement,
    rewritten: Callable[[Graph], NodeIndex],
    known: dict[Graph, Mapping[int, set[Role]]],
) -> defaultdict[int, set[Role]]:
    """Return for each value of a graph the ways in which it is read."""
    roles: defaultdict[int, set[Role]] = defaultdict(set)
    for node in rewritten(graph).nodes:
        for index, operand in enumerate(node.inputs):
            roles[id(operand)].add(_role(node, index, placement))
        if isinstance(node, CallNode):
            if node.callee not in known:
                known[node.callee] = _roles(node.callee, placement, rewritten, known)
            below = known[node.callee]
            for passed, parameter in zip(node.weights, node.callee.parameters(), strict=True):
                roles[id(passed)] |= below[id(parameter)]
    for value in graph.outputs:
        roles[id(value)].add(Reading.PLAIN)
    return roles
