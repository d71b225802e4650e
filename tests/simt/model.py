"""A whole model lowered for GPUs and run here: every kernel by the interpreter.

What is not a kernel (shapes, allocation, calls of subgraphs) is compiled for this machine from the
very Relax module that the compiler makes for GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from maxtool import artifact
from maxtool.architectures import Entry
from maxtool.artifact import devices
from maxtool.artifact.weights import computed_weights
from maxtool.compiler import program as programs
from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.cuda.binaries import GeneratedModule
from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.kernels.cpu import cpu_passes as host_pipeline
from maxtool.compiler.pipeline import BACKENDS, PASSES
from maxtool.compiler.placement import Placed, placed
from maxtool.compiler.program import Program as CompiledProgram
from maxtool.dtype import DType
from maxtool.graph import BufferType, Graph, Tensor
from maxtool.graph.type import HOST as HOST_DEVICE
from tests.simt import program
from tests.simt.dtypes import Array
from tests.simt.faults import KernelFault
from tests.simt.program import Program

TARGET = "cuda:sm_80,sm_90"
HOST = "tirx.is_host_func"
IN_PLACE = "relax.call_tir_inplace"
_serial = count()


class SimulatedKernel:
    """A kernel of a module as a packed function.

    Args:
        function: As the compiler has it before its own passes.
        in_place: Whether it writes into an array that holds values; else what it writes is new.
        faults: Where to leave what is wrong: on its way through TVM an error loses its class.
    """

    def __init__(self, function: Any, *, in_place: bool, faults: list[KernelFault]) -> None:
        self._function = function
        self._in_place = in_place
        self._faults = faults

    @cached_property
    def _program(self) -> Program:
        return program(self._function, shared_memory=cuda_target(TARGET).shared_memory)

    def __call__(self, *arguments: Any) -> None:
        """Run it on tensors of this machine, and numbers."""
        inputs = [
            argument if isinstance(argument, int | float) else np.from_dlpack(argument)
            for argument in arguments
        ]
        try:
            if self._in_place:
                self._program(*inputs, updated=range(len(inputs)))
            else:
                self._program.forget_outputs(inputs)
                self._program(*inputs)
        except KernelFault as fault:
            self._faults.append(fault)
            raise


@tvm.relax.expr_functor.mutator
class _Outside(relax.PyExprMutator):  # type: ignore[misc]
    """Calls of kernels become calls of packed functions."""

    def __init__(self, module: Any, names: Mapping[str, str]) -> None:
        super().__init__(module)
        self._names = names

    def visit_global_var_(self, variable: Any) -> Any:
        name = self._names.get(variable.name_hint)
        return variable if name is None else relax.ExternFunc(name)


class Simulation:
    """Stands in for the compiler: its executables run kernels by the interpreter."""

    def __init__(self) -> None:
        self.faults: list[KernelFault] = []

    def compile_module(
        self, module: Any, target: Placed, *, asserts: bool = True
    ) -> GeneratedModule:
        """Compile like ``maxtool.compiler.pipeline.compile_module``, for a GPU that is absent."""
        aim = placed(target).target(HOST_DEVICE)
        in_place = _written_in_place(module)
        with aim.tvm:
            passes = tvm.transform.Sequential([make() for make in PASSES])
            lowered = passes(BACKENDS[aim.kind].schedule(module))
        names = {}
        for variable, function in list(lowered.functions.items()):
            if isinstance(function, tirx.PrimFunc) and not function.attrs.get(HOST):
                name = variable.name_hint
                names[name] = f"simt.{next(_serial)}.{name}"
                kernel = SimulatedKernel(
                    function.with_attr("global_symbol", name),
                    in_place=name in in_place,
                    faults=self.faults,
                )
                tvm_ffi.register_global_func(names[name], kernel.__call__)
        return GeneratedModule(self._host(lowered, names, asserts=asserts), ())

    @staticmethod
    def _host(lowered: Any, names: Mapping[str, str], *, asserts: bool) -> Any:
        mutator = _Outside(lowered, names)
        left = tvm.IRModule(attrs=lowered.attrs)
        for variable, function in lowered.functions.items():
            if isinstance(function, relax.Function):
                left[variable] = mutator.visit_expr(function)
            elif variable.name_hint not in names:
                left[variable] = function
        aim = cpu_target().tvm
        config = {"tirx.disable_assert": not asserts}
        with aim, tvm.transform.PassContext(config=config):
            return tvm.compile(
                left, target=aim, relax_pipeline=None, tir_pipeline=host_pipeline.register()
            )

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Programs that are made while the block runs run here, whatever their target."""
        with (
            mock.patch.object(programs, "compile_module", self.compile_module),
            mock.patch.object(programs, "load_device_module", lambda built, _: built.executable),
        ):
            yield

    def program(self, graphs: Sequence[Graph]) -> CompiledProgram:
        """Graphs lowered for GPUs."""
        with self.standing_in():
            return CompiledProgram(graphs, {HOST_DEVICE.device_type: cuda_target(TARGET)})


