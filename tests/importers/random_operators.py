"""Operators that a random graph draws from, with attributes and operands that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tests.importers.random_graphs import FLOATS, WHOLE, Drawn, RandomGraph

Draws = Callable[[RandomGraph], None]
NUMBERS = FLOATS + WHOLE
ANY = (*NUMBERS, np.bool_)
TO = {np.float32: 1, np.int32: 6, np.int64: 7, np.bool_: 9, np.float64: 11, np.float16: 10}

EXACT = ("Abs", "Neg", "Relu", "Identity")
ROUNDING = ("Floor", "Ceil", "Round", "Sign")
SMOOTH = (
    *("Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Atan", "Exp", "HardSwish"),
    *("Mish", "Elu", "Selu", "Celu", "LeakyRelu", "HardSigmoid", "Gelu", "Sinh", "Cosh", "Asinh"),
)
COMPARING = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
LOGIC = ("And", "Or", "Xor")
REDUCING = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")
SCATTERED = ("none", "add", "mul", "max", "min")


def exact_unary(graph: RandomGraph) -> None:
    graph.add(graph.one(EXACT), [graph.pick(FLOATS)], exact=True)


def rounding(graph: RandomGraph) -> None:
    graph.add(graph.one(ROUNDING), [graph.pick(exact=True)], exact=True)


def smooth(graph: RandomGraph) -> None:
    graph.add(graph.one(SMOOTH), [graph.pick()])


def arithmetic(graph: RandomGraph) -> None:
    left = graph.pick(NUMBERS)
    operands = [left, graph.beside(left)]
    swapped = operands[::-1] if graph.chance() else operands
    graph.add(graph.one(("Add", "Sub", "Mul", "Min", "Max")), swapped, exact=True)


def folded(graph: RandomGraph) -> None:
    first = graph.pick()
    more = [graph.beside(first) for _ in range(graph.number(0, 2))]
    op = graph.one(("Sum", "Mean", "Max", "Min"))
    graph.add(op, [first, *more], exact=op != "Mean")


def dividing(graph: RandomGraph) -> None:
    left = graph.pick(NUMBERS)
    kind = left.value.dtype.type
    divisor = graph.elements(left.shape, kind, limit=3)
    right = graph.given(np.where(divisor == 0, kind(2), divisor))
    if kind is np.float32:
        graph.add("Div", [left, right])
    elif graph.chance():
        graph.add("Div", [left, right], exact=True)
    else:
        graph.add("Mod", [left, right], exact=True, fmod=graph.number(0, 1))


def positive(graph: RandomGraph) -> None:
    """A logarithm, a root or a power of what is at least one half."""
    graph.add("Abs", [graph.pick()], exact=True)
    half = graph.given(np.array(0.5, np.float32), constant=True)
    graph.add("Add", [graph.tensors[-1], half], exact=True)
    base = graph.tensors[-1]
    op = graph.one(("Log", "Sqrt", "Reciprocal", "Pow"))
    power = graph.given(np.array(graph.one((-1, 0.5, 2, 3)), np.float32))
    graph.add(op, [base, power] if op == "Pow" else [base])


def comparing(graph: RandomGraph) -> None:
    left = graph.pick(NUMBERS, exact=True)
    graph.add(graph.one(COMPARING), [left, graph.beside(left, exact=True)])


def logic(graph: RandomGraph) -> None:
    left = graph.pick((np.bool_,))
    graph.add(graph.one(LOGIC), [left, graph.beside(left)])


def choosing(graph: RandomGraph) -> None:
    one = graph.pick(NUMBERS)
    condition = graph.pick((np.bool_,), fits=lambda other: other.rank <= one.rank)
    try:
        np.broadcast_shapes(condition.shape, one.shape)
    except ValueError:
        return
    graph.add("Where", [condition, one, graph.beside(one)], exact=True)


def casting(graph: RandomGraph) -> None:
    source = graph.pick(ANY, exact=True)
    graph.add("Cast", [source], exact=True, to=TO[graph.one((*NUMBERS, np.bool_))])


def clipping(graph: RandomGraph) -> None:
    source = graph.pick()
    low, high = (graph.given(np.array(one, np.float32)) for one in (-1.5, 2.25))
    graph.add(
        "Clip",
        [source, low if graph.chance() else None, high if graph.chance() else None],
        exact=True,
    )


def transposing(graph: RandomGraph) -> None:
    source = graph.pick(ANY)
    order = graph.order(source.rank)
    graph.add(
        "Transpose", [source], exact=True, **({"perm": order} if order and graph.chance() else {})
    )


def reshaping(graph: RandomGraph) -> None:
    source = graph.pick(ANY, rank=(1, 4))
    sizes, left = [], source.value.size
    for _ in range(graph.number(0, 3)):
        size = graph.one([one for one in range(1, left + 1) if left % one == 0][:6])
        sizes.append(size)
        left //= size
    sizes.append(-1 if graph.chance() else left)
    if sizes[0] == source.shape[0] and graph.chance():
        sizes[0] = 0
    graph.add("Reshape", [source, graph.numbers(sizes)], exact=True)


def flattening(graph: RandomGraph) -> None:
    source = graph.pick(ANY)
    graph.add("Flatten", [source], exact=True, axis=graph.number(-source.rank, source.rank))


def widening(graph: RandomGraph) -> None:
    source = graph.pick(ANY, rank=(0, 3))
    places = [graph.number(0, source.rank)]
    graph.add("Unsqueeze", [source, graph.numbers(places)], exact=True)


def squeezing(graph: RandomGraph) -> None:
    source = graph.pick(ANY, rank=(1, 4), fits=lambda one: 1 in one.shape)
    ones = [axis for axis, size in enumerate(source.shape) if size == 1]
    if ones:
        axes = [graph.numbers([graph.one(ones)])] if graph.chance() else []
        graph.add("Squeeze", [source, *axes], exact=True)


def expanding(graph: RandomGraph) -> None:
    source = graph.pick(ANY, rank=(0, 3))
    grown = [size if size > 1 or graph.chance() else graph.number(1, 4) for size in source.shape]
    sizes = [*([graph.number(1, 3)] if graph.chance() else []), *grown]
    graph.add("Expand", [source, graph.numbers(sizes)], exact=True)


def tiling(graph: RandomGraph) -> None:
    source = graph.pick(ANY, rank=(1, 3))
    repeats = [graph.number(1, 3) for _ in source.shape]
    graph.add("Tile", [source, graph.numbers(repeats)], exact=True)


def padding(graph: RandomGraph) -> None:
    source = graph.pick(rank=(1, 4))
    mode = graph.one(("constant", "edge", "reflect", "wrap"))
    least = [-1 if mode == "constant" and size > 2 else 0 for size in source.shape]
    most = [min(2, size - 1) if mode == "reflect" else 2 for size in source.shape]
    pads = [graph.number(*one) for one in 2 * list(zip(least, most, strict=True))]
    number = graph.given(np.array(1.5, np.float32)) if mode == "constant" else None
    operands = [source, graph.numbers(pads), *([number] if number else [])]
    graph.add("Pad", operands, exact=True, mode=mode)


def slicing(graph: RandomGraph) -> None:
    source = graph.pick(ANY, rank=(1, 4))
    axes = graph.axes(source)
    if not axes:
        return
    steps = [graph.one((1, 1, 2, 3, -1, -2)) for _ in axes]
    bounds = [[graph.number(-7, 7) for _ in axes] for _ in range(2)]
    ends = [
        graph.one((one, 1 << 40 if step > 0 else -(1 << 40)))
        for one, step in zip(bounds[1], steps, strict=True)
    ]
    graph.add("Slice", [source, *map(graph.numbers, (bounds[0], ends, axes, steps))], exact=True)


def joining(graph: RandomGraph) -> None:
    first = graph.pick(ANY, rank=(1, 4))
    axis = graph.axis(first)
    more = []
    for _ in range(graph.number(0, 2)):
        shape = list(first.shape)
        shape[axis] = graph.number(1, 3)
        alike = [one for one in graph.tensors if _joins_at(one, first, axis)]
        new = graph.given(graph.elements(shape, first.value.dtype.type))
        more.append(graph.one(alike) if alike and graph.chance() else new)
    graph.add("Concat", [first, *more], exact=True, axis=axis)


def _joins_at(one: Drawn, first: Drawn, axis: int) -> bool:
    if one.value.dtype != first.value.dtype or one.rank != first.rank:
        return False
    return np.delete(one.shape, axis).tolist() == np.delete(first.shape, axis).tolist()


def splitting(graph: RandomGraph) -> None:
    source = graph.pick(ANY, rank=(1, 4), fits=lambda one: max(one.shape) > 1)
    axis = int(np.argmax(source.shape))
    size = source.shape[axis]
    if size < 2:
        return
    if graph.chance():
        first = graph.number(1, size - 1)
        graph.add(
            "Split",
            [source, graph.numbers([first, size - first])],
            results=2,
            exact=True,
            axis=axis,
        )
    else:
        graph.add("Split", [source], results=2, exact=True, axis=axis, num_outputs=2)


def gathering(graph: RandomGraph) -> None:
    source = graph.pick(ANY, rank=(1, 3))
    axis = graph.axis(source)
    size = source.shape[axis]
    shape = graph.shape(0, 2)
    op = graph.one(("Gather", "GatherElements"))
    if op == "GatherElements":
        shape = tuple(graph.number(1, most) for most in source.shape)
    random = np.random.default_rng(graph.number(0, 99))
    places = graph.given(random.integers(-size, size, shape).astype(graph.one(WHOLE)))
    graph.add(op, [source, places], exact=True, axis=axis)


def gathering_rows(graph: RandomGraph) -> None:
    source = graph.pick(ANY, rank=(1, 4))
    depth = graph.number(1, source.rank)
    random = np.random.default_rng(graph.number(0, 99))
    shape = graph.shape(0, 2)
    places = np.stack(
        [random.integers(-size, size, shape) for size in source.shape[:depth]], axis=-1
    )
    graph.add("GatherND", [source, graph.given(places.astype(np.int64))], exact=True)


def scattering(graph: RandomGraph) -> None:
    source = graph.pick(FLOATS, rank=(1, 3))
    depth = graph.number(1, source.rank)
    counts = source.shape[:depth]
    total = int(np.prod(counts))
    random = np.random.default_rng(graph.number(0, 99))
    chosen = random.choice(total, graph.number(1, total), replace=False)
    places = np.stack(np.unravel_index(chosen, counts), axis=-1).astype(np.int64)
    updates = graph.given(graph.elements((len(chosen), *source.shape[depth:])))
    graph.add(
        "ScatterND", [source, graph.given(places), updates], exact=True,
        reduction=graph.one(SCATTERED),
    )  # fmt: skip


def scattering_elements(graph: RandomGraph) -> None:
    source = graph.pick(FLOATS, rank=(1, 3))
    axis = graph.axis(source)
    random = np.random.default_rng(graph.number(0, 99))
    places = np.argsort(random.random(source.shape), axis=axis)
    count = graph.number(1, source.shape[axis])
    places = np.take(places, range(count), axis=axis).astype(graph.one(WHOLE))
    updates = graph.given(graph.elements(places.shape))
    graph.add(
        "ScatterElements", [source, graph.given(places), updates], exact=True, axis=axis,
        reduction=graph.one(SCATTERED),
    )  # fmt: skip


def reducing(graph: RandomGraph) -> None:
    source = graph.pick(rank=(1, 4))
    op = graph.one((*REDUCING, "ReduceL2", "ReduceLogSumExp", "ReduceProd"))
    axes = graph.axes(source)
    operands = [source, graph.numbers(axes)] if axes and graph.chance() else [source]
    graph.add(
        op, operands, keepdims=graph.number(0, 1),
        **({} if op == "ReduceProd" else {"noop_with_empty_axes": graph.number(0, 1)}),
    )  # fmt: skip


def ranking(graph: RandomGraph) -> None:
    source = graph.pick(NUMBERS, rank=(1, 4), exact=True)
    axis = graph.axis(source)
    if graph.chance():
        count = graph.number(1, source.shape[axis])
        graph.add(
            "TopK", [source, graph.numbers([count])], results=2, exact=True, axis=axis,
            largest=graph.number(0, 1),
        )  # fmt: skip
    else:
        graph.add(
            graph.one(("ArgMax", "ArgMin")), [source], exact=True, axis=axis,
            keepdims=graph.number(0, 1), select_last_index=graph.number(0, 1),
        )  # fmt: skip


def summing(graph: RandomGraph) -> None:
    source = graph.pick(NUMBERS, rank=(1, 3))
    axis = graph.given(np.array(graph.axis(source), np.int64), constant=True)
    flags = {name: graph.number(0, 1) for name in ("exclusive", "reverse")}
    graph.add("CumSum", [source, axis], exact=True, **flags)


def triangles(graph: RandomGraph) -> None:
    source = graph.pick(NUMBERS, rank=(2, 4))
    diagonal = graph.numbers([graph.number(-3, 3)])
    graph.initializers[diagonal.name] = diagonal.value.reshape(())
    scalar = Drawn(diagonal.name, diagonal.value.reshape(()))
    graph.add("Trilu", [source, scalar], exact=True, upper=graph.number(0, 1))


def one_hot(graph: RandomGraph) -> None:
    shape, depth = graph.shape(1, 2), graph.number(1, 4)
    random = np.random.default_rng(graph.number(0, 99))
    places = graph.given(random.integers(-depth - 1, depth + 1, shape).astype(np.int64))
    size = graph.given(np.array(depth, np.int64), constant=True)
    values = graph.given(np.array([-0.5, 2], np.float32))
    graph.add("OneHot", [places, size, values], exact=True, axis=graph.number(-1, len(shape)))


def multiplying(graph: RandomGraph) -> None:
    left = graph.pick(rank=(1, 4))
    inner = left.shape[-1]
    batch = [size if graph.chance() else 1 for size in left.shape[:-2]]
    batch = batch[graph.number(0, len(batch)) :]
    shape = [inner] if graph.number(0, 4) == 0 else [*batch, inner, graph.number(1, 5)]
    graph.add("MatMul", [left, graph.given(graph.elements(shape))], exact=True)


def general_product(graph: RandomGraph) -> None:
    left = graph.pick(rank=(2, 2))
    turned = {name: graph.number(0, 1) for name in ("transA", "transB")}
    inner, rows = left.shape[:: 1 if turned["transA"] else -1]
    columns = graph.number(1, 5)
    shape = (columns, inner) if turned["transB"] else (inner, columns)
    right = graph.given(graph.elements(shape))
    sums = [graph.one((rows, 1)), graph.one((columns, 1))][graph.number(0, 2) :]
    bias = [graph.given(graph.elements(sums))] if graph.chance() else []
    factors = {name: graph.one((0.5, 1.0, 2.0)) for name in ("alpha", "beta")}
    graph.add("Gemm", [left, right, *bias], exact=True, **turned, **factors)


def normalizing(graph: RandomGraph) -> None:
    source = graph.pick(rank=(1, 4))
    axis = graph.axis(source)
    op = graph.one(("Softmax", "LogSoftmax", "LpNormalization", "LayerNormalization", "Hardmax"))
    if op == "Hardmax":
        source = graph.pick(rank=(1, 4), exact=True)
        axis = graph.axis(source)
    if op != "LayerNormalization":
        graph.add(op, [source], axis=axis)
        return
    shape = source.shape[axis:]
    scale, bias = (graph.given(graph.elements(shape)) for _ in range(2))
    graph.add(op, [source, scale, *([bias] if graph.chance() else [])], axis=axis, epsilon=0.01)


def channel_normalizing(graph: RandomGraph) -> None:
    source = graph.pick(rank=(3, 4))
    channels = source.shape[1]
    scale, bias, mean = (graph.given(graph.elements((channels,))) for _ in range(3))
    if graph.chance():
        variance = graph.given(np.abs(graph.elements((channels,))) + np.float32(0.5))
        graph.add("BatchNormalization", [source, scale, bias, mean, variance])
    else:
        graph.add("InstanceNormalization", [source, scale, bias], epsilon=0.01)


def _window(graph: RandomGraph, source: Drawn) -> dict[str, list[int]]:
    count = source.rank - 2
    return {
        "kernel_shape": [graph.number(1, 3) for _ in range(count)],
        "strides": [graph.number(1, 2) for _ in range(count)],
        "pads": [graph.number(0, 1) for _ in range(2 * count)],
        "dilations": [graph.number(1, 2) for _ in range(count)],
    }


def _fits(source: Drawn, window: dict[str, list[int]]) -> bool:
    count = len(window["kernel_shape"])
    return all(
        size + window["pads"][at] + window["pads"][at + count]
        > (window["kernel_shape"][at] - 1) * window["dilations"][at]
        for at, size in enumerate(source.shape[2:])
    )


def convolving(graph: RandomGraph) -> None:
    source = graph.pick(rank=(3, 4))
    window = _window(graph, source)
    if graph.number(0, 3) == 0:
        del window["pads"]
        window["dilations"] = [1] * (source.rank - 2)
        padded = {"auto_pad": graph.one(("SAME_UPPER", "SAME_LOWER"))}
    elif not _fits(source, window):
        return
    else:
        padded = {}
    channels = source.shape[1]
    group = graph.one([one for one in range(1, channels + 1) if channels % one == 0])
    outputs = group * graph.number(1, 3)
    kernel = (outputs, channels // group, *window["kernel_shape"])
    weight = graph.given(graph.elements(kernel, limit=1))
    bias = [graph.given(graph.elements((outputs,)))] if graph.chance() else []
    graph.add("Conv", [source, weight, *bias], exact=True, group=group, **window, **padded)


def transposed_convolving(graph: RandomGraph) -> None:
    source = graph.pick(rank=(3, 4))
    window = _window(graph, source)
    channels = source.shape[1]
    group = graph.one([one for one in range(1, channels + 1) if channels % one == 0])
    each = graph.number(1, 3)
    kernel = (channels, each, *window["kernel_shape"])
    weight = graph.given(graph.elements(kernel, limit=1))
    bias = [graph.given(graph.elements((each * group,)))] if graph.chance() else []
    more = [graph.number(0, one - 1) for one in window["strides"]]
    extents = [
        (size - 1) * stride + (kernel - 1) * dilation + 1 + extra - low - high
        for size, stride, kernel, dilation, extra, low, high in zip(
            source.shape[2:], window["strides"], window["kernel_shape"], window["dilations"], more,
            window["pads"], window["pads"][source.rank - 2 :], strict=False,
        )
    ]  # fmt: skip
    if min(extents) > 0:
        graph.add(
            "ConvTranspose", [source, weight, *bias], exact=True, group=group,
            output_padding=more, **window,
        )  # fmt: skip


def pooling(graph: RandomGraph) -> None:
    source = graph.pick(rank=(3, 4))
    if graph.number(0, 3) == 0:
        op = graph.one(("GlobalAveragePool", "GlobalMaxPool"))
        graph.add(op, [source], exact=op == "GlobalMaxPool")
        return
    window = _window(graph, source)
    kernels = 2 * window["kernel_shape"]
    window["pads"] = [pad * (size > 1) for pad, size in zip(window["pads"], kernels, strict=True)]
    if not _fits(source, window):
        return
    ceil = graph.number(0, 1)
    if graph.chance():
        graph.add("MaxPool", [source], exact=True, ceil_mode=ceil, **window)
    else:
        graph.add(
            "AveragePool", [source], ceil_mode=ceil, count_include_pad=graph.number(0, 1), **window
        )


def resizing(graph: RandomGraph) -> None:
    source = graph.pick(rank=(4, 4))
    sizes = [*source.shape[:2], *(graph.number(1, 7) for _ in range(2))]
    mode = graph.one(("nearest", "linear", "cubic"))
    how = graph.one(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    rounds = graph.one(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    options = {"nearest_mode": rounds} if mode == "nearest" else {}
    graph.add(
        "Resize", [source, None, None, graph.numbers(sizes)], mode=mode,
        coordinate_transformation_mode=how, **options,
    )  # fmt: skip


def moving_blocks(graph: RandomGraph) -> None:
    sizes = graph.shape(4, 4)
    if graph.chance():
        shape = (sizes[0], sizes[1] * 4, sizes[2], sizes[3])
        source = graph.given(graph.elements(shape), constant=False)
        graph.add("DepthToSpace", [source], exact=True, blocksize=2, mode=graph.one(("DCR", "CRD")))
    else:
        shape = (sizes[0], sizes[1], sizes[2] * 2, sizes[3] * 2)
        source = graph.given(graph.elements(shape), constant=False)
        graph.add("SpaceToDepth", [source], exact=True, blocksize=2)


def einsum(graph: RandomGraph) -> None:
    source = graph.pick(rank=(3, 3))
    a, b, c = source.shape
    equation, shape = graph.one(
        [
            ("abc,cd->abd", (c, 3)),
            ("abc,adc->abd", (a, 2, c)),
            ("abc,acd->bad", (a, c, 2)),
            ("abc,b->ac", (b,)),
            ("abc,abc->a", (a, b, c)),
            ("...c,c->...", (c,)),
        ]
    )
    graph.add("Einsum", [source, graph.given(graph.elements(shape))], exact=True, equation=equation)


def sizes(graph: RandomGraph) -> None:
    """A shape or a part of it, by which another tensor may be reshaped."""
    source = graph.pick(ANY, rank=(1, 4))
    graph.add("Shape", [source], exact=True, start=graph.number(-source.rank, 0))


def by_its_shape(graph: RandomGraph) -> None:
    """A tensor reshaped or expanded by the shape of another, or of itself."""
    source = graph.pick(FLOATS, rank=(1, 3))
    graph.add("Shape", [source], exact=True)
    shape = graph.tensors[-1]
    if graph.chance():
        flat = Drawn(source.name, source.value.reshape(-1), source.exact)
        graph.add("Flatten", [source], exact=True, axis=0)
        flat = graph.tensors[-1]
        graph.add("Reshape", [flat, shape], exact=True)
    else:
        graph.add("Expand", [graph.given(graph.elements((1,))), shape], exact=True)


def recurrent(graph: RandomGraph) -> None:
    source = graph.pick(rank=(3, 3))
    length, batch, width = source.shape
    op, gates, results = graph.one((("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 2)))
    direction = graph.one(("forward", "reverse", "bidirectional"))
    sides, hidden = 1 + (direction == "bidirectional"), graph.number(1, 4)
    shapes = [(gates * hidden, width), (gates * hidden, hidden), (2 * gates * hidden,)]
    weights = [graph.given(graph.elements((sides, *one), limit=1)) for one in shapes]
    operands: list[Drawn | None] = [source, *weights[: 3 if graph.chance() else 2]]
    if len(operands) == 4 and graph.chance():
        random = np.random.default_rng(graph.number(0, 99))
        lengths = random.integers(1, length + 1, batch).astype(np.int32)
        start = graph.given(graph.elements((sides, batch, hidden), limit=1))
        operands += [graph.given(lengths) if graph.chance() else None, start]
    extra = {"linear_before_reset": graph.number(0, 1)} if op == "GRU" else {}
    graph.add(op, operands, results=results, direction=direction, hidden_size=hidden, **extra)


OPERATORS: Mapping[str, Draws] = {
    name: draws
    for name, draws in globals().items()
    if callable(draws)
    and getattr(draws, "__module__", "") == __name__
    and name[0] not in "_A"
    and name not in ("Draws",)
}
