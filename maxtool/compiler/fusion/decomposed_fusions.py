"""Norms and attention that files have as several operations, as those that there are kernels for.

Exporters write what their format has no operation for, or had none at the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

from maxtool.compiler.fusion.linear_fusions import reads_buffers
from maxtool.compiler.fusion.matcher import Fusion, Match, Op, op
from maxtool.compiler.fusion.node_index import AnyNode
from maxtool.dtype import DType
from maxtool.graph import Graph, Node, Shape, Tensor, TensorType


def _layer_norm(match: Match) -> Node | None:
    """Return ``(x - mean) / sqrt(variance + eps) * gamma + beta`` as one operation."""
    x, eps = match["x"], match.index.number(match["eps"])
    means = [node for node in match.nodes if node.op == "mean"]
    rows = [x.shape[-1]] if x.rank else []
    affine = all(match[name].type.shape == rows for name in ("gamma", "beta"))
    if x.dtype is not DType.float32 or not affine or eps is None or eps < 0:
        return None
    if any(node.attributes["axes"] != (x.rank - 1,) for node in means):
        return None
    if any(map(reads_buffers, match.nodes)):
        return None
    operands = (x, match["gamma"], match["beta"])
    return Node("layer_norm", operands, {"eps": eps}, match.nodes[0].outputs)


def _attention(match: Match) -> Node | None:
    """Return ``softmax(query @ key.T * scale + mask) @ value`` as one operation."""
    query, key, value = (match[name] for name in ("query", "key", "value"))
    scale = _scale(match)
    if scale is None or any(map(reads_buffers, match.nodes)) or not _are_heads(query, key, value):
        return None
    for node in match.nodes:
        if node.op == "softmax" and node.attributes["axes"] != (3,):
            return None
        if node.op == "permute" and node.attributes["dims"] != (0, 1, 3, 2):
            return None
        if node.op == "where" and match.index.number(match["zero"]) != 0:
            return None
    masks = match.bindings.get("mask", ())
    scores = Shape([*query.shape[:3], key.shape[2]])
    if any(not _hides(mask, scores) for mask in masks):
        return None
    attributes = {"causal": False, "scale": scale}
    return Node(
        "scaled_dot_product_attention",
        (query, key, value, *masks),
        attributes,
        match.nodes[0].outputs,
    )


def _are_heads(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether these are heads of float32, as many of each."""
    values = (query, key, value)
    if any(each.rank != 4 or each.dtype is not DType.float32 for each in values):
        return False
    sizes = [size for each in values for size in (each.shape[1], each.shape[3])]
    known = all(size.is_static and size != 0 for size in sizes)
    same = query.shape[:2] == key.shape[:2] == value.shape[:2]
    return known and same and key.shape[2] == value.shape[2] and key.shape[3] == query.shape[3]


def _hides(mask: Tensor, scores: Shape) -> bool:
    """Return whether it is added to scores, for each or the same for several."""
    pairs = zip(reversed(mask.shape), reversed(scores), strict=False)
    return mask.dtype is DType.float32 and all(dim in (1, size) for dim, size in pairs)


def _scale(match: Match) -> float | None:
    """Return the factor of the scores; None if it is not known."""
    factor = 1.0
    for name in ("factor", "query_factor", "key_factor", "divisor"):
        if name not in match.bindings:
            continue
        number = match.index.number(match[name])
        if not number:
            return None
        factor = factor / number if name == "divisor" else factor * number
    return factor


_PRODUCT = (op("matmul", "query turned -> products"), op("permute", "key -> turned"))
# What gives the scores before a mask, by the name of these.
_SCALED: tuple[tuple[str, Sequence[Op]], ...] = (
    ("scaled", (op("mul", "products factor -> scaled", commutes=True), *_PRODUCT)),
    ("scaled", (op("div", "products divisor -> scaled"), *_PRODUCT)),
    (
        "products",
        (
            op("matmul", "less fewer -> products"),
            op("mul", "query query_factor -> less", commutes=True),
            op("mul", "turned key_factor -> fewer", commutes=True),
            op("permute", "key -> turned"),
        ),
    ),
    ("products", _PRODUCT),
)


def _attentions() -> Iterator[Fusion]:
    """Yield a fusion for each way of scaling, with a mask and without.

    A query that sees no key has the result 0, and so it is with a mask. Some files say as much: no
    share of it is a number.
    """
    attended = op("matmul", "shares value -> attended")
    for (scores, scaled), masked, guarded in product(_SCALED, (True, False), (True, False)):
        guard = (op("where", "bad zero own -> shares"), op("is_nan", "own -> bad"))
        shares = "own" if guarded else "shares"
        softmax = op("softmax", f"{'masked' if masked else scores} -> {shares}")
        mask = op("add", f"{scores} mask -> masked", commutes=True)
        pattern = (
            attended,
            *(guard if guarded else ()),
            softmax,
            *((mask,) if masked else ()),
            *scaled,
        )
        yield Fusion(pattern, _attention)


DECOMPOSED_FUSIONS = (
    Fusion(
        (
            op("add", "scaled beta -> y", commutes=True),
            op("mul", "normed gamma -> scaled", commutes=True),
            op("div", "centred deviation -> normed"),
            op("sqrt", "shifted -> deviation"),
            op("add", "variance eps -> shifted", commutes=True),
            op("mean", "squares -> variance"),
            op("mul", "centred centred -> squares"),
            op("sub", "x average -> centred"),
            op("mean", "x -> average"),
        ),
        _layer_norm,
    ),
    *_attentions(),
)


def with_turned_keys(nodes: Sequence[AnyNode], graph: Graph) -> list[AnyNode]:
    """Return nodes with permutations that also transpose matrices as two, the last for that.

    Products take transposed matrices as they are: this is for what they alone read.
    """
    readers: defaultdict[int, list[tuple[AnyNode, int]]] = defaultdict(list)
    for node in nodes:
        for position, value in enumerate(node.inputs):
            readers[id(value)].append((node, position))

    def is_for_products(value: Tensor) -> bool:
        """Return whether nothing but products read it, perhaps times a number."""
        return all(
            isinstance(node, Node)
            and (
                (node.op == "matmul" and position == 1)
                or (node.op == "mul" and _scales(node) and is_for_products(node.outputs[0]))
            )
            for node, position in readers[id(value)]
        )

    result: list[AnyNode] = []
    for node in nodes:
        if not isinstance(node, Node) or not _turns(node) or not is_for_products(node.outputs[0]):
            result.append(node)
            continue
        (x,), (*outer, before, last) = node.inputs, node.attributes["dims"]
        dims = (*outer, last, before)
        kind = TensorType(x.dtype, [x.shape[axis] for axis in dims], x.device)
        moved = Tensor.traced(kind, graph)
        swapped = (*range(len(outer)), len(outer) + 1, len(outer))
        result.append(Node("permute", (x,), {"dims": dims}, (moved,)))
        result.append(Node("permute", (moved,), {"dims": swapped}, node.outputs))
    return result


def _scales(node: Node) -> bool:
    """Return whether it is a product with one number."""
    return any(value.shape.volume() == 1 for value in node.inputs)


def _turns(node: Node) -> bool:
    """Return whether it puts the last dimension before the last one, and another one behind it."""
    dims: tuple[int, ...] = node.attributes["dims"] if node.op == "permute" else ()
    rank = len(dims)
    return rank > 2 and dims[-2] == rank - 1 and dims[-1] != rank - 2
