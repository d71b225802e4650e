"""Running what was compiled in this very process: eager operations, and ``Module.compile``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from maxtool.compiler.lowering.function import bits
from maxtool.compiler.lowering.module import ModuleLowering
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.storage import Storage, plan_storage
from maxtool.compiler.target import CpuTarget, cpu_target
from maxtool.errors import MissingWeight
from maxtool.graph import BufferType, Graph, Tensor, TensorType
from maxtool.graph.ops.table import OPS

Array = np.ndarray[Any, Any]

ALIGNMENT = 64


class CompilingExecutor:
    """Runs operations and graphs by compiling them for this machine.

    Eager operations are compiled once for each structure: operation, types and attributes.
    """

    def __init__(self) -> None:
        self._target = cpu_target()
        self._operations: dict[tuple[object, ...], Program] = {}

    def evaluate(
        self,
        op: str,
        operands: Sequence[Tensor],
        attributes: Mapping[str, Any],
        results: Sequence[TensorType],
    ) -> tuple[Tensor, ...]:
        """Run one operation on concrete operands. An operand it would overwrite is copied first."""
        key = (op, tuple(operand.type for operand in operands), tuple(sorted(attributes.items())))
        if key not in self._operations:
            types = [TensorType(operand.dtype, operand.shape) for operand in operands]
            graph = Graph("eager", input_types=types)
            with graph:
                graph.output(*graph.add_node(op, graph.inputs, attributes, results))
            self._operations[key] = Program([graph], self._target)
        arrays = [operand.to_numpy() for operand in operands]
        written = OPS[op].writes
        if written is not None:
            arrays[written] = arrays[written].copy()
        return self._operations[key].run("eager", arrays, (), results)

    def compile(
        self, graph: Graph, weights: Mapping[str, Array]
    ) -> Callable[..., tuple[Tensor, ...]]:
        """Compile a graph for this machine; the result takes its inputs as tensors.

        Raises:
            MissingWeight: Listing the weights of the graph that ``weights`` lacks.
        """
        program = Program([graph], self._target)
        absent = [name for name in program.storage if name not in weights]
        if absent:
            raise MissingWeight("weights have no data", problems=absent)
        bound = [aligned(place.store(weights[name])) for name, place in program.storage.items()]
        results = [value.type for value in graph.outputs]
        return lambda *inputs: program.run(
            graph.name, [tensor.to_numpy() for tensor in inputs], bound, results
        )


class Program:
    """Compiled graphs in a virtual machine of this process.

    Args:
        graphs: The functions, each under its graph's name.
        target: What to compile for: this machine.
    """

    def __init__(self, graphs: Sequence[Graph], target: CpuTarget) -> None:
        self.storage: dict[str, Storage] = plan_storage(graphs, target)
        lowering = ModuleLowering(target, self.storage)
        for graph in graphs:
            lowering.entry(graph)
        self._graphs = {graph.name: graph for graph in graphs}
        executable = compile_module(lowering.module(), target)
        self._machine = relax.VirtualMachine(executable, tvm.cpu())

    def run(
        self,
        name: str,
        inputs: Sequence[Array],
        weights: Sequence[Array],
        results: Sequence[TensorType],
    ) -> tuple[Tensor, ...]:
        """Run one function. Arrays of buffer inputs must be aligned, and are written in place."""
        kinds = [value.type for value in self._graphs[name].inputs]
        tensors = [_device_tensor(array) for array in inputs]
        state = [
            tensor
            for tensor, kind in zip(tensors, kinds, strict=True)
            if isinstance(kind, BufferType)
        ]
        plain = [tensor for tensor in tensors if not any(tensor is other for other in state)]
        tuples = [tvm_ffi.Array(state)] if state else []
        bound = tvm_ffi.Array([_device_tensor(array) for array in weights])
        output = self._machine[name](*plain, *tuples, bound)
        outputs = [output] if len(results) == 1 else list(output)
        return tuple(
            Tensor(_host_array(value, kind)) for value, kind in zip(outputs, results, strict=True)
        )


def aligned(array: Array) -> Array:
    """``array`` contiguous at an address that TVM's kernels accept; copied if it is not."""
    if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@cache
def executor() -> CompilingExecutor:
    """The one executor of the process."""
    return CompilingExecutor()


def _device_tensor(array: Array) -> Any:  # noqa: ANN401 - tvm ships no types
    plain = aligned(bits(array))
    if not plain.flags.writeable:
        plain = aligned(plain.copy())
    return tvm_ffi.from_dlpack(plain)


def _host_array(value: Any, kind: TensorType) -> Array:  # noqa: ANN401
    array: Array = np.from_dlpack(value)
    return array.view(kind.dtype.to_numpy()) if array.dtype != kind.dtype.to_numpy() else array
