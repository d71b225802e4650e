"""A kernel for the sizes and the memory of one call, as plain statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tvm
from tvm import s_tir, tirx

from maxtool.compiler.joining.region import flattened
from maxtool.compiler.joining.sizes import Buffer, Expr, Size, integer, renamed
from maxtool.compiler.joining.workspace import Workspace

Stmt: TypeAlias = Any  # tvm ships no types
PrimFunc: TypeAlias = Any
Shapes: TypeAlias = Sequence[Sequence[Size]]

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


def lowered(function: PrimFunc, shapes: Shapes) -> PrimFunc:
    """A kernel for tensors of these shapes, with buffers of one dimension.

    What no number is said of stays a variable of the kernel. Parameters that are numbers come
    behind the tensors.
    """
    tensors = [each for each in function.params if _is_tensor(each)]
    parameters = zip(tensors, shapes, strict=True)
    fixed = function.specialize({each: _fixed(each, shape) for each, shape in parameters})
    module = tvm.IRModule({"main": fixed})
    made = tvm.transform.Sequential([make() for make in _LOWERING])(module)["main"]
    ordered = sorted(made.params, key=_is_tensor, reverse=True)
    return tirx.PrimFunc(ordered, made.body, made.ret_type, made.attrs)


def statements_of(function: PrimFunc) -> list[Stmt]:
    """The statements of a kernel that was lowered, without those that name memory."""
    return [each for each in flattened(function.body) if not _names_memory(each)]


def instance(
    function: PrimFunc,
    operands: Sequence[Buffer],
    shapes: Shapes,
    workspace: Workspace,
    numbers: Sequence[Expr] = (),
) -> list[Stmt]:
    """The statements of a kernel that was lowered, on operands of one dimension.

    All else that it defines is its own, so a kernel may stand in a function several times. What
    all of its threads write between its loops it takes from the ``workspace``.
    """
    own = s_tir.renew_defs(function)
    names = dict(zip(map(hash, own.params), (*operands, *numbers), strict=True))
    for parameter, sizes in zip(filter(_is_tensor, own.params), shapes, strict=True):
        names |= _variables(parameter, sizes)
    taken: list[Buffer] = []
    for each in filter(_names_memory, flattened(own.body)):
        if isinstance(each, tirx.AllocBuffer):
            sizes = [renamed(size, names) for size in each.buffer.shape]
            named = workspace.take(sizes, str(each.buffer.dtype))
            taken.append(named)
        else:
            (seen,) = each.data.args
            named = names.get(hash(seen), seen)
        names[hash(each.buffer)] = named
    for memory in taken:
        workspace.give_back(memory)
    return [renamed(each, names) for each in statements_of(own)]


def _fixed(parameter: Buffer, shape: Sequence[Size]) -> Buffer:
    """A buffer for a parameter whose sizes are known; those it knew stay as they are."""
    known = zip(parameter.ty.shape, shape, strict=True)
    sizes = [
        own if isinstance(own, tirx.IntImm) or not isinstance(size, int) else integer(size)
        for own, size in known
    ]
    return tirx.decl_buffer(sizes, parameter.ty.dtype, name=parameter.name, layout=None)


def _variables(parameter: Buffer, shape: Sequence[Size]) -> dict[int, Expr]:
    """The sizes of a call for the variables of a kernel."""
    return {
        hash(own): size
        for own, size in zip(parameter.ty.shape, shape, strict=True)
        if isinstance(own, tirx.Var)
    }


def _is_tensor(parameter: Expr) -> bool:
    return isinstance(parameter.ty, tirx.BufferType)


def _names_memory(statement: Stmt) -> bool:
    """Return whether a statement is a view of memory, or takes some for all threads."""
    if isinstance(statement, tirx.AllocBuffer):
        return str(statement.buffer.ty.storage_scope) in ("", "global")
    return isinstance(statement, tirx.DeclBuffer)
