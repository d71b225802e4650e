"""Relax functions whose kernels are joined: runs of calls become calls of one kernel each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tvm
from tvm import relax
from tvm_ffi import structural_walk

from maxtool.compiler.joining.instance import PrimFunc, Shapes, lowered, statements_of
from maxtool.compiler.joining.region import CannotJoinError, parts_of
from maxtool.compiler.joining.runs import KernelCall, Memory, Run
from maxtool.compiler.joining.sizes import Expr, are_same, sizes_of

Binding: TypeAlias = Any  # tvm ships no types

# The attribute of Relax functions whose kernels are joined.
MARK = "maxtool.joined"
FEWEST = 2  # kernels that are worth joining
CALL, INPLACE, RESHAPE = (
    tvm.ir.Op.get(f"relax.{name}") for name in ("call_tir", "call_tir_inplace", "reshape")
)


def join_kernels() -> Any:  # noqa: ANN401 - tvm ships no types
    """The pass that joins the kernels of the functions that are marked for it."""
    return tvm.transform.module_pass(lambda module, _: joined(module), 0, "maxtool.JoinKernels")


def joined(module: Any) -> Any:  # noqa: ANN401
    """A module with the kernels of all marked functions joined."""
    builder, kernels = relax.BlockBuilder(module), LoweredKernels(module)
    for name in sorted(module.get_global_vars(), key=lambda one: str(one.name_hint)):
        function = module[name]
        if isinstance(function, relax.Function) and MARK in (function.attrs or {}):
            hint = f"{name.name_hint}_kernels"
            builder.update_func(name, _Joining(kernels, builder, function, hint).function())
    return _without_unused(builder.finalize())


def _without_unused(module: Any) -> Any:  # noqa: ANN401
    """The module without kernels that no function calls: those that were joined wherever named."""
    functions = dict(module.functions.items())
    called: set[str] = set()

    def note(value: Expr) -> None:
        if isinstance(value, tvm.ir.GlobalVar):
            called.add(str(value.name_hint))

    for function in functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, note)
    kept = {
        name: function
        for name, function in functions.items()
        if isinstance(function, relax.Function) or str(name.name_hint) in called
    }
    return tvm.IRModule(kept, attrs=module.attrs, global_infos=module.global_infos)


class LoweredKernels:
    """Kernels of a module lowered for some sizes, each once for all functions that call it."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401
        self._module = module
        self._lowered: dict[tuple[object, ...], PrimFunc | None] = {}

    def of(self, name: Expr, shapes: Shapes) -> PrimFunc | None:
        """A kernel lowered for tensors of these shapes; None if it cannot be joined with others."""
        fixed = [tuple(size if isinstance(size, int) else None for size in one) for one in shapes]
        key = (str(name.name_hint), *fixed)
        if key not in self._lowered:
            self._lowered[key] = _joinable(lowered(self._module[name], shapes))
        return self._lowered[key]


