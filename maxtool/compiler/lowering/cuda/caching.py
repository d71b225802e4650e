"""Rotated queries and keys and the writes of a layer into its cache, as one launch.

A decode step launches little work many times. What a layer does between its projections and its
attention, two rotations and two writes, touches no number twice and is one kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from maxtool.compiler.kernels.cuda.attention_plan import Split
from maxtool.compiler.kernels.cuda.attention_split import takes_steps
from maxtool.compiler.kernels.cuda.gpu_requests import RopeIntoCache
from maxtool.compiler.lowering.function import FunctionLowering, Rule
from maxtool.compiler.rewriting import Nodes, count_uses
from maxtool.graph import BufferType, CallNode, Node, Tensor

FUSED = "rope_into_cache"
STEP = "attention_step"


def with_cache_writes(
    nodes: Nodes, outputs: Sequence[Tensor], is_here: Callable[[Node], bool]
) -> Nodes:
    """The nodes, those of each layer's cache that one kernel can do as one.

    It stands where the later of the two writes stood: what a graph reads of a buffer before a write
    comes before it, and after one it reads what the write gave.
    """
    uses = count_uses(nodes, outputs)
    made = list(nodes)
    for key in _of(nodes, "cache_write_key"):
        found = _found(made, key, uses) if is_here(key) else None
        if found is not None:
            made = _joined(made, found)
    return made


def _of(nodes: Nodes, op: str) -> list[Node]:
    """The nodes of one operation."""
    return [node for node in nodes if isinstance(node, Node) and node.op == op]


def _found(nodes: Nodes, key: Node, uses: Counter[int]) -> tuple[Node, Node, Node, Node] | None:
    """The rotations of queries and keys and the writes that go together with a write of keys."""
    cache, rotated, position = key.inputs
    if key.attributes["transposed"] or uses[id(rotated)] != 1:
        return None
    rotations = _of(nodes, "rope")
    own = next((node for node in rotations if node.outputs[0] is rotated), None)
    if own is None or not isinstance(cache.type, BufferType):
        return None
    angles, others = own.inputs[1:], [node for node in rotations if node is not own]
    queries = [node for node in others if _same(node.inputs[1:], angles)]
    values = [
        node
        for node in _of(nodes, "cache_write_value")
        if node.inputs[2] is position
        and node.inputs[0].type == cache.type
        and node.inputs[1].shape == rotated.shape
    ]
    if len(queries) != 1 or len(values) != 1:
        return None
    return queries[0], own, key, values[0]


def _same(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    return all(one is other for one, other in zip(first, second, strict=True))


def _joined(
    nodes: list[Node | CallNode], found: tuple[Node, Node, Node, Node]
) -> list[Node | CallNode]:
    """The nodes with one in the place of four; as they are if a result is read too early."""
    query, own, key, value = found
    place = max(nodes.index(key), nodes.index(value))
    results = (key.outputs[0], value.outputs[0], query.outputs[0])
    early = {id(one) for node in nodes[:place] if node not in found for one in node.inputs}
    if any(id(one) in early for one in results):
        return nodes
    operands = (key.inputs[0], value.inputs[0], query.inputs[0], own.inputs[0], value.inputs[1])
    fused = Node(FUSED, (*operands, *own.inputs[1:], key.inputs[2]), {}, results)
    after = [node for node in nodes[place:] if node not in found]
    return [*(node for node in nodes[:place] if node not in found), fused, *after]


def with_steps(nodes: Nodes, outputs: Sequence[Tensor], is_here: Callable[[Node], bool]) -> Nodes:
    """The nodes, attention of one token joined with the rotations and writes before it."""
    uses = count_uses(nodes, outputs)
    made = list(nodes)
    for before in _of(nodes, FUSED):
        keys, values, query = before.outputs
        operands = (query, keys, values, before.inputs[-1])
        found = [
            node
            for node in _of(nodes, "attention")
            if _same(node.inputs, operands) and not node.attributes["transposed"]
        ]
        if found and uses[id(query)] == 1 and is_here(before) and _is_step(before):
            after = found[0]
            results = (keys, values, after.outputs[0])
            place = made.index(before)
            made[place] = Node(STEP, before.inputs, after.attributes, results)
            made.remove(after)
    return made


def _is_step(node: Node) -> bool:
    """Whether it is of one token, and the kernel of steps takes it."""
    keys, _, query, key = node.inputs[:4]
    group = int(query.shape[2]) // int(key.shape[2])
    split = Split(group, int(query.shape[3]), keys.dtype.value)
    return query.shape[1] == 1 and takes_steps(split)


def _rope_into_cache(function: FunctionLowering, node: Node) -> None:
    keys, _, query, key, _, cos = node.inputs[:6]
    request = RopeIntoCache(
        heads=int(query.shape[2]),
        kv_heads=int(key.shape[2]),
        head_dim=int(query.shape[3]),
        dim=2 * int(cos.shape[1]),
        dtype=keys.dtype.value,
    )
    operands = [function.get(operand) for operand in node.inputs]
    sizes = function.sizes(query.shape)
    results = function.kernel_updating(request, operands, 2, [sizes])
    for value, expr in zip(node.outputs, results, strict=True):
        function.set_whole(value, expr)


CACHING: dict[str, Rule] = {FUSED: _rope_into_cache}
