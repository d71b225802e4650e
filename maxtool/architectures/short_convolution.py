"""A short convolution over time, which keeps its last inputs in the place of keys and values."""

from __future__ import annotations

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.layer_state import CachedModule, LayerState
from maxtool.architectures.rotary_angles import Turn
from maxtool.architectures.time_convolution import TimeConvolution
from maxtool.dtype import DType
from maxtool.graph import Tensor
from maxtool.nn import Linear


class ShortConvolution(CachedModule):
    """``out(after(x) * conv(before(x) * inner(x)))``, each channel convolved by itself (LFM2)."""

    def __init__(self, config: DecoderConfig, dtype: DType, form: CacheLayout) -> None:
        hidden, taps, has_bias = config.hidden_size, config.conv_taps or 0, config.conv_bias
        self.before, self.after, self.inner, self.out = (
            Linear(hidden, hidden, dtype, has_bias=has_bias) for _ in range(4)
        )
        self.taps = TimeConvolution(taps, hidden, has_bias)
        self.form = form

    def state(self) -> LayerState:
        """The last inputs of the convolution, the oldest first."""
        return LayerState({"inputs": self.taps.kept(self.form)})

    def forward(
        self,
        x: Tensor,
        turn: Turn,  # noqa: ARG002 - it knows the order of tokens without
        location: Location,
        cache: Cache | None,
    ) -> tuple[Tensor, Cache | None]:
        """Mix ``x [batch, seq, hidden]``, which begins at ``location``; returns the state too."""
        held = None if cache is None else cache[0]
        mixed, after = self.taps(self.before(x) * self.inner(x), location, held)
        return self.out(self.after(x) * mixed), None if cache is None else (after,)
