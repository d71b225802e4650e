"""A gated delta net: linear attention over a matrix for each head that tokens decay and correct."""

from __future__ import annotations

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.layer_state import CachedModule, LayerState
from maxtool.architectures.mlp import ACTIVATIONS
from maxtool.architectures.rotary_angles import Turn
from maxtool.architectures.time_convolution import TimeConvolution, fresh
from maxtool.dtype import DType
from maxtool.graph import BufferType, Tensor, Weight, ops
from maxtool.nn import Linear, RMSNorm

L2_EPS = 1e-6  # of queries and keys, whatever the configuration says of norms


class DeltaNet(CachedModule):
    """The gated delta rule (Yang et al. 2024) between convolutions and a gated norm (Qwen 3 Next).

    Attributes:
        rate: ``[heads]``, float32, below 0: how fast a head forgets.
        step_bias: ``[heads]``, float32: added to the logarithm of the step, about.
    """

    def __init__(self, config: DecoderConfig, dtype: DType, form: CacheLayout) -> None:
        hidden, taps = config.hidden_size, config.conv_taps or 0
        self.heads, self.key_heads = config.state_heads or 0, config.state_key_heads or 0
        self.key_dim, self.value_dim = config.state_key_dim or 0, config.state_value_dim or 0
        keys, values = self.key_heads * self.key_dim, self.heads * self.value_dim
        self.q, self.k = Linear(hidden, keys, dtype), Linear(hidden, keys, dtype)
        self.v, self.gate = Linear(hidden, values, dtype), Linear(hidden, values, dtype)
        self.beta, self.step = (Linear(hidden, self.heads, dtype) for _ in range(2))
        self.q_conv, self.k_conv = TimeConvolution(taps, keys), TimeConvolution(taps, keys)
        self.v_conv = TimeConvolution(taps, values)
        self.rate = Weight("rate", DType.float32, (self.heads,))
        self.step_bias = Weight("step_bias", DType.float32, (self.heads,))
        self.norm = RMSNorm(self.value_dim, config.norm_eps)
        self.out = Linear(values, hidden, dtype)
        self.activation = ACTIVATIONS[config.hidden_act]
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

    def forward(
        self,
        x: Tensor,
        turn: Turn,  # noqa: ARG002 - it knows the order of tokens without
        location: Location,
        cache: Cache | None,
    ) -> tuple[Tensor, Cache | None]:
        """Mix ``x [batch, seq, hidden]``, which begins at ``location``; returns the state too."""
        query, key, value, inputs = self._convolved(x, location, cache)
        sums = cache[-1] if cache else fresh(x, self.heads, self.key_dim, self.value_dim)
        position, slot = location
        mixed, after = ops.linear_attention(
            ops.l2_norm(query, L2_EPS) * self.key_dim**-0.5,
            ops.l2_norm(key, L2_EPS),
            value,
            ops.exp(self.rate * ops.softplus(self.step(x) + self.step_bias)),
            sums,
            position,
            beta=ops.sigmoid(self.beta(x)),
            slot=slot,
        )
        gated = self.norm(mixed) * ops.silu(self._heads(self.gate(x), self.value_dim))
        joined = gated.reshape([*x.shape[:2], self.heads * self.value_dim])
        return self.out(joined), None if cache is None else (*inputs, after)

    def _convolved(
        self, x: Tensor, location: Location, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor, Cache]:
        """Queries, keys and values by head, and the inputs that the convolutions keep."""
        held = cache[:3] if cache else (None, None, None)
        layers = (self.q, self.q_conv), (self.k, self.k_conv), (self.v, self.v_conv)
        results = [
            conv(linear(x), location, last)
            for (linear, conv), last in zip(layers, held, strict=True)
        ]
        dims = self.key_dim, self.key_dim, self.value_dim
        query, key, value = (
            self._heads(self.activation(mixed), dim)
            for (mixed, _), dim in zip(results, dims, strict=True)
        )
        return query, key, value, tuple(after for _, after in results)

    def _heads(self, x: Tensor, dim: int) -> Tensor:
        return x.reshape([*x.shape[:2], int(x.shape[2]) // dim, dim])
