"""Rules for products on GPUs: matrices lie as they are; 16-bit ones meet activations like them."""

from __future__ import annotations

from maxtool.compiler.fusion.linear_fusions import has_kernel
from maxtool.compiler.fusion.product_fusions import is_one_token
from maxtool.compiler.kernels.cuda import gpu_requests as requests
from maxtool.compiler.kernels.cuda.matrix import PIECE
from maxtool.compiler.kernels.cuda.product_output import FOUR
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, ChainStep, adding
from maxtool.compiler.kernels.requests import Embedding
from maxtool.compiler.lowering.cast_rules import converted
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.permute_rules import permuted
from maxtool.compiler.lowering.product_rules import matrices
from maxtool.compiler.lowering.rules import RULES
from maxtool.dtype import DType
from maxtool.graph import Dim, Node, Shape, Tensor
from maxtool.graph.ops.neural import WEIGHT_DTYPES

# Columns from which on there are large tiles: one of them.
WIDE = 256


def _linear(function: FunctionLowering, node: Node) -> None:
    result = node.outputs[0]
    x, weight, *more = node.inputs
    if x.dtype is DType.float64 or weight.dtype not in WEIGHT_DTYPES:
        RULES["linear"](function, node)
        return
    operands = [_rows_of(function, x, weight.dtype), function.get(weight)]
    columns = tuple(tensor.rank == 1 for tensor in more)
    after = ChainEpilogue(columns, adding(len(more)))
    request = requests.Linear(**vars(product_of(weight.dtype, *weight.shape)), after=after)
    operands += [_float32_of(function, tensor) for tensor in more]
    value = function.kernel(request, operands, function.flat_sizes(result.shape))
    function.set_flat(result, converted(function, value, DType.float32, x.dtype))


def _float32_of(function: FunctionLowering, value: Tensor) -> Expr:
    """A bias, or flat what is added to every row, in float32."""
    plain = function.get(value) if value.rank == 1 else function.get_flat(value)
    return converted(function, plain, value.dtype, DType.float32)


def _matmul(function: FunctionLowering, node: Node) -> None:
    x, y = node.inputs
    result = node.outputs[0]
    if not has_kernel(x, y):
        RULES["matmul"](function, node)
        return
    batched = y.rank > 2
    columns, (n, k) = _transposed(function, y, already=node.attributes.get("transposed", False))
    request = requests.Linear(**vars(product_of(y.dtype, n, k)), batched=batched)
    operands = [_rows_of(function, x, y.dtype), columns]
    sizes = function.flat_sizes(result.shape)
    if batched:
        shapes = x.shape, Shape([*y.shape[:-2], n, k])
        operands = [
            function.reshaped(operand, matrices(function, shape))
            for operand, shape in zip(operands, shapes, strict=True)
        ]
        sizes = matrices(function, result.shape)
    product = function.kernel(request, operands, sizes)
    value = converted(function, product, DType.float32, x.dtype)
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _transposed(
    function: FunctionLowering, y: Tensor, *, already: bool
) -> tuple[Expr, tuple[Dim, Dim]]:
    """Matrices with the terms of a column next to each other, and their last two sizes."""
    *_, first, second = y.shape
    if already:
        return function.get(y), (first, second)
    dims = (*range(y.rank - 2), y.rank - 1, y.rank - 2)
    value = permuted(function, function.get(y), function.sizes(y.shape), dims, y.dtype)
    return value, (second, first)


def product_of(dtype: DType, n: Dim, k: Dim) -> requests.Product:
    """Return what the kernel of any product may rely on, of what is known of its sizes now."""
    return requests.Product(
        weight_dtype=dtype.value,
        aligned=_divides(PIECE[dtype.value], k),
        fours=_divides(FOUR, n),
        wide=n.is_static and int(n) >= WIDE,
    )


def _divides(divisor: int, size: Dim) -> bool:
    return size.is_static and size != 0 and int(size) % divisor == 0


