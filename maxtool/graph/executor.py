"""Executors: what runs operations and graphs at once registers itself here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, Protocol, TypeAlias

import numpy as np

from maxtool.graph.accelerator_array import AcceleratorArray
from maxtool.graph.device import DeviceRef
from maxtool.graph.graph import Graph
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import TensorType
from maxtool.graph.weight import Weight
from maxtool.quantization import QuantizationEncoding
from maxtool.weights.weight_data import WeightData

# What runs one operation or graph: from its operands to its results.
Run: TypeAlias = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]

# The module that registers an executor when it is imported, which happens when something is to run
# and none is registered: importing the compiler costs a second and 200 MB.
PROVIDER = "maxtool.compiler.compiling_executor"


class CompiledGraph(Protocol):
    """A graph compiled with the values of its weights."""

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run it on its inputs."""
        ...

    @property
    def encodings(self) -> Mapping[str, QuantizationEncoding]:
        """Encodings of the weights that are stored quantized, by name."""
        ...

    def weight(self, name: str) -> WeightData:
        """A copy of a weight as it was when the graph was compiled; quantized if it is so."""
        ...


class OperationRunner(Protocol):
    """Protocol of an object that runs operations."""

    def prepared(
        self,
        op: str,
        types: Sequence[TensorType],
        attributes: Mapping[str, Any],
        results: Sequence[TensorType],
    ) -> Run:
        """One operation as a function of concrete operands of these types."""
        ...


class Executor(OperationRunner, Protocol):
    """Protocol of an object that runs operations and graphs."""

    def compile(
        self,
        graph: Graph,
        weights: Mapping[str, np.ndarray[Any, Any]],
        encodings: Mapping[str, QuantizationEncoding] | None = None,
    ) -> CompiledGraph:
        """Compile a graph with the values of its weights; the result takes its inputs.

        The values are elements, or bytes of blocks for those that ``encodings`` names.
        """
        ...

    def upload(self, array: np.ndarray[Any, Any], device: DeviceRef) -> AcceleratorArray:
        """A copy of an array in the memory of an accelerator."""
        ...


_registered: list[Callable[[], Executor]] = []
_chosen: ContextVar[OperationRunner | None] = ContextVar("maxtool_operations_by", default=None)


def register(factory: Callable[[], Executor]) -> None:
    """Let operations and graphs run by the executor that ``factory`` gives."""
    _registered.append(factory)


def find_executor() -> Executor:
    """The executor that was registered last; that of ``PROVIDER`` if there is none."""
    if not _registered:
        import_module(PROVIDER)
    return _registered[-1]()


@contextmanager
def operations_by(runner: OperationRunner) -> Iterator[None]:
    """Let ``runner`` compute on data that is here while a graph is traced, without a compiler."""
    token = _chosen.set(runner)
    try:
        yield
    finally:
        _chosen.reset(token)


def prepared(
    op: str,
    operands: Sequence[Tensor],
    attributes: Mapping[str, Any],
    results: Sequence[TensorType],
) -> Run:
    """One operation as a function of operands of the types of these."""
    run = (_chosen.get() or find_executor()).prepared(
        op, [operand.type for operand in operands], attributes, results
    )
    if any(isinstance(operand, Weight) for operand in operands):
        return lambda given: run([_decoded(operand) for operand in given])
    return run


def upload(tensor: Tensor, device: DeviceRef) -> AcceleratorArray:
    """A copy of a tensor's elements in the memory of an accelerator that this machine must have."""
    there = device.to_device()
    if tensor.device_array is not None:
        return tensor.device_array.to(there)
    return find_executor().upload(_decoded(tensor).to_numpy(), there)


def _decoded(operand: Tensor) -> Tensor:
    """The elements of a quantized weight, as operations take them; any other operand itself."""
    if not isinstance(operand, Weight) or operand.quantization_encoding is None:
        return operand
    return Tensor(operand.elements(), device=operand.device)
