"""A convolution over time of each channel by itself, with the last inputs kept."""

from __future__ import annotations

from maxtool.architectures.cache_layout import CacheLayout, Location
from maxtool.dtype import DType
from maxtool.graph import BufferType, Tensor, Weight, ops
from maxtool.nn import Module


class TimeConvolution(Module[[Tensor, Location, Tensor | None], tuple[Tensor, Tensor]]):
    """Each channel convolved with its last inputs.

    Attributes:
        weight: ``[taps, channels]``, float32, the own token's last.
        bias: ``[channels]``, float32, or None.
    """

    def __init__(self, taps: int, channels: int, has_bias: bool = False) -> None:
        self.weight = Weight("weight", DType.float32, (taps, channels))
        self.bias = Weight("bias", DType.float32, (channels,)) if has_bias else None

    def kept(self, form: CacheLayout) -> BufferType:
        """The last inputs, the oldest first."""
        taps, channels = self.weight.shape.static()
        return BufferType(DType.float32, [form.rows, taps - 1, channels])

    def forward(self, x: Tensor, location: Location, held: Tensor | None) -> tuple[Tensor, Tensor]:
        """Convolve ``x [batch, seq, channels]``, which begins at ``location``.

        ``held`` are the inputs before, None where there are none; returns the last ones too.
        """
        position, slot = location
        taps, channels = self.weight.shape.static()
        held = fresh(x, taps - 1, channels) if held is None else held
        mixed, after = ops.causal_conv1d(x, self.weight, held, position, slot=slot)
        return mixed if self.bias is None else mixed + self.bias, after


def fresh(x: Tensor, *sizes: int) -> Tensor:
    """A state ``[batch, *sizes]`` of texts ``x [batch, ...]`` that begin."""
    zeros = Tensor.full([1] * (len(sizes) + 1), 0.0, dtype=DType.float32, device=x.device)
    return ops.broadcast_to(zeros, [x.shape[0], *sizes])
