"""Mamba 1: a state space of each channel, whose numbers tokens decay one by one."""

from __future__ import annotations

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.layer_state import CachedModule, LayerState
from maxtool.architectures.normalization import Norm, PlainNorm, applied
from maxtool.architectures.rotary_angles import Turn
from maxtool.architectures.time_convolution import TimeConvolution, fresh
from maxtool.dtype import DType
from maxtool.graph import BufferType, Tensor, Weight, ops
from maxtool.nn import Linear, RMSNorm


class SelectiveSpace(CachedModule):
    """A state space of each channel behind a convolution (Gu and Dao 2023, arXiv:2312.00752).

    What the paper calls C, B and x are queries, keys and values; of these all channels share the
    first two, which are made of the last, and so are steps, by way of few numbers.

    Attributes:
        rate: ``[state_dim, channels]``, float32, below 0: how fast a number is forgotten.
        skip: ``[channels]``, float32: how much of its value a token adds to what it reads.
    """

    def __init__(self, config: DecoderConfig, dtype: DType, form: CacheLayout) -> None:
        hidden, rank = config.hidden_size, config.step_rank or 0
        self.dim, self.channels = config.state_key_dim or 0, config.state_value_dim or 0
        self.v, self.gate = (
            Linear(hidden, self.channels, dtype, has_bias=config.state_bias) for _ in range(2)
        )
        self.v_conv = TimeConvolution(config.conv_taps or 0, self.channels, config.conv_bias)
        self.q, self.k = (Linear(self.channels, self.dim, dtype) for _ in range(2))
        self.low = Linear(self.channels, rank, dtype)
        self.q_norm, self.k_norm = (_norm(config, self.dim) for _ in range(2))
        self.low_norm = _norm(config, rank)
        self.step = Linear(rank, self.channels, dtype, has_bias=True)
        self.rate = Weight("rate", DType.float32, (self.dim, self.channels))
        self.skip = Weight("skip", DType.float32, (self.channels,))
        self.out = Linear(self.channels, hidden, dtype, has_bias=config.state_bias)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.form = form

    def state(self) -> LayerState:
        """The last inputs of the convolution, and some numbers for each channel."""
        sums = BufferType(DType.float32, [self.form.rows, self.dim, self.channels])
        return LayerState({"value": self.v_conv.kept(self.form), "sums": sums})

    def forward(
        self,
        x: Tensor,
        turn: Turn,  # noqa: ARG002 - it knows the order of tokens without
        location: Location,
        cache: Cache | None,
    ) -> tuple[Tensor, Cache | None]:
        """Mix ``x [batch, seq, hidden]``, which begins at ``location``; returns the state too."""
        inputs, sums = cache or (None, fresh(x, self.dim, self.channels))
        mixed, inputs = self.v_conv(self.v(x), location, inputs)
        value = self.activation(mixed)
        position, slot = location
        read, sums = ops.selective_scan(
            applied(self.q_norm, self.q(value)),
            applied(self.k_norm, self.k(value)),
            value,
            ops.softplus(self.step(applied(self.low_norm, self.low(value)))),
            self.rate,
            sums,
            position,
            slot=slot,
        )
        result = self.out((read + value * self.skip) * ops.silu(self.gate(x)))
        return result, None if cache is None else (inputs, sums)


def _norm(config: DecoderConfig, dim: int) -> Norm | None:
    """The norm of queries, of keys, or of what steps are made of."""
    eps = config.norm_eps if config.scan_eps is None else config.scan_eps
    if config.scan_norm == "none":
        return None
    return RMSNorm(dim, eps) if config.scan_norm == "rms" else PlainNorm("rms", dim, eps)
