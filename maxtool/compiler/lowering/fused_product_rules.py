"""The rule for products with epilogues: a kernel for those of quantized weights, one for others.

A kernel of quantized weights for any number of rows takes a second to compile, and what is fused
with it costs little of its time. So only where there is one row are such products fused; elsewhere
there is a kernel for each encoding, and what follows a product has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tvm import tirx

from maxtool.compiler.fusion.epilogue_fusions import FUSED, epilogues_of
from maxtool.compiler.kernels.cpu.cpu_requests import (
    PackedLinear,
    PackedLinears,
    QuantizedLinear,
    QuantizedLinears,
)
from maxtool.compiler.kernels.kernel_options import ChainStep, Epilogue
from maxtool.compiler.kernels.requests import Request
from maxtool.compiler.lowering.cast_rules import converted
from maxtool.compiler.lowering.chain import Chain
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.product_rules import packed_operand, terms_of
from maxtool.dtype import DType
from maxtool.graph import Node, Shape, Tensor


@dataclass(frozen=True, slots=True)
class _Product:
    """A matrix as a kernel reads it, and its bias if it has one."""

    type_name: str  # of its encoding, or of its elements
    is_quantized: bool
    terms: int  # of a matrix that is not quantized, side by side
    operands: tuple[Expr, ...]

    @property
    def form(self) -> tuple[bool, int]:
        """Return what the products of one kernel have in common."""
        return self.is_quantized, self.terms


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
    is_alone = _is_one_row(function, node.inputs[0].shape)
    joined: dict[tuple[bool, int], list[tuple[Tensor, _Result]]] = {}
    for output, result in zip(node.outputs, _results(function, node), strict=True):
        if is_alone or not any(product.is_quantized for product in result.products):
            own = _of_one_type(function, x, result)
            joined.setdefault(own.products[0].form, []).append((output, own))
        else:
            function.set_flat(output, _apart(function, x, result))
    for _, pairs in sorted(joined.items(), key=lambda item: item[0]):
        values = _kernel(function, x, [result for _, result in pairs])
        for (output, _), value in zip(pairs, values, strict=True):
            function.set_flat(output, value)


def _results(function: FunctionLowering, node: Node) -> Iterator[_Result]:
    """Yield each result of a node with what it is computed from."""
    x, *others = node.inputs
    operands = iter(others)
    for output, epilogue in zip(node.outputs, epilogues_of(node), strict=True):
        products = tuple(
            _product(function, x, next(operands), next(operands) if has_bias else None)
            for has_bias in epilogue.biases
        )
        rows = tuple(function.get_flat(next(operands)) for _ in range(epilogue.rows))
        yield _Result(output.shape, products, rows, epilogue)


def _product(
    function: FunctionLowering, x: Tensor, weight: Tensor, bias: Tensor | None
) -> _Product:
    """The matrix packed, in this function if it is not so in the weights file."""
    storage = function.storage.get(id(weight))
    quantized = storage is not None and storage.encoding is not None
    name = storage.type_name if storage is not None else weight.dtype.value
    biases = [] if bias is None else [bias]
    added = [converted(function, function.get(each), each.dtype, DType.float32) for each in biases]
    terms = terms_of(function, x, weight)
    return _Product(name, quantized, terms, (packed_operand(function, weight, terms), *added))


def _apart(function: FunctionLowering, x: Expr, result: _Result) -> Expr:
    """The result of a kernel for each product, and one for the epilogue if it has steps."""
    products = [_alone(function, x, result, product) for product in range(len(result.products))]
    if not result.epilogue.steps:
        return products[0]
    inputs = (*products, *result.rows)
    others = {"product": iter([1]), "rows": iter(range(len(products), len(inputs)))}
    steps: list[ChainStep] = []
    value = 0
    for step in result.epilogue.steps:
        operands = (value, next(others[step.other])) if step.other else (value,)
        value = len(inputs) + len(steps)
        steps.append(ChainStep(step.op, operands))
    chain = Chain(inputs, tuple(steps), int(result.shape[-1]))
    return function.chain_result(chain, result.shape)


def _alone(function: FunctionLowering, x: Expr, result: _Result, product: int) -> Expr:
    """One of the products of a result, with its bias."""
    epilogue = Epilogue(result.epilogue.biases[product : product + 1])
    plain = _Result(result.shape, result.products[product : product + 1], (), epilogue)
    (value,) = _kernel(function, x, [plain])
    return value


def _of_one_type(function: FunctionLowering, x: Expr, result: _Result) -> _Result:
    """The result from products of one kernel: what another kernel computes comes as rows."""
    first, *others = result.products
    if all(other.form == first.form for other in others):
        return result
    value = _alone(function, x, result, 1)
    biases = result.epilogue.biases
    rows = iter(result.rows)
    read = (step.other for step in result.epilogue.steps if step.other)
    in_order = tuple(value if other == "product" else next(rows) for other in read)
    steps = tuple(
        replace(step, other="rows" if step.other else None) for step in result.epilogue.steps
    )
    return _Result(result.shape, (first,), in_order, Epilogue(biases[:1], steps))


def _kernel(function: FunctionLowering, x: Expr, results: Sequence[_Result]) -> list[Expr]:
    """Call the kernel of results whose products are of one form."""
    operands = [operand for result in results for operand in result.operands]
    shapes = [function.flat_sizes(result.shape) for result in results]
    request = _request(results, _is_one_row(function, results[0].shape))
    return function.kernel_several(request, [x, *operands], shapes)


def _is_one_row(function: FunctionLowering, shape: Shape) -> bool:
    """Return whether a value has one row in this function, where some sizes may be fixed."""
    rows, _ = function.flat_sizes(shape)
    return isinstance(rows, tirx.IntImm) and int(rows) == 1


def _request(results: Sequence[_Result], one_row: bool) -> Request:
    """Return the request for results whose products are of one form."""
    types = tuple(tuple(each.type_name for each in result.products) for result in results)
    epilogues = tuple(result.epilogue for result in results)
    is_quantized, terms = results[0].products[0].form
    is_plain = len(epilogues) == 1 and epilogues[0].is_plain
    if is_plain and is_quantized:
        return QuantizedLinear(encoding=types[0][0], bias=epilogues[0].biases[0])
    if is_plain:
        return PackedLinear(weight_dtype=types[0][0], bias=epilogues[0].biases[0], terms=terms)
    if not is_quantized:
        return PackedLinears(weight_dtypes=types, epilogues=epilogues, terms=terms)
    return QuantizedLinears(encodings=types, epilogues=epilogues, one_row=one_row)


FUSED_PRODUCTS: dict[str, Rule] = {FUSED: _fused_linear}
