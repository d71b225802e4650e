"""Calls of kernels that follow each other, as one kernel with one parallel region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from tvm import tirx

from maxtool.compiler.joining.instance import PrimFunc, buffer_of, instance
from maxtool.compiler.joining.region import Region, flattened, parts_of
from maxtool.compiler.kernels.cpu.cpu_passes import FLAT

Expr: TypeAlias = Any  # tvm ships no types
Binding: TypeAlias = Any
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
        operands: What it is called with.
        results: What it gives: operands that it has overwritten, or memory that is new.
    """

    function: PrimFunc
    operands: tuple[Memory, ...]
    results: tuple[Memory, ...]

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
        return [memory for memory in operands if memory not in self.new]

    @property
    def updated(self) -> list[Memory]:
        """The memory that was there before and is overwritten."""
        written = {memory for call in self.calls for memory in call.updated}
        return [memory for memory in self.outer if memory in written]

    def joined(self, results: Sequence[Memory]) -> PrimFunc:
        """One kernel: its parameters are ``outer``, then ``results``; the rest is workspace."""
        parameters = [*self.outer, *results]
        inner = [memory for memory in self.new if memory not in results]
        arguments = [
            buffer_of("argument", sizes_of(each.type), each.type.dtype) for each in parameters
        ]
        flat = {each: _flat_buffer(each.type) for each in (*parameters, *inner)}
        views = [
            tirx.DeclBuffer(flat[each], data=argument.data)
            for each, argument in zip(parameters, arguments, strict=True)
        ]
        taken = [tirx.AllocBuffer(flat[each]) for each in inner]
        region = Region(self._aliases(flat))
        for call in self.calls:
            operands = [flat[each] for each in (*call.operands, *call.new)]
            region.add(*parts_of(instance(call.function, operands)))
        body = tirx.SeqStmt([*views, *taken, *flattened(region.statement)])
        return tirx.PrimFunc(arguments, body).with_attrs(ATTRIBUTES)

    def _aliases(self, flat: Mapping[Memory, Any]) -> dict[int, int]:
        """Take memory for the same where some is overwritten that others might share."""
        written = self.updated
        shared = [memory for memory in self.outer if memory.may_share]
        if not written or not shared:
            return {}
        return {hash(flat[each]): POSSIBLY_SHARED for each in (*written, *shared)}


def sizes_of(tensor_type: TensorType) -> tuple[int, ...]:
    """The sizes of a tensor, all of which are fixed."""
    return tuple(map(int, tensor_type.shape.values))


def _flat_buffer(tensor_type: TensorType) -> Any:  # noqa: ANN401
    return buffer_of("memory", [prod(sizes_of(tensor_type))], tensor_type.dtype)
