"""One graph as one Relax function: its values, their shapes, and the calls of kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax, tirx

from maxtool.compiler.fusion.node_index import NodeIndex
from maxtool.compiler.kernels.cuda.gpu_requests import Narrow
from maxtool.compiler.kernels.requests import Request
from maxtool.compiler.lowering import index_expressions
from maxtool.compiler.lowering.chain import Chain, Pending
from maxtool.compiler.lowering.function_form import PLAIN, FunctionForm
from maxtool.compiler.lowering.relax_module import RelaxModule
from maxtool.compiler.storage import WeightStorage
from maxtool.compiler.storage_types import bits, stored
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.graph import BufferType, DeviceRef, Dim, Node, Shape, Tensor, TensorType
from maxtool.graph.type import HOST

Expr: TypeAlias = Any  # tvm ships no types
# What says, in a function, what the results of a node are.
Rule: TypeAlias = Callable[["FunctionLowering", Node], None]


class FunctionLowering:
    """The values of one graph while its Relax function is built.

    A value is known whole, as its own shape says, or flat, as ``[rows, last dimension]``, which is
    what row-wise kernels take; each is a view of the other, taken when it is asked for. A chain
    of elementwise operations stays a :class:`Chain` until something else needs its result.
    """

    def __init__(self, module: RelaxModule, form: FunctionForm = PLAIN) -> None:
        """Begin a function; named dimensions are those of its ``form`` where that has a size."""
        self.module = module
        self.index = NodeIndex((), ())
        self.whole: dict[int, Expr] = {}
        self.flat: dict[int, Expr] = {}
        self.derived: dict[tuple[object, ...], Any] = {}
        self.chains: dict[int, Chain] = {}
        self.storage: dict[int, WeightStorage] = {}
        self.constants: dict[int, np.ndarray[Any, Any]] = {}
        self.rounded: Mapping[int, DType] = {}
        self.form = form
        self._dims: dict[str, Expr] = {
            name: tirx.IntImm("int64", size) for name, size in form.sizes
        }
        self._device: DeviceRef = HOST

    # Devices

    @contextmanager
    def on(self, device: DeviceRef) -> Iterator[None]:
        """Call kernels that compute on a device inside this block."""
        before, self._device = self._device, device
        try:
            yield
        finally:
            self._device = before

    @property
    def target(self) -> Target:
        """Target of the kernels that are called now."""
        return self.module.placement.target(self._device)

    @property
    def vdevice(self) -> Expr:
        """Device of the kernels, as types of results name it; None if there is only one."""
        return self.module.placement.vdevice(self._device)

    # Shapes

    def with_other_sizes(self, names: Collection[str]) -> FunctionLowering:
        """The same function where some names stand for other sizes."""
        other = FunctionLowering(self.module, self.form)
        other._dims |= {name: dim for name, dim in self._dims.items() if name not in names}
        return other

    def dim(self, name: str) -> Expr:
        """The variable of a symbolic dimension in this function."""
        return self._dims.setdefault(name, tirx.Var(name, "int64"))

    def size(self, dim: Dim) -> Expr:
        """A dimension as Relax takes it: a number, a variable, or an expression of variables."""
        if isinstance(dim.value, int):
            return dim.value
        names = {name: self.dim(name) for name in dim.names()}
        return dim.polynomial.evaluate(names, tirx.IntImm("int64", 1))

    def sizes(self, shape: Shape) -> list[Expr]:
        """A shape as Relax takes it."""
        return [self.size(dim) for dim in shape]

    def flat_sizes(self, shape: Shape) -> list[Expr]:
        """``[rows, last]`` of a shape; ``[1, 1]`` of a scalar."""
        return [self.count(shape[:-1]), self.size(shape[-1]) if shape.rank else 1]

    def count(self, shape: Shape) -> Expr:
        """Return the number of elements of a shape."""
        return prod(self.sizes(shape), start=tirx.IntImm("int64", 1))

    def type(self, own: TensorType) -> Expr:
        """Return a type as Relax takes it."""
        vdevice = self.module.placement.vdevice(own.device)
        return relax.TensorType(self.sizes(own.shape), stored(own.dtype), vdevice=vdevice)

    # Values

    def set_whole(self, value: Tensor, expr: Expr) -> None:
        """Set the expression of ``value``, in its own shape."""
        self.whole[id(value)] = expr

    def set_flat(self, value: Tensor, expr: Expr) -> None:
        """Set the expression of ``value``, flat."""
        self.flat[id(value)] = expr

    def set_result(self, value: Tensor, expr: Expr) -> None:
        """Set the expression of ``value``, flat, in the type ``result_type`` gives."""
        dtype = self.result_type(value)
        if dtype is value.dtype:
            self.set_flat(value, expr)
        else:
            self.derived["narrow", id(value), dtype] = expr

    def result_type(self, value: Tensor) -> DType:
        """The type in which a kernel may write ``value``: a narrower one if all read it so."""
        return self.rounded.get(id(value), value.dtype)

    def set_weight(self, value: Tensor, expr: Expr, storage: WeightStorage) -> None:
        """Set the expression of a weight, and how it is stored."""
        self.whole[id(value)] = expr
        self.storage[id(value)] = storage

    def get(self, value: Tensor) -> Expr:
        """``value`` in its own shape."""
        key = id(value)
        if key in self.constants and key not in self.whole:
            self.whole[key] = self.constant(bits(self.constants[key]), value.device)
        self._settle(value)
        if key not in self.whole:
            flat = self.get_flat(value)
            same = value.rank == 2
            self.whole[key] = flat if same else self.reshaped(flat, self.sizes(value.shape))
        return self.whole[key]

    def get_flat(self, value: Tensor) -> Expr:
        """``value`` as ``[rows, last dimension]``."""
        key = id(value)
        self._settle(value)
        if key not in self.flat:
            whole = self.get(value)
            same = value.rank == 2
            self.flat[key] = whole if same else self.reshaped(whole, self.flat_sizes(value.shape))
        return self.flat[key]

    def _settle(self, value: Tensor) -> None:
        """Call the kernel of ``value`` if it is a chain that was not needed before."""
        key = id(value)
        if key not in self.chains or key in self.flat or key in self.whole:
            return
        chain = self.chains[key]
        with self.on(value.device):
            if chain.pending is None:
                self.flat[key] = self.chain_result(chain, value.shape, chain.out)
            else:
                self.whole[key] = self._after_pending(chain, chain.pending, value.shape)

    def _after_pending(self, chain: Chain, pending: Pending, shape: Shape) -> Expr:
        """Run a chain in the kernel of one of its inputs."""
        _, *others = chain.after(pending).inputs
        sizes = self.flat_sizes(shape)
        rows = [
            self.reshaped(each.alone(), sizes) if isinstance(each, Pending) else each
            for each in others
        ]
        return pending.emit(rows, chain.after(pending).steps, chain.out)

    def chain_result(self, chain: Chain, shape: Shape, dtype: DType = DType.float32) -> Expr:
        """Call the kernel of a chain; its result of that shape is flat, and of that type."""
        sizes = self.flat_sizes(shape)
        if chain.pending is not None and dtype is DType.float32:
            return self.reshaped(self._after_pending(chain, chain.pending, shape), sizes)
        operands = [
            self.reshaped(each.alone(), sizes) if isinstance(each, Pending) else each
            for each in chain.operands
        ]
        return self.kernel(chain.kernel(dtype), operands, sizes, dtype)

    def once(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return the result of ``make``, called on the first request only."""
        if key not in self.derived:
            self.derived[key] = make()
        return self.derived[key]

    def narrow(self, value: Tensor, dtype: DType) -> Expr:
        """``value`` flat, rounded to a narrower float type, once for all that read it so."""

        def make() -> Expr:
            sizes = self.flat_sizes(value.shape)
            if id(value) in self.chains and self.result_type(value) is dtype:
                return self.chain_result(self.chains[id(value)], value.shape, dtype)
            request = Narrow(dtype=dtype.value)
            return self.kernel(request, [self.get_flat(value)], sizes, dtype)

        return self.once(("narrow", id(value), dtype), make)

    def is_narrow(self, value: Tensor, dtype: DType) -> bool:
        """Return whether ``narrow`` is a no-op, or the kernel of a chain narrows already."""
        chained = id(value) in self.chains and self.result_type(value) is dtype
        return chained or ("narrow", id(value), dtype) in self.derived

    def moved(self, expr: Expr, device: DeviceRef) -> Expr:
        """A tensor on another device: a copy of it."""
        return self.emit(relax.op.to_vdevice(expr, self.module.placement.vdevice(device)))

    def constant(self, data: np.ndarray[Any, Any], device: DeviceRef) -> Expr:
        """Emit a constant; the virtual machine keeps it on the first of its devices."""
        placement = self.module.placement
        home = placement.devices[0]
        vdevice = placement.vdevice(home)
        tensor_type = relax.TensorType(data.shape, str(data.dtype), vdevice=vdevice)
        constant = tvm.ir.GenericConst(tvm.runtime.tensor(data), tensor_type)
        there = placement.vdevice(device) is vdevice
        return constant if there else self.moved(constant, device)

    def any(self, value: Tensor) -> Expr:
        """``value`` in whichever shape it is known already."""
        key = id(value)
        return self.flat[key] if key in self.flat else self.get(value)

    def reshaped(self, expr: Expr, sizes: Sequence[Expr]) -> Expr:
        """A view of the same elements in another shape."""
        shape = relax.ShapeExpr(list(sizes))
        if any(isinstance(size, tirx.IntImm) and int(size) == 0 for size in shape.values):
            # TVM's reshape takes 0 for the size that was there before.
            return self.compute(
                index_expressions.nothing(str(expr.ty.dtype)), shape, name="nothing"
            )
        return self.emit(relax.op.reshape(expr, shape))

    # Calls

    def emit(self, expr: Expr) -> Expr:
        """Bind an expression to a variable of the function."""
        return self.module.builder.emit(expr)

    def kernel(
        self,
        request: Request,
        operands: Sequence[Expr],
        sizes: Sequence[Expr],
        dtype: DType = DType.float32,
    ) -> Expr:
        """Call a kernel that writes a new tensor of these sizes, whole or flat as it has it."""
        (result,) = self.kernel_several(request, operands, [sizes], dtype)
        return result

    def kernel_several(
        self,
        request: Request,
        operands: Sequence[Expr],
        shapes: Sequence[Sequence[Expr]],
        dtype: DType = DType.float32,
    ) -> list[Expr]:
        """Call a kernel that writes several new tensors of one type, of these shapes."""
        types = [self._new(shape, dtype) for shape in shapes]
        return self.kernel_of_types(request, operands, types)

    def kernel_of_types(
        self, request: Request, operands: Sequence[Expr], types: Sequence[Expr]
    ) -> list[Expr]:
        """Call a kernel that writes new tensors, of types as Relax takes them."""
        kernel = self.module.kernel(request, self.target)
        return self._results(relax.op.call_tir(kernel, list(operands), list(types)), len(types))

    def kernel_updating(
        self,
        request: Request,
        operands: Sequence[Expr],
        updated: int,
        shapes: Sequence[Sequence[Expr]],
        dtype: DType = DType.float32,
    ) -> list[Expr]:
        """Call a kernel that overwrites the first of its operands and writes new tensors too.

        The results are the ``updated`` operands anew, then the new tensors, of these shapes.
        """
        kernel = self.module.kernel(request, self.target)
        new = [self._new(shape, dtype) for shape in shapes]
        types = [*(operand.ty for operand in operands[:updated]), *new]
        indices = [*range(updated), *(-1 for _ in new)]
        call = relax.op.call_tir_inplace(kernel, list(operands), indices, types)
        return self._results(call, len(types))

    def _new(self, shape: Sequence[Expr], dtype: DType) -> Expr:
        """Return the type of a tensor that a kernel writes."""
        return relax.TensorType(list(shape), stored(dtype), vdevice=self.vdevice)

    def _results(self, call: Expr, count: int) -> list[Expr]:
        """Return the results of a call, which is a tuple unless it is one tensor."""
        result = self.emit(call)
        if count == 1:
            return [result]
        return [self.emit(relax.TupleGetItem(result, index)) for index in range(count)]

    def compute(self, function: Callable[..., Any], *operands: Expr, name: str) -> Expr:
        """Call a kernel described by a tensor expression, scheduled by rule."""
        hint = self.module.unique(name)
        attributes = self.module.attributes(self.target)
        call = self.module.builder.call_te(
            function, *operands, primfunc_name_hint=hint, primfunc_attrs=attributes
        )
        (result,) = call.ty_args
        if not result.vdevice and self.vdevice:  # it reads no tensor whose device would be its own
            here = relax.TensorType(result.shape, result.dtype, vdevice=self.vdevice)
            call = relax.Call(call.op, call.args, call.attrs, [here])
        return self.emit(call)

    def broadcast(self, value: Tensor, shape: Shape) -> Expr:
        """``value`` repeated to another shape."""
        if value.shape == shape:
            return self.get(value)
        sizes = relax.ShapeExpr(self.sizes(shape))
        return self.compute(
            index_expressions.broadcast_to, self.get(value), sizes, name="broadcast"
        )

    def copied(self, value: Tensor) -> Expr:
        """``value`` as it is now, in memory of its own."""
        return self.compute(index_expressions.copy, self.get(value), name="copy")

    def to_keep(self, value: Tensor) -> Expr:
        """``value`` by another name: of a buffer a copy, since it may be overwritten later."""
        return self.copied(value) if isinstance(value.type, BufferType) else self.get(value)

    def to_overwrite(self, value: Tensor) -> Expr:
        """``value`` for a kernel that writes into it: a copy unless it is a buffer."""
        return self.get(value) if isinstance(value.type, BufferType) else self.copied(value)


def kernel_rule(request_of: Callable[[Node], Request]) -> Rule:
    """Return the rule of an operation that is one kernel, on its operands as they are."""

    def rule(function: FunctionLowering, node: Node) -> None:
        (result,) = node.outputs
        operands = [function.get(operand) for operand in node.inputs]
        sizes = function.sizes(result.shape)
        value = function.kernel(request_of(node), operands, sizes, result.dtype)
        function.set_whole(result, value)

    return rule