def _rows_of(function: FunctionLowering, x: Tensor, dtype: DType) -> Expr:
    """``x`` flat, in the type of the weights that it is multiplied with."""
    if x.dtype is DType.float32 and dtype is not DType.float32:
        return function.narrow(x, dtype)
    return converted(function, function.get_flat(x), x.dtype, dtype)


def _embedding(function: FunctionLowering, node: Node) -> None:
    ids, weight = node.inputs
    kernel = weight.dtype in WEIGHT_DTYPES and weight.rank == 2 and ids.dtype is DType.int64
    if not kernel:
        RULES["embedding"](function, node)
        return
    vocab, dim = weight.shape.static()
    count = function.count(ids.shape)
    request = Embedding(vocab=vocab, dim=dim, weight_dtype=weight.dtype.value)
    operands = [function.reshaped(function.get(ids), [count]), function.get(weight)]
    value = function.kernel(request, operands, [count, dim])
    result = node.outputs[0]
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _linears(function: FunctionLowering, node: Node) -> None:
    shapes = [function.flat_sizes(value.shape) for value in node.outputs]
    products, operands = _few(function, node)
    biases, residual = node.attributes["biases"], node.attributes["residual"]
    request = requests.Linears(**vars(products), biases=biases, residual=residual)
    results = function.kernel_several(request, operands, shapes)
    for value, expr in zip(node.outputs, results, strict=True):
        function.set_flat(value, expr)


def _gated_linear(function: FunctionLowering, node: Node) -> None:
    result = node.outputs[0]
    products, operands = _few(function, node)
    steps = (ChainStep(node.attributes["activation"], (0,)), ChainStep("mul", (2, 1)))
    dtype, biases = function.result_type(result), node.attributes["biases"]
    request = requests.GatedLinear(**vars(products), biases=biases, steps=steps, out=dtype.value)
    sizes = function.flat_sizes(result.shape)
    function.set_result(result, function.kernel(request, operands, sizes, dtype))


def _few(function: FunctionLowering, node: Node) -> tuple[requests.FewProducts, list[Expr]]:
    """Return what the kernel is built for, and its operands: rows, weights and what is added."""
    x, weight = node.inputs[:2]
    products = requests.FewProducts(
        weight_dtype=weight.dtype.value,
        aligned=product_of(weight.dtype, *weight.shape).aligned,
        rounds=weight.dtype is not DType.float32 and not function.is_narrow(x, weight.dtype),
    )
    # A bias has one dimension, and x, so also a residual, more than two.
    others = [
        function.get(each) if each.rank == 2 else _float32_of(function, each)
        for each in node.inputs[1:]
    ]
    rows = function.get_flat(x) if products.rounds else _rows_of(function, x, weight.dtype)
    return products, [rows, *others]


def _expert_linear(function: FunctionLowering, node: Node) -> None:
    x, weight, chosen = node.inputs
    result = node.outputs[0]
    experts, n, k = weight.shape
    count = function.count(chosen.shape)
    choices = function.reshaped(function.any(chosen), [count])
    few = is_one_token(chosen.shape)
    request = requests.ExpertLinear(**vars(product_of(weight.dtype, n, k)), few=few)
    order = [] if few else _order(function, chosen, choices, int(experts))
    operands = [_rows_of(function, x, weight.dtype), function.get(weight), choices, *order]
    sizes = function.flat_sizes(result.shape)
    function.set_flat(result, function.kernel(request, operands, sizes))


def _order(function: FunctionLowering, chosen: Tensor, choices: Expr, experts: int) -> list[Expr]:
    """The choices sorted by expert, once for all products of them."""

    def make() -> list[Expr]:
        shapes = [[experts + 1], choices.ty.shape]
        request = requests.ExpertOrder(experts=experts)
        return function.kernel_several(request, [choices], shapes, DType.int64)

    order: list[Expr] = function.once(("order", id(chosen), experts), make)
    return order


PRODUCTS: dict[str, Rule] = {
    "embedding": _embedding,
    "expert_linear": _expert_linear,
    "gated_linear": _gated_linear,
    "linear": _linear,
    "linears": _linears,
    "matmul": _matmul,
}
