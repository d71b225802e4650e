"""Rules for convolutions that have kernels of their own on CPUs.

Such a kernel waits for what is done to its result: it is pending until something needs that.
"""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.compiler.filter_storage import (
    FilterForm,
    GroupedFilterForm,
    WinogradFilterForm,
    filter_forms,
)
from maxtool.compiler.fusion.convolution_fusions import (
    INTEGER_DIRECT,
    OF_EACH_CHANNEL,
    PHASED,
    SPECIAL,
)
from maxtool.compiler.image_geometry import (
    are_pixels,
    filter_window,
    image_channels,
    image_sizes,
    image_window,
    phases_of,
)
from maxtool.compiler.kernels.cpu.cpu_requests import (
    DepthwiseConvolution,
    DirectConvolution,
    IntegerConvolution,
    StackDepth,
    WinogradConvolution,
)
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, ChainStep
from maxtool.compiler.kernels.requests import Convolution, Request
from maxtool.compiler.lowering import tensor_expressions as te
from maxtool.compiler.lowering.chain import Chain, Columns, Pending
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.integer_convolution_rules import integer_sums
from maxtool.compiler.lowering.permute_rules import permuted
from maxtool.compiler.storage_types import bits
from maxtool.dtype import DType
from maxtool.graph import Node


def _special(function: FunctionLowering, node: Node) -> None:
    x, _, bias, *gate = node.inputs
    (result,) = node.outputs
    stored = stored_filter(function, node)
    if stored is None:
        general_convolution(function, node)
        return
    weight, form = stored
    if node.op in OF_EACH_CHANNEL and x.rank == 3:
        weight = function.reshaped(weight, [1, *form.shape(node.inputs[1].shape.static())])
    operands = [_image(function, node), weight, *map(function.get, (*gate, bias))]
    sizes = function.sizes(result.shape)
    made = {3: [sizes[0], 1, *sizes[1:]], 5: [sizes[0] * sizes[1], *sizes[2:]]}.get(x.rank, sizes)
    if _are_one_line(node):
        made = [1, 1, sizes[0], sizes[-1]]

    def emit(inputs: Sequence[Expr | Columns], steps: tuple[ChainStep, ...], out: DType) -> Expr:
        columns = tuple(isinstance(each, Columns) for each in inputs)
        others = [each.expr if isinstance(each, Columns) else each for each in inputs]
        types = tuple(str(each.ty.dtype) for each in others)
        request = _request(node, form, ChainEpilogue(columns, steps, types, out.value))
        value = function.kernel(request, [*operands, *others], made, out)
        return value if made is sizes else function.reshaped(value, sizes)

    width = int(result.shape[-1])
    function.chains[id(result)] = Chain((Pending(emit),), (), width, result.dtype)


def _are_one_line(node: Node) -> bool:
    """Return whether its images are pixels that one line holds; those of each channel are not."""
    return node.op not in OF_EACH_CHANNEL and are_pixels(node)


def _image(function: FunctionLowering, node: Node) -> Expr:
    """The input as images: a line is one of one row, and a volume several of stacked slices.

    Single pixels are one line.
    """
    x = node.inputs[0]
    value, (batch, *sizes) = function.get(x), function.sizes(x.shape)
    if _are_one_line(node):
        return function.reshaped(value, [1, 1, batch, sizes[-1]])
    if x.rank == 3:
        return function.reshaped(value, [batch, 1, *sizes])
    if x.rank == 4:
        return value
    slices, rows, columns, channels = sizes
    outputs, stacked = function.size(node.outputs[0].shape[1]), image_channels(node)
    request = StackDepth(window=filter_window(node).along(slice(1)), channels=int(channels))
    flat = function.reshaped(value, [batch, slices, rows * columns, channels])
    sized = [batch, outputs, rows * columns, stacked]
    images = function.kernel(request, [flat], sized)
    return function.reshaped(images, [batch * outputs, rows, columns, stacked])


def _request(node: Node, form: FilterForm, after: ChainEpilogue) -> Request:
    """Return the request of a convolution by the form of its filter; a line has one row."""
    x, (result,) = node.inputs[0], node.outputs
    window, phases = phases_of(node) if node.op == PHASED else (image_window(node), None)
    channels, zero = image_channels(node), node.attributes.get("zero", 0)
    sizes = None if _are_one_line(node) else image_sizes(x)
    if node.op in OF_EACH_CHANNEL:
        return DepthwiseConvolution(
            window=window,
            image=sizes,
            channels=channels,
            after=after,
            dtype=x.dtype.value,
            zero=zero,
        )
    features = int(result.shape[-1])
    if node.op == INTEGER_DIRECT:
        return IntegerConvolution(
            window=window,
            image=sizes,
            channels=channels,
            features=features,
            dtype=x.dtype.value,
            zero=zero,
            after=after,
        )
    if sizes is not None and isinstance(form, WinogradFilterForm):
        return WinogradConvolution(
            window=window,
            image=sizes,
            channels=channels,
            features=features,
            outputs=form.outputs,
            after=after,
        )
    return DirectConvolution(
        window=window,
        image=sizes,
        channels=channels,
        features=features,
        groups=form.groups if isinstance(form, GroupedFilterForm) else 1,
        phases=phases,
        result=None if phases is None else image_sizes(result),
        scaled=len(node.inputs) == 4,
        after=after,
    )


def stored_filter(function: FunctionLowering, node: Node) -> tuple[Expr, FilterForm] | None:
    """The filter as the kernel reads it; None where it is only known at run time."""
    weight = node.inputs[1]
    forms = filter_forms(node, function.target)
    if not forms:
        return None
    storage = function.storage.get(id(weight))
    if storage is not None and storage.form in forms:
        return function.get(weight), storage.form
    if id(weight) not in function.constants:
        return None
    form, data = forms[0], function.constants[id(weight)]
    key = ("filter", id(weight), form)
    value = function.once(key, lambda: function.constant(bits(form.store(data)), weight.device))
    return value, form


def general_convolution(function: FunctionLowering, node: Node) -> None:
    """Lower to the kernel that any convolution has."""
    x, weight, bias, *gate = node.inputs
    order, (result,) = node.attributes["order"], node.outputs
    sizes = function.sizes(weight.shape)
    filter_ = permuted(function, function.get(weight), sizes, order, weight.dtype)
    if result.dtype is DType.int32:
        integer_sums(function, node, filter_, filter_window(node))
        return
    request = Convolution(
        dtype=x.dtype.value,
        window=filter_window(node),
        channels=int(x.shape[-1]),
        features=int(result.shape[-1]),
        groups=node.attributes["groups"],
        transposed=node.op == PHASED,
    )
    image = function.get(x)
    if gate:
        operands = [image, function.get(gate[0])]
        image = function.compute(te.elementwise("mul", x.dtype), *operands, name="mul")
    operands = [image, filter_, function.get(bias)]
    value = function.kernel(request, operands, function.sizes(result.shape), x.dtype)
    function.set_whole(result, value)


CONVOLUTIONS: dict[str, Rule] = dict.fromkeys(SPECIAL, _special)
