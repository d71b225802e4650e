"""The rule for products with epilogues: a kernel for those of quantized weights, one for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from maxtool.compiler.fusion.epilogue_fusions import FUSED, epilogues_of
from maxtool.compiler.kernels.cpu.cpu_requests import PackedLinears, QuantizedLinears
from maxtool.compiler.kernels.kernel_options import Epilogue
from maxtool.compiler.lowering.cast_rules import converted
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.product_rules import packed_operand
from maxtool.dtype import DType
from maxtool.graph import Node, Shape, Tensor


@dataclass(frozen=True, slots=True)
class _Product:
    """A matrix as a kernel reads it, and its bias if it has one."""

    type_name: str  # of its encoding, or of its elements
    is_quantized: bool
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Result:
    """A result that is computed from products."""

    shape: Shape
    products: tuple[_Product, ...]
    rows: tuple[Expr, ...]
    epilogue: Epilogue

    @property
    def operands(self) -> list[Expr]:
        """Operands that a kernel reads for it, but for the rows that all products multiply."""
        return [*(operand for each in self.products for operand in each.operands), *self.rows]


def _fused_linear(function: FunctionLowering, node: Node) -> None:
    x = function.get_flat(node.inputs[0])
    results = [_of_one_type(function, x, result) for result in _results(function, node)]
    pairs = list(zip(node.outputs, results, strict=True))
    for quantized in (False, True):
        own = [pair for pair in pairs if pair[1].products[0].is_quantized is quantized]
        values = _kernel(function, x, [result for _, result in own]) if own else []
        for (output, _), value in zip(own, values, strict=True):
            function.set_flat(output, value)


def _results(function: FunctionLowering, node: Node) -> Iterator[_Result]:
    """Yield each result of a node with what it is computed from."""
    operands = iter(node.inputs[1:])
    for output, epilogue in zip(node.outputs, epilogues_of(node), strict=True):
        products = tuple(
            _product(function, next(operands), next(operands) if has_bias else None)
            for has_bias in epilogue.biases
        )
        rows = tuple(function.get_flat(next(operands)) for _ in range(epilogue.rows))
        yield _Result(output.shape, products, rows, epilogue)


def _product(function: FunctionLowering, weight: Tensor, bias: Tensor | None) -> _Product:
    """The matrix packed, in this function if it is not so in the weights file."""
    storage = function.storage.get(id(weight))
    quantized = storage is not None and storage.encoding is not None
    name = storage.type_name if storage is not None else weight.dtype.value
    biases = [] if bias is None else [bias]
    added = [converted(function, function.get(each), each.dtype, DType.float32) for each in biases]
    return _Product(name, quantized, (packed_operand(function, weight), *added))


def _of_one_type(function: FunctionLowering, x: Expr, result: _Result) -> _Result:
    """The result from products of one kernel: what another kernel computes comes as rows."""
    first, *others = result.products
    if all(other.is_quantized is first.is_quantized for other in others):
        return result
    (second,) = others
    biases = result.epilogue.biases
    plain = _Result(result.shape, (second,), (), Epilogue(biases[1:]))
    (value,) = _kernel(function, x, [plain])
    rows = iter(result.rows)
    read = (step.other for step in result.epilogue.steps if step.other)
    in_order = tuple(value if other == "product" else next(rows) for other in read)
    steps = tuple(
        replace(step, other="rows" if step.other else None) for step in result.epilogue.steps
    )
    return _Result(result.shape, (first,), in_order, Epilogue(biases[:1], steps))


def _kernel(function: FunctionLowering, x: Expr, results: Sequence[_Result]) -> list[Expr]:
    """Call the kernel of results whose weights are all quantized, or all not."""
    types = tuple(tuple(each.type_name for each in result.products) for result in results)
    epilogues = tuple(result.epilogue for result in results)
    request = (
        QuantizedLinears(encodings=types, epilogues=epilogues)
        if results[0].products[0].is_quantized
        else PackedLinears(weight_dtypes=types, epilogues=epilogues)
    )
    operands = [operand for result in results for operand in result.operands]
    shapes = [function.flat_sizes(result.shape) for result in results]
    return function.kernel_several(request, [x, *operands], shapes)


FUSED_PRODUCTS: dict[str, Rule] = {FUSED: _fused_linear}
