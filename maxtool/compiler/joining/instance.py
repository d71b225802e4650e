"""A kernel for the sizes and the memory of one call, as plain statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tvm
from tvm import s_tir, tirx
from tvm_ffi import structural_map

from maxtool.compiler.joining.region import flattened

Buffer: TypeAlias = Any  # tvm ships no types
Stmt: TypeAlias = Any
PrimFunc: TypeAlias = Any
Shapes: TypeAlias = Sequence[Sequence[int]]

# As in the pipeline of CPU kernels, up to buffers of one dimension. What cannot be reached for
# these sizes is dropped first, as it is most of a kernel.
_LOWERING = (
    tirx.transform.StmtSimplify,
    s_tir.transform.LowerInitBlock,
    s_tir.transform.PlanAndUpdateBufferAllocationLocation,
    s_tir.transform.ConvertBlocksToOpaque,
    s_tir.transform.LowerMatchBuffer,
    s_tir.transform.LowerOpaqueBlock,
    tirx.transform.FlattenBuffer,
)


def buffer_of(name: str, shape: Sequence[int], dtype: str) -> Buffer:
    """A buffer of fixed sizes."""
    sizes = [tirx.IntImm("int64", size) for size in shape]
    return tirx.decl_buffer(sizes, dtype, name=name, layout=None)


def lowered(function: PrimFunc, shapes: Shapes) -> PrimFunc:
    """A kernel for tensors of these shapes, with buffers of one dimension."""
    parameters = zip(function.params, shapes, strict=True)
    fixed = function.specialize({each: _fixed(each, shape) for each, shape in parameters})
    module = tvm.IRModule({"main": fixed})
    return tvm.transform.Sequential([make() for make in _LOWERING])(module)["main"]


def instance(function: PrimFunc, operands: Sequence[Buffer]) -> list[Stmt]:
    """The statements of a kernel that was lowered, on operands of one dimension.

    All else that it defines is its own, so a kernel may stand in a function several times.
    """
    own = s_tir.renew_defs(function)
    by_parameter = dict(zip(map(hash, own.params), operands, strict=True))
    statements = list(flattened(own.body))
    views = {
        hash(each.buffer): by_parameter[hash(each.data.args[0])]
        for each in statements
        if is_view(each)
    }
    return [_renamed(each, views) for each in statements if not is_view(each)]


def _fixed(parameter: Buffer, shape: Sequence[int]) -> Buffer:
    """A buffer for a parameter whose sizes are known; those it knew stay as they are."""
    known = zip(parameter.ty.shape, shape, strict=True)
    sizes = [
        own if isinstance(own, tirx.IntImm) else tirx.IntImm("int64", size) for own, size in known
    ]
    return tirx.decl_buffer(sizes, parameter.ty.dtype, name=parameter.name, layout=None)


def is_view(statement: Stmt) -> bool:
    """Return whether a statement of a lowered kernel is its view of a parameter."""
    return isinstance(statement, tirx.DeclBuffer)


def _renamed(statement: Stmt, views: Mapping[int, Buffer]) -> Stmt:
    return structural_map(statement, (tvm.ir.Var, lambda one: views.get(hash(one), one)))