class _Joining:
    """One Relax function while its kernels are joined; ``builder`` gets those that result."""

    def __init__(
        self,
        kernels: LoweredKernels,
        builder: relax.BlockBuilder,
        function: Expr,
        hint: str,
    ) -> None:
        self._kernels, self._builder, self._own, self._hint = kernels, builder, function, hint
        self._memory = {hash(each): Memory(each.ty, each) for each in function.params}
        self._tuples: dict[int, tuple[Memory, ...]] = {}
        self._bindings = [each for block in function.body.blocks for each in block.bindings]
        self._last_use = _last_uses([*(each.value for each in self._bindings), function.body.body])

    def function(self) -> Expr:
        """The function with its runs joined."""
        position, blocks = 0, []
        for block in self._own.body.blocks:
            rewritten: list[Binding] = []
            run = Run()
            for binding in block.bindings:
                if not self._take(run, binding):
                    rewritten += self._finished(run, position)
                    run = Run()
                    if not self._take(run, binding):
                        self._follow(binding)
                        rewritten.append(binding)
                position += 1
            rewritten += self._finished(run, position)
            blocks.append(type(block)(rewritten))
        body = relax.SeqExpr(blocks, self._own.body.body)
        own = self._own
        function = relax.Function(own.params, body, own.ret_ty, own.is_pure, own.attrs)
        return function.without_attr(MARK)

    def _take(self, run: Run, binding: Binding) -> bool:
        """Add a call of a kernel, or a view, to a run; return whether it was one.

        What gives a size of data a name is neither, though it looks like another name of a value.
        """
        value, key = binding.value, hash(binding.var)
        if isinstance(binding, relax.MatchCast):
            return False
        if (memory := self._viewed(value)) is not None:
            self._memory[key] = memory
        elif (call := self._call(value)) is not None:
            run.calls.append(call)
            if isinstance(binding.var.ty, relax.TupleType):
                self._tuples[key] = call.results
            else:
                (self._memory[key],) = call.results
        else:
            return False
        run.bindings.append(binding)
        return True

    def _follow(self, binding: Binding) -> None:
        """Learn what a binding defines that is left as it is: a view of anything, perhaps."""
        self._memory[hash(binding.var)] = Memory(binding.var.ty, binding.var, may_share=True)

    def _viewed(self, value: Expr) -> Memory | None:
        """The memory that a value is a view of, if it is one."""
        if (source := _source(value)) is not None:
            return self._memory.get(hash(source))
        if not isinstance(value, relax.TupleGetItem):
            return None
        items = self._tuples.get(hash(value.tuple_value))
        return None if items is None else items[int(value.index)]

    def _call(self, value: Expr) -> KernelCall | None:
        """The call of a kernel that can be joined with others."""
        if not _calls_kernel(value):
            return None
        fields = list(value.args[1].fields)
        numbers = tuple(each for each in fields if isinstance(each.ty, tvm.ir.PrimType))
        passed = fields[: len(fields) - len(numbers)]  # which come before the numbers
        operands = tuple(map(self._operand, passed))
        types = _result_types(value)
        indices = value.attrs.inplace_indices if value.op.same_as(INPLACE) else [-1] * len(types)
        results = tuple(
            operands[index] if index >= 0 else Memory(own)
            for index, own in zip(indices, types, strict=True)
        )
        seen = [each.ty for each in passed]
        written = [own for index, own in zip(indices, types, strict=True) if index < 0]
        if not all(map(_has_sizes, (*seen, *written))):
            return None
        shapes = tuple(map(sizes_of, (*seen, *written)))
        function = self._kernels.of(value.args[0], shapes)
        if function is None:
            return None
        return KernelCall(function, shapes, numbers, operands, results)

    def _operand(self, value: Expr) -> Memory:
        """The memory of a variable, or of a constant."""
        known = self._memory.get(hash(value)) if isinstance(value, tvm.ir.Var) else None
        return Memory(value.ty, value) if known is None else known

    def _finished(self, run: Run, end: int) -> list[Binding]:
        """The bindings in place of a run that ends before binding ``end``."""
        needed = self._needed(run, end)
        bindings = self._joined(run, needed) or run.bindings
        for binding in bindings:
            memory = self._memory.get(hash(binding.var))
            if memory is not None and memory.expr is None:
                memory.type, memory.expr = binding.var.ty, binding.var
        return bindings

    def _joined(self, run: Run, needed: set[int]) -> list[Binding]:
        """The call of one kernel, and the variables that are needed; empty if it cannot be."""
        if len(run.calls) < FEWEST or needed & self._tuples.keys():
            return []
        written = {self._memory[key] for key in needed}
        new = [memory for memory in run.new if memory in written]
        results = [*run.updated, *new]
        if not results:
            return []
        try:
            function, given = run.joined(new)
        except CannotJoinError:
            return []
        kernel = self._builder.add_func(function, self._hint)
        bindings, items = _called(kernel, run, results, given)
        for binding in run.bindings:
            if hash(binding.var) in needed:
                memory = self._memory[hash(binding.var)]
                is_view = _source(binding.value) is not None
                bindings += [binding] if is_view else _bound(binding.var, items[memory])
        return bindings

    def _needed(self, run: Run, end: int) -> set[int]:
        """The variables of a run that something behind it reads, and those that they view."""
        needed: set[int] = set()
        for binding in reversed(run.bindings):
            key = hash(binding.var)
            if self._last_use.get(key, -1) >= end or key in needed:
                needed.add(key)
                if (source := _source(binding.value)) is not None:
                    needed.add(hash(source))
        return needed & {hash(binding.var) for binding in run.bindings}


