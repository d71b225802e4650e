"""Rules for convolutions on GPUs: products of output pixels with filters, and of each channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from maxtool.compiler.filter_storage import filter_forms
from maxtool.compiler.fusion.convolution_fusions import DEPTHWISE, DIRECT, PHASED
from maxtool.compiler.image_geometry import as_row, filter_window, phases_of
from maxtool.compiler.kernels.cuda.gpu_requests import Depthwise, ImplicitGemm, Linear
from maxtool.compiler.kernels.cuda.product_output import FOUR
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, ChainStep
from maxtool.compiler.kernels.requests import Request
from maxtool.compiler.lowering.chain import Chain, Columns, Pending
from maxtool.compiler.lowering.convolution_rules import general_convolution, stored_filter
from maxtool.compiler.lowering.cuda.cuda_product_rules import product_of
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.permute_rules import permuted
from maxtool.dtype import DType
from maxtool.graph import Dim, Node

# Calls the kernel of a convolution, with what its epilogue reads, for a result of a type.
Call: TypeAlias = Callable[[ChainEpilogue, Sequence[Expr], DType], Expr]


def _direct(function: FunctionLowering, node: Node) -> None:
    x = node.inputs[0]
    (result,) = node.outputs
    groups, window = node.attributes["groups"], filter_window(node)
    inner, features = int(x.shape[-1]) // groups, int(result.shape[-1])
    product = product_of(x.dtype, Dim(features // groups), Dim(inner))
    filters = _filters(function, node, [groups, features // groups, prod(window.size) * inner])

    def of_images(after: ChainEpilogue, others: Sequence[Expr], out: DType) -> Expr:
        grouped = groups > 1
        request = ImplicitGemm(**vars(product), window=window, grouped=grouped, after=after)
        operands = [function.get(x), filters, *others]
        return function.kernel(request, operands, function.sizes(result.shape), out)

    def of_pixels(after: ChainEpilogue, others: Sequence[Expr], out: DType) -> Expr:
        request = Linear(**vars(product), after=after)
        matrix = function.reshaped(filters, [features, inner])
        operands, sizes = [function.get_flat(x), matrix, *others], function.flat_sizes(result.shape)
        value = function.kernel(request, operands, sizes, out)
        return function.reshaped(value, function.sizes(result.shape))

    _set(function, node, of_pixels if groups == 1 and window.is_pixel else of_images)


def _phased(function: FunctionLowering, node: Node) -> None:
    x, (result,) = node.inputs[0], node.outputs
    if stored_filter(function, node) is None:
        general_convolution(function, node)
        return
    channels, features = int(x.shape[-1]), int(result.shape[-1])
    window, phases = phases_of(node)
    product = product_of(x.dtype, Dim(features), Dim(channels))
    terms = prod(window.size) * channels
    filters = _filters(function, node, [phases.count, features, terms])

    def call(after: ChainEpilogue, others: Sequence[Expr], out: DType) -> Expr:
        request = ImplicitGemm(
            **vars(product), window=window, phases=phases, grouped=False, after=after
        )
        return _called(function, node, request, [filters, *others], out)

    _set(function, node, call)


def _called(
    function: FunctionLowering, node: Node, request: Request, others: Sequence[Expr], out: DType
) -> Expr:
    """The result of a kernel of images, for which a line is one of one row."""
    x, (result,) = node.inputs[0], node.outputs
    sizes = function.sizes(result.shape)
    if x.rank > 3:
        return function.kernel(request, [function.get(x), *others], sizes, out)
    batch, *line = function.sizes(x.shape)
    image = function.reshaped(function.get(x), [batch, 1, *line])
    value = function.kernel(request, [image, *others], [sizes[0], 1, *sizes[1:]], out)
    return function.reshaped(value, sizes)


def _depthwise(function: FunctionLowering, node: Node) -> None:
    x = node.inputs[0]
    window, channels = filter_window(node), int(x.shape[-1])
    filters = _filters(function, node, [*window.size, channels])
    if x.rank == 3:
        window, filters = as_row(window), function.reshaped(filters, [1, *window.size, channels])

    def call(after: ChainEpilogue, others: Sequence[Expr], out: DType) -> Expr:
        fours = channels % FOUR == 0
        request = Depthwise(dtype=x.dtype.value, window=window, fours=fours, after=after)
        return _called(function, node, request, [filters, *others], out)

    _set(function, node, call)


def _set(function: FunctionLowering, node: Node, call: Call) -> None:
    """Set the result of a convolution: pending where a chain may follow."""
    x, _, bias = node.inputs
    (result,) = node.outputs

    def emit(inputs: Sequence[Expr | Columns], steps: tuple[ChainStep, ...], out: DType) -> Expr:
        others = [each.expr if isinstance(each, Columns) else each for each in inputs]
        return call(_with_bias(x.dtype, inputs, steps, out), [function.get(bias), *others], out)

    if result.dtype is DType.float32:
        width = int(result.shape[-1])
        function.chains[id(result)] = Chain((Pending(emit),), (), width, result.dtype)
    else:
        function.set_whole(result, emit((), (), result.dtype))


def _with_bias(
    dtype: DType, inputs: Sequence[Expr | Columns], steps: tuple[ChainStep, ...], out: DType
) -> ChainEpilogue:
    """The epilogue of a chain on sums to which a bias of a type is added first.

    The chain counts the result with its bias first, then the inputs; the epilogue the sums, the
    bias and the inputs, and then what the bias has been added to.
    """
    places = [len(inputs) + 2, *range(2, len(inputs) + 2)]

    def moved(operand: int | str) -> int | str:
        if isinstance(operand, str):
            return operand
        return places[operand] if operand < len(places) else operand + 2

    chained = (ChainStep(step.op, tuple(map(moved, step.operands))) for step in steps)
    columns = (True, *(isinstance(each, Columns) for each in inputs))
    types = (dtype.value, *(DType.float32.value for _ in inputs))
    return ChainEpilogue(columns, (ChainStep("add", (0, 1)), *chained), types, out.value)


def _filters(function: FunctionLowering, node: Node, sizes: Sequence[int]) -> Expr:
    """The filter as its kernel reads it, in some sizes."""
    stored = stored_filter(function, node)
    if stored is not None:
        return function.reshaped(stored[0], sizes)
    (form,), weight = filter_forms(node, function.target), node.inputs[1]
    given = function.sizes(weight.shape)
    value = permuted(function, function.get(weight), given, form.order, weight.dtype)
    return function.reshaped(value, sizes)


CONVOLUTIONS: dict[str, Rule] = {
    DEPTHWISE: _depthwise,
    DIRECT: _direct,
    PHASED: _phased,
}
