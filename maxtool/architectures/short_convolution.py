"""A short convolution over time, which keeps its last inputs in the place of keys and values."""

from __future__ import annotations

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.layer_state import CachedModule, LayerState
from maxtool.architectures.rotary_angles import Turn
from maxtool.dtype import DType
from maxtool.graph import BufferType, Tensor, Weight, ops
from maxtool.nn import Linear


class ShortConvolution(CachedModule):
    """``out(after(x) * conv(before(x) * inner(x)))``, each channel convolved by itself (LFM2).

    Attributes:
        weight: ``[taps, hidden]``, float32, the own token's last.
        bias: ``[hidden]``, float32, or None.
    """

    def __init__(self, config: DecoderConfig, dtype: DType, form: CacheLayout) -> None:
        hidden, taps, has_bias = config.hidden_size, config.conv_taps or 0, config.conv_bias
        self.before, self.after, self.inner, self.out = (
            Linear(hidden, hidden, dtype, has_bias=has_bias) for _ in range(4)
        )
        self.weight = Weight("weight", DType.float32, (taps, hidden))
        self.bias = Weight("bias", DType.float32, (hidden,)) if has_bias else None
        self.form = form

    def state(self) -> LayerState:
        """The last inputs of the convolution, the oldest first."""
        taps, hidden = self.weight.shape.static()
        kept = BufferType(DType.float32, [self.form.rows, taps - 1, hidden])
        return LayerState({"inputs": kept})

    def forward(
        self,
        x: Tensor,
        turn: Turn,  # noqa: ARG002 - it knows the order of tokens without
        location: Location,
        cache: Cache | None,
    ) -> tuple[Tensor, Cache | None]:
        """Mix ``x [batch, seq, hidden]``, which begins at ``location``; returns the state too."""
        position, slot = location
        gated = self.before(x) * self.inner(x)
        held = fresh(x, self.weight.shape[0] - 1, gated.shape[2]) if cache is None else cache[0]
        mixed, after = ops.causal_conv1d(gated, self.weight, held, position, slot=slot)
        mixed = mixed if self.bias is None else mixed + self.bias
        return self.out(self.after(x) * mixed), None if cache is None else (after,)


def fresh(x: Tensor, *sizes: object) -> Tensor:
    """A state ``[batch, *sizes]`` of texts ``x [batch, ...]`` that begin."""
    shape = [int(str(size)) for size in sizes]
    zeros = Tensor.full([1] * (len(shape) + 1), 0.0, dtype=DType.float32, device=x.device)
    return ops.broadcast_to(zeros, [x.shape[0], *shape])
