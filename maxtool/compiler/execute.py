"""Running what was compiled in this very process: eager operations, and ``Module.compile``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import compress
from threading import Lock
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from maxtool.compiler.lowering.function import bits
from maxtool.compiler.lowering.module import ModuleLowering
from maxtool.compiler.lowering.rules import PRINT
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.storage import Storage, plan_storage
from maxtool.compiler.target import CpuTarget, cpu_target
from maxtool.dtype import DType
from maxtool.errors import MachineLacks, MisshapenWeight, MissingWeight
from maxtool.graph import BufferType, Graph, Tensor, TensorType
from maxtool.graph.limits import devices
from maxtool.graph.ops.flow import show
from maxtool.runtime.loader import set_threads

Array = np.ndarray[Any, Any]

ALIGNMENT = 64


class CompilingExecutor:
    """Runs operations and graphs by compiling them for this machine.

    Eager operations are compiled once for each structure: operation, types and attributes.
    """

    def __init__(self) -> None:
        set_threads(0)
        self._target = cpu_target()
        self._operations: dict[tuple[object, ...], Program] = {}
        self._lock = Lock()

    def evaluate(
        self,
        op: str,
        operands: Sequence[Tensor],
        attributes: Mapping[str, Any],
        results: Sequence[TensorType],
    ) -> tuple[Tensor, ...]:
        """Run one operation on concrete operands, of which none is changed."""
        if all(0 in kind.shape for kind in results):
            return tuple(_empty(kind) for kind in results)
        key = (op, tuple(operand.type for operand in operands), tuple(sorted(attributes.items())))
        with self._lock:
            if key not in self._operations:
                types = [TensorType(operand.dtype, operand.shape) for operand in operands]
                graph = Graph("eager", input_types=types)
                with graph:
                    graph.output(*graph.add_node(op, graph.inputs, attributes, results))
                self._operations[key] = Program([graph], self._target)
            program = self._operations[key]
        arrays = [operand.to_numpy() for operand in operands]
        return program.run("eager", arrays, program.bind({}), results)

    def compile(
        self, graph: Graph, weights: Mapping[str, Array]
    ) -> Callable[..., tuple[Tensor, ...]]:
        """Compile a graph for this machine; the result takes its inputs as tensors.

        The values of the weights are copied: what happens to the arrays later changes nothing.

        Raises:
            MachineLacks: If something is to run on another device.
            MissingWeight: Listing the weights of the graph that ``weights`` lacks.
            MisshapenWeight: Listing those of another dtype or shape than the graph declares.
        """
        _require_host(graph)
        program = Program([graph], self._target)
        bound = program.bind(weights)
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
        lowering = ModuleLowering(target, self.storage, prints=True)
        for graph in graphs:
            lowering.entry(graph)
        self._graphs = {graph.name: graph for graph in graphs}
        executable = compile_module(lowering.module(), target, asserts=False)
        self._machine = relax.VirtualMachine(executable, tvm.cpu())
        # Concurrent calls of one virtual machine crash the process.
        self._lock = Lock()

    def bind(self, weights: Mapping[str, Array]) -> Any:  # noqa: ANN401 - tvm ships no types
        """Copies of the weights as the functions take them.

        Raises:
            MissingWeight: Listing the weights that are needed and not there.
            MisshapenWeight: Listing those of another dtype or shape.
        """
        absent = [name for name in self.storage if name not in weights]
        if absent:
            raise MissingWeight("weights have no data", problems=absent)
        misfits = [_misfit(place, weights[name]) for name, place in self.storage.items()]
        if any(misfits):
            problems = [problem for problem in misfits if problem]
            raise MisshapenWeight("weights do not fit the graph", problems=problems)
        tensors = [_captured(place, weights[name]) for name, place in self.storage.items()]
        return tvm_ffi.Array(tensors)

    def run(
        self,
        name: str,
        inputs: Sequence[Array],
        weights: Any,  # noqa: ANN401 - what bind returned
        results: Sequence[TensorType],
    ) -> tuple[Tensor, ...]:
        """Run one function. The arrays of buffer inputs are written in place.

        Raises:
            ValueError: If the array of a buffer is read-only.
        """
        buffers = [isinstance(value.type, BufferType) for value in self._graphs[name].inputs]
        if not all(array.flags.writeable for array in compress(inputs, buffers)):
            raise ValueError(f"{name}: the array of a buffer is written in place and is read-only")
        arrays = [_device_array(array) for array in inputs]
        tensors = [_device_tensor(array) for array in arrays]
        plain = [tensor for tensor, buffer in zip(tensors, buffers, strict=True) if not buffer]
        state = [tvm_ffi.Array(list(compress(tensors, buffers)))] if any(buffers) else []
        with self._lock:
            output = self._machine[name](*plain, *state, weights)
        for given, array in zip(compress(inputs, buffers), compress(arrays, buffers), strict=True):
            if not np.may_share_memory(given, array):  # it was not aligned
                given[...] = array.view(given.dtype)
        outputs = [output] if len(results) == 1 else list(output)
        read = [array for array, buffer in zip(arrays, buffers, strict=True) if not buffer]
        return tuple(
            Tensor(_host_array(value, kind, read), device=kind.device)
            for value, kind in zip(outputs, results, strict=True)
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


def _print(tensor: Any, label: str, dtype: str) -> None:  # noqa: ANN401 - tvm ships no types
    array: Array = np.from_dlpack(tensor)
    show(str(label), array.view(DType(str(dtype)).to_numpy()))


tvm_ffi.register_global_func(PRINT, _print, override=True)


def _empty(kind: TensorType) -> Tensor:
    return Tensor(np.empty(kind.shape.static(), kind.dtype.to_numpy()), device=kind.device)


def _require_host(graph: Graph) -> None:
    """Refuse a graph that names another device than the host, which alone is compiled for here."""
    if others := sorted(device.name for device in devices(graph) if not device.is_cpu()):
        raise MachineLacks(f"nothing here compiles for {', '.join(others)}; there is the host only")


def _misfit(place: Storage, values: Array) -> str:
    found, declared = (values.dtype, values.shape), (place.dtype.to_numpy(), place.shape)
    if found == declared:
        return ""
    (dtype, shape), (wanted, sizes) = found, declared
    return f"{place.name!r} is {dtype}{list(shape)}, declared {wanted}{list(sizes)}"


def _captured(place: Storage, values: Array) -> Any:  # noqa: ANN401 - tvm ships no types
    """A weight as it is stored, in memory of its own."""
    stored = _device_array(place.store(values))
    shared = np.may_share_memory(stored, values)
    return _device_tensor(aligned(stored.copy()) if shared else stored)


def _device_tensor(array: Array) -> Any:  # noqa: ANN401 - tvm ships no types
    if not array.size:  # NumPy's strides of an empty array are not those that kernels expect
        return tvm.runtime.empty(array.shape, str(array.dtype))
    return tvm_ffi.from_dlpack(array)


def _device_array(array: Array) -> Array:
    """``array``, or a copy of it, such that TVM takes it: aligned, writable, bfloat16 as bits."""
    plain = bits(array)
    return aligned(plain if plain.flags.writeable else plain.copy())


def _host_array(value: Any, kind: TensorType, read: Sequence[Array]) -> Array:  # noqa: ANN401
    """A result as an array that is no view of an input."""
    array: Array = np.from_dlpack(value)
    if any(np.may_share_memory(array, given) for given in read):
        array = array.copy()
    return array.view(kind.dtype.to_numpy()) if array.dtype != kind.dtype.to_numpy() else array
