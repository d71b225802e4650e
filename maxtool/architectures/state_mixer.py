"""Base of layers that keep a matrix for each head: projections, convolutions and the state."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.layer_state import CachedModule, LayerState
from maxtool.architectures.mlp import scaled
from maxtool.architectures.time_convolution import TimeConvolution, fresh
from maxtool.dtype import DType
from maxtool.graph import BufferType, Tensor, Weight
from maxtool.nn import Linear

Heads = tuple[Tensor, Tensor, Tensor]


def through(
    rank: int | None, in_dim: int, out_dim: int, dtype: DType, has_bias: bool
) -> tuple[Linear | None, Linear]:
    """A projection, and one to ``rank`` numbers before it unless that is None."""
    if rank is None:
        return None, Linear(in_dim, out_dim, dtype, has_bias=has_bias)
    return Linear(in_dim, rank, dtype), Linear(rank, out_dim, dtype, has_bias=has_bias)


class StateMixer(CachedModule):
    """Queries, keys and values, each behind a convolution over time, and a state of them.

    Attributes:
        rate: ``[heads]``, float32, below 0: how fast a head forgets; ``[heads, 1]`` where each
            channel of keys does so by itself.
        step_bias: float32, of the projection by which tokens say how far: a number for each head,
            or for each of its channels of keys.
    """

    def __init__(self, config: DecoderConfig, dtype: DType, form: CacheLayout) -> None:
        hidden, taps = config.hidden_size, config.conv_taps or 0
        has_bias = config.state_bias
        self.heads, self.key_heads = config.state_heads or 0, config.state_key_heads or 0
        self.key_dim, self.value_dim = config.state_key_dim or 0, config.state_value_dim or 0
        keys, self.width = self.key_heads * self.key_dim, self.heads * self.value_dim
        self.q, self.k = (Linear(hidden, keys, dtype, has_bias=has_bias) for _ in range(2))
        self.v = Linear(hidden, self.width, dtype, has_bias=has_bias)
        self.by_channel = config.state_decay == "channel"
        steps = self.heads * (self.key_dim if self.by_channel else 1)
        self.gate_low, self.gate = through(config.gate_rank, hidden, self.width, dtype, has_bias)
        self.step_low, self.step = through(config.step_rank, hidden, steps, dtype, has_bias)
        self.q_conv, self.k_conv = (TimeConvolution(taps, keys, config.conv_bias) for _ in range(2))
        self.v_conv = TimeConvolution(taps, self.width, config.conv_bias)
        self.rate = Weight("rate", DType.float32, (self.heads, *([1] * self.by_channel)))
        self.step_bias = Weight("step_bias", DType.float32, (steps,))
        out_bias = has_bias if config.state_out_bias is None else config.state_out_bias
        self.out = Linear(self.width, hidden, dtype, has_bias=out_bias)
        self.activation = ACTIVATIONS[config.state_act or config.hidden_act]
        self.form = form

    def state(self) -> LayerState:
        """The last inputs of each convolution, and a matrix for each head."""
        sums = [self.form.rows, self.heads, self.key_dim, self.value_dim]
        return LayerState(
            {
                "query": self.q_conv.kept(self.form),
                "key": self.k_conv.kept(self.form),
                "value": self.v_conv.kept(self.form),
                "sums": BufferType(DType.float32, sums),
            }
        )

    def held(self, x: Tensor, cache: Cache | None) -> Tensor:
        """The matrices before ``x``."""
        return cache[-1] if cache else fresh(x, self.heads, self.key_dim, self.value_dim)

    def convolved(
        self,
        x: Tensor,
        location: Location,
        cache: Cache | None,
        scales: Sequence[float] = (1.0, 1.0, 1.0),
    ) -> tuple[Heads, Cache]:
        """Queries, keys and values by head, and the inputs that the convolutions keep.

        ``scales`` are what the projections of each are multiplied by.
        """
        last = cache[:3] if cache else (None, None, None)
        layers = (self.q, self.q_conv), (self.k, self.k_conv), (self.v, self.v_conv)
        results = [
            conv(scaled(linear(x), scale), location, held)
            for (linear, conv), scale, held in zip(layers, scales, last, strict=True)
        ]
        query, key, value = (self.activation(mixed) for mixed, _ in results)
        heads = self.by_head(query, self.key_dim), self.by_head(key, self.key_dim)
        return (*heads, self.by_head(value, self.value_dim)), tuple(kept for _, kept in results)

    def by_head(self, x: Tensor, dim: int) -> Tensor:
        """``[batch, seq, width]`` by heads of ``dim`` elements."""
        return x.reshape([*x.shape[:2], int(x.shape[2]) // dim, dim])

    def joined(self, x: Tensor) -> Tensor:
        """``[batch, seq, heads, value_dim]``, or any other heads of all values, as one."""
        return x.reshape([*x.shape[:2], self.width])