def _written_in_place(module: Any) -> set[str]:
    """The kernels that are called to write into one of their arguments."""
    result: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and str(getattr(node.op, "name", "")) == IN_PLACE:
            result.add(node.args[0].name_hint)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return result


class SimulatedModel:
    """A checkpoint compiled for GPUs, as far as that goes without one.

    Args:
        source: The checkpoint.
        dtype: Element type of the matrices.
        context: Positions it is built for; None for as many as it can have.
        part: Which of how many GPUs that run it together.
    """

    def __init__(
        self,
        source: Path,
        dtype: DType,
        context: int | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        rank, count = part
        result = prepared(source, dtype, context, count)
        self.tolerance = result.plan.recipe.check[dtype.value].rtol
        mixture = bool(result.plan.config.get("n_experts"))
        self.chooses_by_rounded_values = mixture and dtype is not DType.float32
        self._simulation = Simulation()
        self._graphs = {entry.name: graph for entry, graph in result.graphs.items()}
        self.entries: dict[str, Entry] = {entry.name: entry for entry in result.graphs}
        self._program = self._simulation.program(list(result.graphs.values()))
        self._weights = self._program.bind(_weights(result, rank))

    def new_state(self) -> dict[str, Array]:
        """Empty caches for one sequence."""
        entries = self.entries.values()
        kinds = {name: kind for entry in entries for name, kind in entry.state.items()}
        return {name: np.zeros(_sizes(kind), kind.dtype.to_numpy()) for name, kind in kinds.items()}

    def run(
        self, entry: str, inputs: Mapping[str, Array], state: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Call an entry.

        Raises:
            KernelFault: If a kernel does what no GPU does, or none would notice.
        """
        called = self.entries[entry]
        arrays = [np.ascontiguousarray(inputs[name]) for name in called.inputs]
        arrays += [(state or {})[name] for name in called.state]
        tensors = [Tensor(array) for array in arrays]
        results = [value.type for value in self._graphs[entry].outputs]
        try:
            result = self._program.function(entry, self._weights, results)(tensors)
        except Exception:
            if self._simulation.faults:
                raise self._simulation.faults.pop() from None
            raise
        return {name: one.to_numpy() for name, one in zip(called.outputs, result, strict=True)}


def prepared(source: Path, dtype: DType, context: int | None, count: int = 1) -> artifact.Build:
    """A compilation for GPUs that is planned; it asks for no compiler of their code."""
    with mock.patch("maxtool.artifact.machine_code.require_tools"):
        return artifact.prepare(
            artifact.Request(
                source,
                Path("unused"),
                target=TARGET,
                dtype=dtype,
                context=context,
                devices=count,
            )
        )


def _sizes(buffer_type: BufferType) -> list[int]:
    return [int(dim) if dim.is_static else 1 for dim in buffer_type.shape]


def _weights(build: artifact.Build, rank: int) -> dict[str, Array]:
    """The values of every weight, as the artifact has them for one of its devices."""
    split = devices.parts(build.graphs.values())
    derived = computed_weights(build.contents)

    def read(name: str) -> Array:
        if name in derived:
            return derived[name]()
        whole = build.plan.read(name).astype(build.contents.storage[name].dtype)
        data: Array = devices.cut(whole, split.get(name), rank).data
        return data

    return {name: read(name) for name in build.contents.storage}
