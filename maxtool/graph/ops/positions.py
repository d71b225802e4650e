"""Telling a model where its tokens stand: rotary and learned positions."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import (
    require,
    require_float32,
    require_floats,
    require_heads,
    require_position,
)
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("rope", numbers={3: DType.int32})
def _infer_rope(
    x: TensorType, cos: TensorType, sin: TensorType, position: TensorType
) -> tuple[TensorType, ...]:
    require_float32(x, cos, sin)
    *_, dim = require_heads(x)
    for table in (cos, sin):
        known = table.rank == 2 and table.shape[1].is_static and table.shape[1] != 0
        fits = known and 2 * int(table.shape[1]) <= int(dim)
        require(fits, f"tables are [context, half the rotated elements], of {dim} at most")
    require(cos.shape == sin.shape, "tables are of one shape")
    require_position(position)
    return (TensorType(x.dtype, x.shape, x.device),)


@rule("rope_angles", numbers={2: DType.int32})
def _infer_angles(
    tokens: TensorType,
    frequencies: TensorType,
    position: TensorType,
    original: int,
    factor: float,  # noqa: ARG001 - part of the operation's signature
    long_factor: float,  # noqa: ARG001 - likewise
) -> tuple[TensorType, ...]:
    require_float32(frequencies)
    require(tokens.rank == 2, "tokens are [batch, seq]")
    rows = tokens.shape[1]
    if position.shape == [1]:
        require_position(position)
    else:
        by_row = position.dtype is DType.int32 and position.shape == [tokens.shape[0]]
        require(by_row and rows == 1, "positions are int32[1], or int32[batch] of one token each")
        rows = tokens.shape[0]
    fits = frequencies.rank == 2 and frequencies.shape.is_static and 0 not in frequencies.shape
    require(fits, "frequencies are [lengths, half the rotated elements], both known")
    require(original >= 0, "a length is not negative")
    shape = [rows, frequencies.shape[1]]
    return (TensorType(DType.float32, shape, tokens.device),) * 2


@rule("add_positions", numbers={2: DType.int32})
def _infer_add_positions(
    x: TensorType, table: TensorType, position: TensorType
) -> tuple[TensorType, ...]:
    require_float32(x)
    require_floats(table)
    require(table.dtype is not DType.float64, "no kernel for a table in float64")
    require_position(position)
    require(x.rank == 3 and x.shape[2].is_static, "the input is [batch, seq, hidden]")
    fits = table.rank == 2 and table.shape[0] != 0 and table.shape[1] == x.shape[2]
    require(fits, f"the table is [positions, {x.shape[2]}]")
    return (TensorType(x.dtype, x.shape, x.device),)


def rope(x: TensorLike, cos: Tensor, sin: Tensor, position: TensorLike) -> Tensor:
    """Rotary position embedding, the two halves of a head being the pairs (Su et al. 2021).

    Where the tables are narrower than half a head, its first elements are rotated and the rest
    stays as it is.

    Args:
        x: ``[batch, seq, heads, head_dim]``.
        cos: ``[context, dim / 2]``, the cosine of each angle; ``dim`` is at most ``head_dim``.
        sin: The sines, likewise.
        position: int32 ``[1]``: the row of the first token of ``x`` in the tables.
    """
    return apply("rope", x, cos, sin, position)[0]


def rope_angles(
    tokens: TensorLike,
    frequencies: Tensor,
    position: TensorLike,
    *,
    original: int,
    factor: float = 1.0,
    long_factor: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Cosines and sines for :func:`rope` whose frequencies depend on the sequence's length.

    The length is ``position + seq``, what a cache holds included. Its frequencies are the row
    ``length - original``, the first or last one where there is no such row.

    Args:
        tokens: ``[batch, seq]``, of which only the length is used.
        frequencies: ``[lengths, dim / 2]``, radians per position.
        position: int32 ``[1]``: where the first token stands. Or int32 ``[batch]``, where each row
            is one token of another sequence.
        original: The length whose frequencies are the first row.
        factor: What cosines and sines are multiplied by.
        long_factor: The same where the length is more than ``original``; ``factor`` if None.

    Returns:
        Two tables ``[seq, dim / 2]``, whose first row is that of the first token; or with a row
        for each position, ``[batch, dim / 2]``.
    """
    beyond = factor if long_factor is None else long_factor
    options = {"original": int(original), "factor": float(factor), "long_factor": float(beyond)}
    cos, sin = apply("rope_angles", tokens, frequencies, position, **options)
    return cos, sin


def add_positions(x: TensorLike, table: Tensor, position: TensorLike) -> Tensor:
    """``x[:, i] + table[position + i]``: learned positions.

    Args:
        x: ``[batch, seq, hidden]``.
        table: ``[positions, hidden]``, float32, float16 or bfloat16; beyond its ends, its first or
            last row is added.
        position: int32 ``[1]``: where the first token of ``x`` stands.
    """
    return apply("add_positions", x, table, position)[0]
