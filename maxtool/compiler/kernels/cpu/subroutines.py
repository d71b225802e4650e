"""Subroutines: parts of CPU kernels that are functions of their own.

Products of the same kind stand in many kernels of a module: for one row and for many, in each layer
that is not like the others, and once more in the kernels of a joined step. What takes most of their
code is a function that all of them call, so that it is built, lowered and optimised once. It takes
pointers, sizes and other numbers, and does as much work as a task, or as a tile: a call costs
nothing beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T
from tvm_ffi import structural_hash, structural_walk

from maxtool.compiler.kernels.kernel_builder import Buffer, Expr, PrimFunc, index

Body: TypeAlias = Callable[..., None]
Leaf: TypeAlias = Any  # a buffer or a number

_ADDRESS = tvm.ir.Op.get("tirx.address_of")

# What TVM makes a function of that LLVM does not inline. It must not: TVM tells LLVM that memory
# of two names is not the same, which holds for the names of one function only.
_APART = "compute_scope"

# The bits of a hash, which TVM gives with a sign.
_HASH = (1 << 64) - 1

# The subroutines that were built in this process, by names that follow from what they do.
_known: dict[str, tuple[Any, PrimFunc]] = {}


@dataclass(frozen=True, slots=True)
class _Memory:
    """A buffer as a parameter: a size is None where it is a parameter, too."""

    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class _Number:
    """An int64 as a parameter."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The parameter that stands in place of a buffer or number."""

    index: int


Form: TypeAlias = _Memory | _Number


def call(body: Body, written: Sequence[object], *operands: object) -> None:
    """Do what ``body(*written, *operands)`` emits, in a function of its own.

    ``body`` is a function of a module, which knows nothing but its arguments. It gets other buffers
    and numbers than these hold: the parameters of the function. Everything else in them, down to
    the fields of dataclasses, decides what is emitted, and has to be hashable.

    All memory in ``written`` may be written, and must not be that of an operand.
    """
    leaves = _Leaves()
    values = leaves.taken((*written, *operands))
    own = _Leaves()
    own.taken(tuple(written))
    count = sum(map(_is_buffer, own.found))
    name, _ = _function(body, values, tuple(map(_form, leaves.found)))
    arguments = [argument for leaf in leaves.found for argument in _passed(leaf)]
    T.evaluate(tvm.ir.Call(name, [tirx.IntImm("int32", count), *arguments]))


def written_by(node: Any) -> list[Buffer]:  # noqa: ANN401 - tvm ships no types
    """The memory that a call of a subroutine writes, if a node is one."""
    if not isinstance(node.op, tvm.ir.GlobalVar):
        return []
    count, *arguments = node.args
    return [pointer.args[0].source for pointer in arguments if _is_pointer(pointer)][: int(count)]


def _is_pointer(argument: Expr) -> bool:
    return isinstance(argument, tvm.ir.Call) and argument.op.same_as(_ADDRESS)


def with_subroutines(module: Any) -> Any:  # noqa: ANN401
    """A module with the subroutines that its functions call, each compiled as its first caller."""
    added: dict[Any, PrimFunc] = {}
    waiting = [module[name] for name in sorted(module.get_global_vars(), key=_hint)]
    for function in waiting:
        for name in _called(function):
            if _hint(name) in _known and name not in added:
                added[name] = _like(_known[_hint(name)][1], function)
                waiting.append(added[name])
    if added:
        module.update(tvm.IRModule(added))
    return module


def _hint(name: Any) -> str:  # noqa: ANN401
    return str(name.name_hint)


def _called(function: PrimFunc) -> list[Any]:
    names: list[Any] = []
    structural_walk(function.body, (tvm.ir.GlobalVar, names.append))
    return names


def _like(function: PrimFunc, caller: PrimFunc) -> PrimFunc:
    """A subroutine for the target of who calls it."""
    target = caller.attrs.get("target")
    return function if target is None else function.with_attr("target", target)


@cache
def _function(body: Body, values: Sequence[object], forms: Sequence[Form]) -> tuple[Any, PrimFunc]:
    """A function of these parameters, and its name: equal functions have the same one."""
    with IRBuilder() as builder:
        with T.prim_func(is_private=True, s_tir=True):
            T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
            T.func_ret(tvm.ir.PrimType("int32"))  # whether it failed, which it does not
            T.arg("writes", tirx.Var("writes", "int32"))
            parameters = [_parameter(form) for form in forms]
            with T.attr(tirx.IntImm("int32", 0), _APART, body.__name__):
                body(*_rebuilt(values, [each() for each in parameters]))
        function = builder.get()
    name = f"{body.__name__.strip('_')}_{structural_hash(function) & _HASH:016x}"
    return _known.setdefault(name, (tvm.ir.GlobalVar(name), function))


def _parameter(form: Form) -> Callable[[], Leaf]:
    """Declare the parameters of a buffer or number; what is returned makes it of these.

    All parameters have to be declared before the first statement.
    """
    if isinstance(form, _Number):
        number = T.arg("number", tirx.Var("number", "int64"))
        return lambda: number
    pointer = T.arg("memory", T.ptr(form.dtype))
    shape = [
        T.arg("size", tirx.Var("size", "int64")) if size is None else size for size in form.shape
    ]
    return lambda: T.decl_buffer(shape, form.dtype, data=pointer, layout=None)


def _is_buffer(leaf: Leaf) -> bool:
    return isinstance(leaf.ty, tirx.BufferType)


def _form(leaf: Leaf) -> Form:
    if not _is_buffer(leaf):
        return _Number()
    sizes = (int(size) if isinstance(size, tirx.IntImm) else None for size in leaf.shape)
    return _Memory(str(leaf.dtype), tuple(sizes))


def _passed(leaf: Leaf) -> list[Expr]:
    """The arguments for a buffer or number; passes would make loop variables narrower."""
    if not _is_buffer(leaf):
        return [index(leaf)]
    sizes = [size for size in leaf.shape if not isinstance(size, tirx.IntImm)]
    return [T.address_of(leaf[(0,) * len(leaf.shape)]), *map(index, sizes)]


class _Leaves:
    """The buffers and numbers that values hold: a buffer once, however often they hold it."""

    def __init__(self) -> None:
        self.found: list[Leaf] = []
        self._places: dict[int, _Place] = {}

    def taken(self, value: Any) -> Any:  # noqa: ANN401
        """A value with places for its buffers and numbers, and tuples for lists."""
        if isinstance(value, tvm.ir.Expr):
            return self._place(value)
        return _mapped(value, self.taken)

    def _place(self, leaf: Leaf) -> _Place:
        if _is_buffer(leaf) and hash(leaf) in self._places:
            return self._places[hash(leaf)]
        place = self._places[hash(leaf)] = _Place(len(self.found))
        self.found.append(leaf)
        return place


def _rebuilt(value: Any, parameters: Sequence[Leaf]) -> Any:  # noqa: ANN401
    """A value with parameters for their places."""
    if isinstance(value, _Place):
        return parameters[value.index]
    return _mapped(value, lambda part: _rebuilt(part, parameters))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """A value whose parts were changed, if it is a sequence or a dataclass."""
    if isinstance(value, list | tuple):
        return tuple(map(change, value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    before = {field.name: getattr(value, field.name) for field in fields(value)}
    after = {name: change(part) for name, part in before.items()}
    is_same = all(after[name] is part for name, part in before.items())
    return value if is_same else replace(value, **after)
