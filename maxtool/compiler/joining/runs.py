"""Calls of kernels that follow each other, as one kernel with one parallel region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from tvm import relax, tirx

from maxtool.compiler.joining.instance import PrimFunc, instance
from maxtool.compiler.joining.region import CannotJoinError, Region, flattened, parts_of
from maxtool.compiler.joining.sizes import (
    Buffer,
    Expr,
    Size,
    buffer_of,
    count_of,
    integer,
    renamed,
    sizes_of,
    variables_of,
)
from maxtool.compiler.joining.workspace import Workspace
from maxtool.compiler.kernels.cpu.cpu_passes import FLAT

Binding: TypeAlias = Any  # tvm ships no types
TensorType: TypeAlias = Any

# What a joined kernel says of itself, as all that are written by hand, and that it is flat.
ATTRIBUTES = {
    FLAT: True,
    "op_pattern": 8,
    "s_tir": True,
    "tirx.is_scheduled": True,
    "tirx.noalias": True,
}
# What memory is taken for that may be the same as other memory.
POSSIBLY_SHARED = -1


@dataclass(eq=False)
class Memory:
    """Memory of one tensor, whatever views there are of it.

    Attributes:
        type: The type of the tensor.
        expr: A value whose memory it is; None for what a kernel of the same run writes first.
        may_share: Whether nothing says that it is not memory of another value, too.
    """

    type: TensorType
    expr: Expr | None = None
    may_share: bool = False


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A call of a kernel.

    Attributes:
        function: It, lowered for the sizes of this call.
        shapes: The sizes that it sees, of its operands and of what is new.
        numbers: The sizes that it is called with.
        operands: The memory that it is called with.
        results: What it gives: operands that it has overwritten, or memory that is new.
    """

    function: PrimFunc
    shapes: tuple[tuple[Size, ...], ...]
    numbers: tuple[Expr, ...]
    operands: tuple[Memory, ...]
    results: tuple[Memory, ...]

    @property
    def memory(self) -> tuple[Memory, ...]:
        """All that it reads or writes."""
        return (*self.operands, *self.results)

    @property
    def updated(self) -> list[Memory]:
        """The operands that it overwrites."""
        return [memory for memory in self.results if memory in self.operands]

    @property
    def new(self) -> list[Memory]:
        """The memory that it writes first."""
        return [memory for memory in self.results if memory not in self.operands]


@dataclass
class Run:
    """Bindings that follow each other, all calls of kernels or views of tensors."""

    bindings: list[Binding] = field(default_factory=list)
    calls: list[KernelCall] = field(default_factory=list)

    @property
    def new(self) -> list[Memory]:
        """The memory that the kernels write first."""
        return [memory for call in self.calls for memory in call.new]

    @property
    def outer(self) -> list[Memory]:
        """The memory that was there before, in the order of its first use."""
        operands = dict.fromkeys(memory for call in self.calls for memory in call.operands)
        new = set(self.new)
        return [memory for memory in operands if memory not in new]

    @property
    def updated(self) -> list[Memory]:
        """The memory that was there before and is overwritten."""
        written = {memory for call in self.calls for memory in call.updated}
        return [memory for memory in self.outer if memory in written]

    def joined(self, results: Sequence[Memory]) -> tuple[PrimFunc, list[TensorType]]:
        """One kernel, and the types of the memory that it is given for what is between its parts.

        Its parameters are ``outer``, then ``results``, then that memory.

        Raises:
            CannotJoinError: If it has no parameter that says one of its sizes, or the kernels need
                to be apart.
        """
        parameters = [*self.outer, *results]
        names, outside = self._names(parameters)
        flat = {each: _flat_buffer(each.type, names) for each in parameters}
        workspace, region = Workspace(), Region(self._aliases(flat))
        last = {each: index for index, call in enumerate(self.calls) for each in call.memory}
        for index, call in enumerate(self.calls):
            for memory in call.new:
                if memory not in flat:
                    flat[memory] = workspace.take(_sizes(memory.type, names), memory.type.dtype)
            shapes = [[renamed(integer(size), names) for size in shape] for shape in call.shapes]
            operands = [flat[each] for each in (*call.operands, *call.new)]
            numbers = [renamed(number, names) for number in call.numbers]
            own = instance(call.function, operands, shapes, workspace, numbers)
            region.add(parts_of(own))
            for memory in dict.fromkeys(call.memory):
                if last[memory] == index and memory not in parameters:
                    workspace.give_back(flat[memory])
        arguments = [
            *(_argument(_sizes(each.type, names), each.type.dtype) for each in parameters),
            *(_argument(buffer.shape, buffer.dtype) for buffer in workspace.shared),
        ]
        seen = [*(flat[each] for each in parameters), *workspace.shared]
        views = [
            tirx.DeclBuffer(buffer, data=argument.data)
            for buffer, argument in zip(seen, arguments, strict=True)
        ]
        body = tirx.SeqStmt([*views, *workspace.statements, *flattened(region.statement)])
        given = [_type_of(buffer, outside, parameters[0].type) for buffer in workspace.shared]
        return tirx.PrimFunc(arguments, body).with_attrs(ATTRIBUTES), given

    def _names(self, parameters: Sequence[Memory]) -> tuple[dict[int, Expr], dict[int, Expr]]:
        """New variables for those that sizes are known by here, and these for the new ones.

        Each is the size of a parameter.
        """
        shapes = (shape for call in self.calls for shape in (*call.shapes, call.numbers))
        used = variables_of(chain.from_iterable(shapes))
        used |= variables_of(size for each in parameters for size in sizes_of(each.type))
        told = {hash(size) for each in parameters for size in each.type.shape}
        if not used.keys() <= told:
            raise CannotJoinError("a size that no tensor has by itself")
        # Their names differ, as texts of sizes are compared.
        new = [tirx.Var(f"{own.name}_{i}", own.ty) for i, own in enumerate(used.values())]
        outside = dict(zip(map(hash, new), used.values(), strict=True))
        return dict(zip(used, new, strict=True)), outside

    def _aliases(self, flat: Mapping[Memory, Any]) -> dict[int, int]:
        """Take memory for the same where some is overwritten that others might share."""
        written = self.updated
        shared = [memory for memory in self.outer if memory.may_share]
        if not written or not shared:
            return {}
        return {hash(flat[each]): POSSIBLY_SHARED for each in (*written, *shared)}


def _sizes(tensor_type: TensorType, names: Mapping[int, Expr]) -> list[Expr]:
    """The sizes of a tensor by the variables of a kernel."""
    return [renamed(size, names) for size in tensor_type.shape]


def _argument(sizes: Sequence[Expr], dtype: str) -> Buffer:
    """A parameter; a size that follows from others has a variable that nothing reads."""
    known = [
        size if isinstance(size, tirx.IntImm | tirx.Var) else tirx.Var("size", "int64")
        for size in sizes
    ]
    return buffer_of("argument", known, dtype)


def _flat_buffer(tensor_type: TensorType, names: Mapping[int, Expr]) -> Buffer:
    return buffer_of("memory", [count_of(_sizes(tensor_type, names))], tensor_type.dtype)


def _type_of(buffer: Buffer, outside: Mapping[int, Expr], beside: TensorType) -> TensorType:
    """The type of memory by the variables outside of a kernel, where the tensor ``beside`` is."""
    sizes = [renamed(size, outside) for size in buffer.shape]
    return relax.TensorType(sizes, buffer.dtype, vdevice=beside.vdevice)
