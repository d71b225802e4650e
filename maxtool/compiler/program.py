"""Compiled graphs in a virtual machine of this process, and arrays as it takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from maxtool.compiler.packing import ALIGNMENT, aligned_empty
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.storage import Storage, plan_storage
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, MissingWeight
from maxtool.graph import BufferType, CallNode, Graph, Tensor, TensorType
from maxtool.graph.ops.flow import show

Array = np.ndarray[Any, Any]


class Program:
    """Compiled graphs in a virtual machine of this process.

    Args:
        graphs: The functions, each under its graph's name.
        target: What to compile for: this machine.
    """

    def __init__(self, graphs: Sequence[Graph], target: Target) -> None:
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
            output = self._call(name, *plain, *state, weights)
        for given, array in zip(compress(inputs, buffers), compress(arrays, buffers), strict=True):
            if not np.may_share_memory(given, array):  # it was not aligned
                given[...] = array.view(given.dtype)
        outputs = [output] if len(results) == 1 else list(output)
        read = [array for array, buffer in zip(arrays, buffers, strict=True) if not buffer]
        return tuple(
            Tensor(_host_array(value, kind, read), device=kind.device)
            for value, kind in zip(outputs, results, strict=True)
        )

    def _call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 - tvm ships no types
        try:
            return self._machine[name](*arguments)
        except (RuntimeError, ValueError) as error:
            if "match_cast" not in str(error):
                raise
            claims = dict.fromkeys(_claims(self._graphs[name]))
            listed = ", ".join(claims)
            raise ValueError(f"{name}: what rebind says of a shape is not true: {listed}") from None


def _claims(graph: Graph) -> Iterator[str]:
    """What :func:`maxtool.graph.ops.rebind` was told, with the messages given to it."""
    for node in graph.nodes:
        if isinstance(node, CallNode):
            yield from _claims(node.callee)
        elif node.op == "rebind":
            x, message = node.inputs[0], node.attributes["message"]
            yield f"{x.shape} is {node.attributes['shape']}" + (f" ({message})" if message else "")


def aligned(array: Array) -> Array:
    """``array`` contiguous at an address that TVM's kernels accept; copied if it is not."""
    if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    return aligned_copy(array)


def aligned_copy(array: Array) -> Array:
    """The same elements contiguous, in memory of their own, at such an address."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def _print(tensor: Any, label: str, dtype: str) -> None:  # noqa: ANN401 - tvm ships no types
    array: Array = np.from_dlpack(tensor)
    show(str(label), array.view(DType(str(dtype)).to_numpy()))


tvm_ffi.register_global_func(PRINT, _print, override=True)


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
    return _device_tensor(aligned_copy(stored) if shared else stored)


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