def _called(
    kernel: Expr, run: Run, results: Sequence[Memory], given: Sequence[Expr]
) -> tuple[list[Binding], dict[Memory, Expr]]:
    """Call a joined kernel: the binding, and the expression of each result.

    Memory of the types ``given`` is made for it as results are.
    """
    outer, types = run.outer, [*(memory.type for memory in results), *given]
    operands = relax.Tuple([memory.expr for memory in outer])
    if run.updated:
        own = [outer.index(each) if each in outer else -1 for each in results]
        indices = [*own, *(-1 for _ in given)]
        call = relax.op.call_tir_inplace(kernel, operands, indices, types)
    else:
        call = relax.op.call_tir(kernel, operands, types)
    if len(types) == 1:
        value = relax.DataflowVar("joined", types[0])
        return [relax.VarBinding(value, call)], {results[0]: value}
    value = relax.DataflowVar("joined", relax.TupleType(types))
    items = {memory: relax.TupleGetItem(value, index) for index, memory in enumerate(results)}
    return [relax.VarBinding(value, call)], items


def _bound(variable: Expr, item: Expr) -> list[Binding]:
    """Bind a variable to a result, in the shape that it has."""
    shape = variable.ty.shape
    if are_same(sizes_of(item_type := _type_of(item)), sizes_of(variable.ty)):
        return [relax.VarBinding(variable, item)]
    whole = relax.DataflowVar("whole", item_type)
    view = relax.op.reshape(whole, shape)
    return [relax.VarBinding(whole, item), relax.VarBinding(variable, view)]


def _type_of(item: Expr) -> Expr:
    """The type of a result."""
    if isinstance(item, relax.TupleGetItem):
        return item.tuple_value.ty.fields[item.index]
    return item.ty


def _source(value: Expr) -> Expr | None:
    """The variable that a value is another name of, or the same elements in another shape."""
    if isinstance(value, tvm.ir.Var):
        return value
    if isinstance(value, tvm.ir.Call) and value.op.same_as(RESHAPE):
        return value.args[0]
    return None


def _calls_kernel(value: Expr) -> bool:
    """Return whether a value is a call of a kernel."""
    called = isinstance(value, tvm.ir.Call) and any(map(value.op.same_as, (CALL, INPLACE)))
    return called and len(value.args) == 2  # a third has sizes behind the results


def _result_types(call: Expr) -> list[Expr]:
    (result,) = call.ty_args
    return list(result.fields) if isinstance(result, relax.TupleType) else [result]


def _has_sizes(tensor_type: Expr) -> bool:
    """Return whether a type is that of a tensor whose sizes it says."""
    shape = tensor_type.shape if isinstance(tensor_type, relax.TensorType) else None
    return isinstance(shape, relax.ShapeExpr)


def _joinable(function: PrimFunc) -> PrimFunc | None:
    """A kernel that was lowered, if it can be joined with others."""
    try:
        parts_of(statements_of(function))
    except CannotJoinError:
        return None
    return function


def _last_uses(values: Sequence[Expr]) -> dict[int, int]:
    """The last of several values that reads each variable."""
    last: dict[int, int] = {}
    for position, value in enumerate(values):
        used: list[Expr] = []
        structural_walk(value, (tvm.ir.Var, used.append))
        last |= dict.fromkeys(map(hash, used), position)
    return last
