"""Rotated queries and keys and the writes of a layer into its cache, as one launch on GPUs.

A decode step launches little work many times. What a layer does between its projections and its
attention, two rotations and two writes, touches no number twice and is one kernel; in a step of one
token the attention joins them.
"""

from __future__ import annotations

from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.compiler.kernels.cuda.split_kv import takes_steps
from maxtool.compiler.kernels.cuda.split_kv_plan import SplitPlan
from maxtool.graph import BufferType, Node

FUSED = "rope_into_cache"
STEP = "attention_step"


def _rope_into_cache(match: Match) -> Node | None:
    """Return two rotations and two writes as one node.

    It stands where the later of the two writes stood: what a graph reads of a buffer before a write
    comes before it, and after one it reads what the write gave.
    """
    write = match.nodes[0]
    keys, values = match["keys"], match["values"]
    if write.attributes["transposed"] or not isinstance(keys.type, BufferType):
        return None
    if values.type != keys.type or match["value"].shape != match["rotated"].shape:
        return None
    operands = (keys, values, match["query"], match["key"], match["value"])
    results = (match["new_keys"], match["new_values"], match["turned"])
    return Node(FUSED, (*operands, *match.all("*angles"), match["position"]), {}, results)


def _attention_step(match: Match) -> Node | None:
    """Return attention of one token with the rotations and writes before it as one node."""
    before, attention = match.nodes
    if attention.attributes["transposed"] or not _is_step(before):
        return None
    results = (match["new_keys"], match["new_values"], match["attended"])
    return Node(STEP, before.inputs, attention.attributes, results)


def _is_step(node: Node) -> bool:
    """Return whether it is of one token, and the kernel of steps takes it."""
    keys, _, query, key = node.inputs[:4]
    group = int(query.shape[2]) // int(key.shape[2])
    split = SplitPlan(group, int(query.shape[3]), keys.dtype.value)
    return query.shape[1] == 1 and takes_steps(split)


CACHE_FUSIONS = (
    Fusion(
        (
            op("cache_write_key", "keys rotated position -> new_keys"),
            op("rope", "key *angles -> rotated"),
            op("cache_write_value", "values value position -> new_values"),
            op("rope", "query *angles -> turned"),
        ),
        _rope_into_cache,
        unique=True,
    ),
    Fusion(
        (
            op(
                FUSED,
                "keys values query key value cos sin start position -> new_keys new_values turned",
            ),
            op("attention", "turned new_keys new_values position -> attended"),
        ),
        _attention_step,
        early=True,
    ),
)
