"""Compiled graphs in a virtual machine of this process, and arrays as it takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax

from maxtool.compiler.call_arguments import captured, passed, returned
from maxtool.compiler.cuda.cuda_target import CudaTarget
from maxtool.compiler.cuda.loading import load_device_module
from maxtool.compiler.device_memory import runtime_device
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering.rules import PRINT
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.placement import Placement
from maxtool.compiler.storage import WeightStorage
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, MissingWeight
from maxtool.graph import BufferType, CallNode, Graph, Tensor, TensorType
from maxtool.graph.executor import Run
from maxtool.graph.ops.flow import show
from maxtool.quantization import QuantizationEncoding, dequantize
from maxtool.weights.weight_data import WeightData

Array = np.ndarray[Any, Any]


class Program:
    """Compiled graphs in a virtual machine of this process, each under its graph's name.

    Args:
        graphs: The graphs.
        targets: What to compile for, by the kind of device.
        encodings: How weights are encoded whose values are given as bytes of blocks.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        targets: Mapping[str, Target],
        encodings: Mapping[str, QuantizationEncoding] | None = None,
    ) -> None:
        self._encodings = encodings or {}
        placement = Placement.of(graphs, targets)
        for device in placement.devices:
            device.to_device()
        plan = LoweringPlan(graphs, placement, self._encodings)
        self.storage: dict[str, WeightStorage] = plan.storage
        self._devices = {
            name: value.device for graph in graphs for name, value in graph.weight_values.items()
        }
        lowering = ModuleLowering(plan, prints=True)
        # A graph may have any name; that of a function is looked up by TVM, by rules of its own.
        self._entries = {graph.name: f"entry_{index}" for index, graph in enumerate(graphs)}
        for graph in graphs:
            lowering.entry(graph, self._entries[graph.name])
        self._graphs = {graph.name: graph for graph in graphs}
        compiled = compile_module(lowering.module(), placement, asserts=False)
        main = placement.target(placement.devices[0])
        code = compiled.executable
        if isinstance(main, CudaTarget):
            code = load_device_module(compiled, main)
        devices = [runtime_device(device) for device in placement.devices]
        self._machine = relax.VirtualMachine(code, devices)
        # Concurrent calls of one virtual machine crash the process.
        self._lock = Lock()

    def bind(self, weights: Mapping[str, Array]) -> Any:  # noqa: ANN401 - tvm ships no types
        """Copies of the weights as the functions take them, each on its device."""
        if absent := [name for name in self.storage if name not in weights]:
            raise MissingWeight("weights have no data", problems=absent)
        values = {name: self._decoded(name, weights[name]) for name in self.storage}
        misfits = [_misfit(storage, values[name]) for name, storage in self.storage.items()]
        if problems := list(filter(None, misfits)):
            raise MisshapenWeight("weights do not fit the graph", problems=problems)
        tensors = [
            captured(storage, values[name], self._devices[name])
            for name, storage in self.storage.items()
        ]
        return tvm_ffi.Array(tensors)

    def _decoded(self, name: str, values: Array) -> Array:
        """The values of a weight, decoded if they are encoded and it is not stored so."""
        encoding = self._encodings.get(name)
        if encoding is None or self.storage[name].encoding is not None:
            return values
        return dequantize(values, encoding, tensor=name)

    def kept(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Copies of the weights that cannot be had back from what was bound."""
        return {
            name: self._decoded(name, weights[name]).copy()
            for name, storage in self.storage.items()
            if storage.form is not None and not storage.form.is_exact
        }

    def weight(self, name: str, bound: Any) -> WeightData:  # noqa: ANN401 - what bind returned
        """A copy of a weight that was bound, and is not kept besides."""
        index, storage = list(self.storage).index(name), self.storage[name]
        values = storage.restore(bound[index].numpy())
        return WeightData(values, name, storage.dtype, storage.shape, storage.encoding)

    def function(self, name: str, weights: Any, results: Sequence[TensorType]) -> Run:  # noqa: ANN401 - what bind returned
        """One function, as one that takes its inputs; what a call need not look up is known.

        Buffer inputs are written in place; others are brought where it reads.
        """
        call = self._machine[self._entries[name]]
        types = [value.type for value in self._graphs[name].inputs]
        written = [index for index, each in enumerate(types) if isinstance(each, BufferType)]
        plain = [index for index in range(len(types)) if index not in written]

        def run(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
            arguments = [passed(name, *pair) for pair in zip(inputs, types, strict=True)]
            state = (
                [tvm_ffi.Array([arguments[index].tensor for index in written])] if written else []
            )
            try:
                with self._lock:
                    output = call(*(arguments[index].tensor for index in plain), *state, weights)
            except (RuntimeError, ValueError) as error:
                raise self._explained(name, error) from None
            for index in written:
                arguments[index].write_back()
            read = [array for index in plain if (array := arguments[index].array) is not None]
            outputs = [output] if len(results) == 1 else list(output)
            return tuple(
                returned(value, own, read) for value, own in zip(outputs, results, strict=True)
            )

        return run

    def _explained(self, name: str, error: Exception) -> Exception:
        """A claim that is not true, said in the words of the graph; any other error as it is."""
        if "match_cast" not in str(error):
            return error
        listed = ", ".join(dict.fromkeys(_claims(self._graphs[name])))
        return ValueError(f"{name}: what is said of a shape is not true: {listed}")


def _claims(graph: Graph) -> Iterator[str]:
    """The claims about sizes made to ``rebind``, ``nonzero`` and ``counted``."""
    for node in graph.nodes:
        if isinstance(node, CallNode):
            yield from _claims(node.callee)
        elif node.op == "rebind":
            x, message = node.inputs[0], node.attributes["message"]
            claim = f"rebind: {x.shape} is {node.attributes['shape']}"
            yield claim + (f" ({message})" if message else "")
        elif node.op in ("counted", "nonzero"):
            what = "elements are not zero" if node.op == "nonzero" else "numbers are counted"
            yield f"{node.op}: {node.attributes['size']} {what}"


def _print(tensor: Any, label: str, dtype: str) -> None:  # noqa: ANN401 - tvm ships no types
    array: Array = tensor.numpy()
    show(str(label), array.view(DType(str(dtype)).to_numpy()))


tvm_ffi.register_global_func(PRINT, _print, override=True)


def _misfit(storage: WeightStorage, values: Array) -> str:
    """Return what is wrong with the values of a weight; empty if nothing is."""
    dtype, shape = storage.held_dtype.to_numpy(), storage.held_shape
    if (values.dtype, values.shape) == (dtype, shape):
        return ""
    actual = f"{values.dtype}{list(values.shape)}"
    return f"{storage.name!r} is {actual}, declared {dtype}{list(shape)}"
