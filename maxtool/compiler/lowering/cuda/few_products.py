"""Products of a decode step: those of one input as one launch, with the activation of a gate.

Each sequence of a batch has one row there. What is bound by reading the weights is bound by
launches too where these are small, so that of a layer's seven products four launches remain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict

from maxtool.compiler.kernels.cuda.gpu_requests import GatedLinear, Linears
from maxtool.compiler.kernels.forms import Step
from maxtool.compiler.kernels.formulas import ACTIVATIONS
from maxtool.compiler.lowering.cuda.products import (
    added,
    float32_of,
    is_one_token,
    product_options,
    rows_of,
)
from maxtool.compiler.lowering.function import Expr, FunctionLowering, Rule
from maxtool.compiler.rewriting import Nodes, count_uses
from maxtool.dtype import DType
from maxtool.graph import BufferType, CallNode, Node, Tensor
from maxtool.graph.ops.neural import WEIGHT_DTYPES

# Products in one launch at most: each has parameters, and code that stores its sums.
MOST = 4


def with_few_products(
    nodes: Nodes, outputs: Sequence[Tensor], is_here: Callable[[Node], bool]
) -> Nodes:
    """The nodes, with products of a decode step joined."""
    kept = [node for node in nodes if isinstance(node, Node) and _is_few(node) and is_here(node)]
    return _with_siblings(*_with_gates(list(nodes), outputs, kept))


def _is_few(node: Node) -> bool:
    """Whether it is a product of one row for each sequence that the kernels here take."""
    if node.op != "linear" or any(isinstance(one.type, BufferType) for one in node.inputs):
        return False
    x, weight = node.inputs[:2]
    return is_one_token(x.shape) and x.dtype is DType.float32 and weight.dtype in WEIGHT_DTYPES


def _with_gates(
    nodes: list[Node | CallNode], outputs: Sequence[Tensor], products: Sequence[Node]
) -> tuple[list[Node | CallNode], list[Node]]:
    """The nodes with each ``activation(gate) * up`` as one; and the products that are left."""
    uses = count_uses(nodes, outputs)
    made_by = {
        id(node.outputs[0]): node
        for node in nodes
        if isinstance(node, Node) and node.outputs and uses[id(node.outputs[0])] == 1
    }
    of = {
        id(node.outputs[0]): node
        for node in products
        if id(node.outputs[0]) in made_by and not added(node)["residual"]
    }
    made, gone = list[Node | CallNode](), list[Node]()
    for node in nodes:
        found = _gate(node, made_by, of) if isinstance(node, Node) else None
        if found is None:
            made.append(node)
        else:
            fused, parts = found
            made.append(fused)
            gone += parts
    left = [node for node in made if not _is_in(node, gone)]
    return left, [node for node in products if not _is_in(node, gone)]


def _is_in(node: Node | CallNode, others: Iterable[Node]) -> bool:
    return any(node is other for other in others)


def _gate(
    node: Node, made_by: dict[int, Node], products: dict[int, Node]
) -> tuple[Node, list[Node]] | None:
    """The node in the place of a product of a gate and what it lets up, and the nodes in it."""
    if node.op != "mul":
        return None
    for activated, other in (node.inputs, node.inputs[::-1]):
        active, up = made_by.get(id(activated)), products.get(id(other))
        if active is None or up is None or active.op not in ACTIVATIONS:
            continue
        gate = products.get(id(active.inputs[0]))
        if gate is None or not _are_alike(gate, up):
            continue
        parts = [gate, up]
        attributes = {"activation": active.op, "biases": _biases(parts)}
        operands = (gate.inputs[0], *gate.inputs[1:], *up.inputs[1:])
        return Node("gated_linear", operands, attributes, node.outputs), [*parts, active]
    return None


def _are_alike(gate: Node, up: Node) -> bool:
    same = gate.inputs[0] is up.inputs[0] and gate is not up
    return same and gate.inputs[1].type == up.inputs[1].type


def _biases(products: Iterable[Node]) -> tuple[bool, ...]:
    return tuple(added(node)["bias"] for node in products)


def _with_siblings(nodes: list[Node | CallNode], products: Sequence[Node]) -> list[Node | CallNode]:
    """The nodes with products of one input in the place of the first of them."""
    computed = {id(value) for node in nodes for value in node.outputs}
    groups: defaultdict[tuple[object, ...], list[Node]] = defaultdict(list)
    for node in products:
        # What is computed, a residual or even a weight, may come later than the first of others.
        is_late = any(id(one) in computed for one in node.inputs[1:]) or added(node)["residual"]
        groups[id(node.inputs[0]), node.inputs[1].dtype, id(node) if is_late else None].append(node)
    parts = [
        group[start : start + MOST]
        for group in groups.values()
        for start in range(0, len(group), MOST)
    ]
    first = {id(part[0]): _joined(part) for part in parts}
    others = {id(node) for part in parts for node in part[1:]}
    return [first.get(id(node), node) for node in nodes if id(node) not in others]


def _joined(products: Sequence[Node]) -> Node:
    operands = [operand for node in products for operand in node.inputs[1:]]
    results = tuple(node.outputs[0] for node in products)
    attributes = {"biases": _biases(products), "residual": added(products[-1])["residual"]}
    return Node("linears", (products[0].inputs[0], *operands), attributes, results)


def _linears(function: FunctionLowering, node: Node) -> None:
    shapes = [function.flat_sizes(value.shape) for value in node.outputs]
    options, operands = _call(function, node)
    biases, residual = node.attributes["biases"], node.attributes["residual"]
    request = Linears(**options, biases=biases, residual=residual)
    results = function.kernel_several(request, operands, shapes)
    for value, expr in zip(node.outputs, results, strict=True):
        function.set_flat(value, expr)


def _gated_linear(function: FunctionLowering, node: Node) -> None:
    result = node.outputs[0]
    options, operands = _call(function, node)
    steps = (Step(node.attributes["activation"], (0,)), Step("mul", (2, 1)))
    dtype, biases = function.result_type(result), node.attributes["biases"]
    request = GatedLinear(**options, biases=biases, steps=steps, out=dtype.value)
    sizes = function.flat_sizes(result.shape)
    function.set_result(result, function.kernel(request, operands, sizes, dtype))


class FewOptions(TypedDict):
    """Options that the products of few rows have; see :class:`FewProducts`."""

    weight_dtype: str
    aligned: bool
    rounds: bool


def _call(function: FunctionLowering, node: Node) -> tuple[FewOptions, list[Expr]]:
    """Return what the kernel is built for, and its operands: rows, weights and what is added."""
    x, weight = node.inputs[:2]
    options: FewOptions = {
        "weight_dtype": weight.dtype.value,
        "aligned": product_options(weight.dtype, *weight.shape)["aligned"],
        "rounds": weight.dtype is not DType.float32 and not function.is_narrow(x, weight.dtype),
    }
    # A bias has one dimension, and x, so also a residual, more than two.
    others = [
        function.get(each) if each.rank == 2 else float32_of(function, each)
        for each in node.inputs[1:]
    ]
    rows = function.get_flat(x) if options["rounds"] else rows_of(function, x, weight.dtype)
    return options, [rows, *others]


FEW_PRODUCTS: dict[str, Rule] = {"gated_linear": _gated_linear, "linears": _linears}
