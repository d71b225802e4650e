"""Rotary position embedding by tables of cosines and sines (Su et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.refusals import require


@dataclass(frozen=True, slots=True)
class Rotation:
    """A rotation of heads: angles for each token, and which elements are a pair.

    Attributes:
        cos: ``[batch or 1, 1, length, half]``.
        sin: Likewise.
        interleaved: Whether neighbours are a pair, rather than the two halves.
    """

    cos: Tensor
    sin: Tensor
    interleaved: bool

    @classmethod
    def at(cls, positions: Tensor, tables: tuple[Tensor, Tensor], interleaved: bool) -> Rotation:
        """The rotation of tokens at positions, int64 ``[batch or 1, length]``."""
        cos, sin = (ops.unsqueeze(ops.gather(table, positions, 0), 1) for table in tables)
        return cls(cos, sin, interleaved)

    def __call__(self, heads: Tensor) -> Tensor:
        """``[batch, heads, length, dim]`` rotated; elements beyond the tables stay as they are."""
        half, dim = int(self.cos.shape[-1]), int(heads.shape[-1])
        require(2 * half <= dim, f"heads have {dim} elements, and {half} angles")
        first, second = self._pair(heads, half)
        turned = self._joined(
            first * self.cos - second * self.sin, second * self.cos + first * self.sin
        )
        if 2 * half == dim:
            return turned
        return ops.concat([turned, ops.slice_tensor(heads, (..., slice(2 * half, dim)))], -1)

    def _pair(self, heads: Tensor, half: int) -> tuple[Tensor, Tensor]:
        if self.interleaved:
            parts = (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        else:
            parts = (slice(0, half), slice(half, 2 * half))
        first, second = (ops.slice_tensor(heads, (..., part)) for part in parts)
        return first, second

    def _joined(self, first: Tensor, second: Tensor) -> Tensor:
        if not self.interleaved:
            return ops.concat([first, second], -1)
        pairs = ops.stack([first, second], -1)
        return ops.reshape(pairs, [*first.shape[:-1], int(first.shape[-1]) * 2])


def positions_of(given: Tensor, length: Tensor) -> Tensor:
    """Positions, int64: as they are given for all tokens, or from the one of the first on."""
    wide = ops.cast(given, DType.int64)
    if wide.rank == 2:
        return wide
    steps = ops.range(0, length.shape[-2])
    return ops.unsqueeze(steps, 0) + ops.reshape(wide, [1, 1])


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(call: OperatorCall) -> Tensor:
    """Heads rotated, as ``[batch, heads, length, dim]`` or ``[batch, length, heads * dim]``."""
    call.only("interleaved is_packed_batching num_heads rotary_embedding_dim scale", 4)
    require(not call.flag("is_packed_batching"), "is_packed_batching is not supported")
    require(call.real("scale", 1.0) == 1.0, "a scale is not supported")
    x, cos, sin = call.x(0), call.x(2), call.x(3)
    require(x.rank in (3, 4) and cos.shape[-1].is_static, f"{x.type} are no heads")
    heads = x if x.rank == 4 else ops.permute(_apart(call, x, int(cos.shape[-1])), (0, 2, 1, 3))
    positions = positions_of(call.x(1), heads)
    turned = Rotation.at(positions, (cos, sin), call.flag("interleaved"))(heads)
    return turned if x.rank == 4 else ops.reshape(ops.permute(turned, (0, 2, 1, 3)), x.shape)


def _apart(call: OperatorCall, x: Tensor, half: int) -> Tensor:
    """``[batch, length, hidden]`` with heads of their own dimension."""
    require(x.shape[2].is_static, "the hidden size is not known")
    partial = call.number("rotary_embedding_dim", 0) > 0
    count = call.number("num_heads", 0) if partial else int(x.shape[2]) // (2 * half)
    require(count > 0 and int(x.shape[2]) % count == 0, f"{count} heads of {x.type}")
    return ops.reshape(x, [*x.shape[:2], count, int(x.shape[2]) // count])
