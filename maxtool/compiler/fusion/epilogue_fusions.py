"""Products on CPUs with what is done to their results, and those of one input, as one kernel.

A result that an epilogue takes in is not written and read again, and no threads are woken for it.
Products of one input quantize it once, where their weights are quantized, and are one launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from maxtool.compiler.fusion.linear_fusions import ACTIVATION, GATE, reads_buffers
from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.compiler.kernels.kernel_options import Epilogue, EpilogueStep
from maxtool.dtype import DType
from maxtool.graph import BufferType, Node, Tensor
from maxtool.graph.ops.neural import WEIGHT_DTYPES

FUSED = "fused_linear"
PRODUCT = f"linear {FUSED}"

# Matrices of one kernel, and steps of an epilogue at most: each is more code.
MOST_MATRICES = 4
MOST_STEPS = 4


def epilogues_of(node: Node) -> tuple[Epilogue, ...]:
    """Return the epilogue of each result of a ``linear``, or of a node of several products."""
    if node.op == "linear":
        return (Epilogue((len(node.inputs) == 3,)),)
    epilogues: tuple[Epilogue, ...] = node.attributes["epilogues"]
    return epilogues


def matrices_of(node: Node) -> Iterator[int]:
    """Yield which operands are the matrices of products."""
    index = 1
    for epilogue in epilogues_of(node):
        end = index + epilogue.operands
        for has_bias in epilogue.biases:
            yield index
            index += 1 + has_bias
        index = end


def _has_kernel(node: Node) -> bool:
    """Return whether it is a product of float32 rows that may run elsewhere than it was written."""
    x = node.inputs[0]
    weights = [node.inputs[index] for index in matrices_of(node)]
    types = x.dtype is DType.float32 and all(each.dtype in WEIGHT_DTYPES for each in weights)
    return types and x.rank > 1 and not reads_buffers(node)


def _with_step(match: Match) -> Node | None:
    """Return the product with what is done to its result as the last step of its epilogue."""
    node, product = match.nodes
    epilogue, *others = epilogues_of(product)
    if others or len(epilogue.steps) == MOST_STEPS or not _has_kernel(product):
        return None
    more = match.all("*more")
    if any(_is_other(value, match["product"]) for value in more):
        return None
    step = EpilogueStep(node.op, "rows" if more else None)
    epilogues = (replace(epilogue, steps=(*epilogue.steps, step)),)
    return Node(FUSED, (*product.inputs, *more), {"epilogues": epilogues}, node.outputs)


def _is_other(value: Tensor, product: Tensor) -> bool:
    """Return whether a value is not of the type of a product, or may be overwritten."""
    return value.type != product.type or isinstance(value.type, BufferType)


def _gated(match: Match) -> Node | None:
    """Return two products and the activation that joins them as one node."""
    mul, activation, gate, up = match.nodes
    if gate.inputs[1].shape != up.inputs[1].shape or not (_has_kernel(gate) and _has_kernel(up)):
        return None
    biases = tuple(epilogues_of(node)[0].biases[0] for node in (gate, up))
    steps = (EpilogueStep(activation.op), EpilogueStep("mul", "product"))
    operands = (*gate.inputs, *up.inputs[1:])
    return Node(FUSED, operands, {"epilogues": (Epilogue(biases, steps),)}, mul.outputs)


def _siblings(match: Match) -> Node | None:
    """Return the products of one input as one node.

    Their other operands must not be computed, as a residual is: they may come later than the first.
    """
    first, second = match.nodes
    operands = (*first.inputs, *second.inputs[1:])
    epilogues = epilogues_of(first) + epilogues_of(second)
    is_late = any(match.index.producer(value) for value in operands[1:])
    too_many = sum(len(epilogue.biases) for epilogue in epilogues) > MOST_MATRICES
    if is_late or too_many or not (_has_kernel(first) and _has_kernel(second)):
        return None
    results = (*first.outputs, *second.outputs)
    return Node(FUSED, operands, {"epilogues": epilogues}, results)


# Products take in what is done to their results before those of one input are joined.
EPILOGUE_FUSIONS = (
    Fusion(GATE, _gated),
    Fusion(
        (
            op(f"add mul {ACTIVATION}", "product *more -> result", commutes=True),
            op(PRODUCT, "x *operands -> product"),
        ),
        _with_step,
    ),
    Fusion(
        (
            op(PRODUCT, "x *operands -> *products"),
            op(PRODUCT, "x *more_operands -> *more_products"),
        ),
        _siblings,
        early=True,
    ),
)
