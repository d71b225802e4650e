"""Random graphs of ONNX operators, each node of which onnxruntime computes as it is drawn.

What a node gives is known at once, so the next may depend on it: an index fits, a divisor is not 0,
and numbers stay of a size at which float32 and float64 agree. A tensor is *exact* where float32
computes it without rounding: only such ones are compared, rounded or sorted, as a last place would
decide these otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.importers.beside_onnxruntime import in_onnxruntime
from tests.importers.models import model, value

Drawing = Callable[[st.SearchStrategy[Any]], Any]
MOST_ELEMENTS, LARGEST = 4000, 1000.0
FLOATS = (np.float32,)
WHOLE = (np.int64, np.int32)
dtype_of = helper.np_dtype_to_tensor_dtype


@dataclass(frozen=True)
class Drawn:
    """A tensor of the graph, and what onnxruntime computed for it."""

    name: str
    value: np.ndarray
    exact: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.ndim


@dataclass
class RandomGraph:
    """A graph that grows by a node at a time."""

    draw: Drawing
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    tensors: list[Drawn] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    # What is drawn

    def one(self, values: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(values)))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        return tuple(self.draw(st.lists(st.integers(1, 5), min_size=low, max_size=high)))

    def elements(self, shape: Sequence[int], dtype: Any = np.float32, limit: int = 4) -> np.ndarray:
        """Numbers from ``-limit`` to ``limit``; those of floats are multiples of an eighth."""
        random = np.random.default_rng(self.number(0, 1 << 16))
        if dtype is np.bool_:
            return random.integers(0, 2, shape).astype(bool)
        if np.issubdtype(dtype, np.floating):
            return (random.integers(-8 * limit, 8 * limit + 1, shape) / 8).astype(dtype)
        low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -limit
        return random.integers(low, limit + 1, shape).astype(dtype)

    def axis(self, tensor: Drawn) -> int:
        """A dimension, counted from either end."""
        return self.number(-tensor.rank, tensor.rank - 1)

    def axes(self, tensor: Drawn) -> list[int]:
        """Some dimensions, each once, counted from the front."""
        chosen = st.lists(st.integers(0, tensor.rank - 1), unique=True, max_size=tensor.rank)
        return self.draw(chosen)

    def order(self, count: int) -> list[int]:
        return self.draw(st.permutations(range(count)))

    # What stands in the graph

    def given(self, array: np.ndarray, constant: bool | None = None) -> Drawn:
        """A tensor of the model's own, or an input of it."""
        kept = self.chance() if constant is None else constant
        named = self.initializers if kept else self.inputs
        drawn = Drawn(f"{'w' if kept else 'x'}{len(named)}", np.asarray(array))
        named[drawn.name] = drawn.value
        if not kept:
            self.tensors.append(drawn)
        return drawn

    def numbers(self, values: Sequence[int]) -> Drawn:
        """Axes, sizes or places, which the model knows."""
        return self.given(np.array(values, np.int64), constant=True)

    def pick(
        self,
        dtypes: Sequence[Any] = FLOATS,
        rank: tuple[int, int] = (0, 4),
        exact: bool = False,
        fits: Callable[[Drawn], bool] = lambda _: True,
    ) -> Drawn:
        """A tensor that stands there, the latest more often, or a new one."""
        low, high = rank
        candidates = [
            one
            for one in self.tensors
            if one.value.dtype.type in dtypes
            and low <= one.rank <= high
            and (one.exact or not exact)
            and fits(one)
        ]
        if candidates and self.number(0, 5):
            return self.one(candidates[-3:] if self.chance() else candidates)
        shape = self.shape(low, high)
        return self.given(self.elements(shape, self.one(dtypes)))

    def beside(self, tensor: Drawn, exact: bool = False) -> Drawn:
        """A tensor of the same type that broadcasts with another."""
        kind = tensor.value.dtype.type
        fitting = [
            one
            for one in self.tensors
            if one.value.dtype.type is kind and (one.exact or not exact) and _joins(one, tensor)
        ]
        if fitting and self.chance():
            return self.one(fitting)
        kept = [size if self.chance() else 1 for size in tensor.shape]
        return self.given(self.elements(kept[self.number(0, len(kept)) :], kind))

    def add(
        self,
        op: str,
        operands: Sequence[Drawn | None],
        *,
        results: int = 1,
        exact: bool = False,
        **attributes: Any,
    ) -> None:
        """Add a node, unless onnxruntime has no such one or it gives what is not tame."""
        names = [one.name if one else "" for one in operands]
        outputs = [f"t{len(self.nodes)}_{at}" for at in range(results)]
        node = helper.make_node(op, names, outputs, **attributes)
        there = {one.name: one.value for one in operands if one}
        infos = [value(name, one.shape, dtype_of(one.dtype)) for name, one in there.items()]
        alone = model([node], infos, outputs)
        for output in alone.graph.output:
            output.ClearField("type")
        computed = in_onnxruntime(alone, there)
        if not all(map(_tame, computed.values())):
            return
        sure = exact and all(one.exact for one in operands if one)
        self.tensors += [
            Drawn(name, array, sure or array.dtype.kind != "f") for name, array in computed.items()
        ]
        self.nodes.append(node)
        self.used |= set(names)

    def proto(self, named: Mapping[int, str]) -> onnx.ModelProto:
        """The model; sizes of inputs that ``named`` holds have the name in their place."""
        infos = [
            value(name, [named.get(size, size) for size in one.shape], dtype_of(one.dtype))
            for name, one in self.inputs.items()
        ]
        proto = model(self.nodes, infos, [], self.initializers)
        outputs = [value(one.name, None, dtype_of(one.value.dtype)) for one in self.leaves()]
        proto.graph.output.extend(outputs)
        return proto

    def leaves(self) -> list[Drawn]:
        """The tensors that no node takes, which are the outputs."""
        return [one for one in self.tensors if one.name not in self.used | set(self.inputs)]


def _tame(array: np.ndarray) -> bool:
    if array.size > MOST_ELEMENTS or array.size == 0:
        return False
    return array.dtype == bool or bool(np.all(np.abs(array.astype(np.float64)) <= LARGEST))


def _joins(one: Drawn, other: Drawn) -> bool:
    """Return whether one broadcasts to the shape of another."""
    if one.rank > other.rank:
        return False
    pairs = zip(one.shape[::-1], other.shape[::-1], strict=False)
    return all(size in (1, wanted) for size, wanted in pairs)
