"""A gated delta net: linear attention over a matrix for each head that tokens decay and correct."""

from __future__ import annotations

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.normalization import applied
from maxtool.architectures.rotary_angles import Turn
from maxtool.architectures.state_mixer import StateMixer
from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.nn import Linear, RMSNorm

GATES = {"silu": ops.silu, "sigmoid": ops.sigmoid}
L2_EPS = 1e-6  # of queries and keys, whatever the configuration says of norms


class DeltaNet(StateMixer):
    """The gated delta rule (Yang et al. 2024, arXiv:2412.06464), and a norm with a gate.

    Channels of keys that decay each by itself make it Kimi Delta Attention (arXiv:2510.26692).
    """

    def __init__(self, config: DecoderConfig, dtype: DType, form: CacheLayout) -> None:
        super().__init__(config, dtype, form)
        self.beta = Linear(config.hidden_size, self.heads, dtype)
        self.norm = RMSNorm(self.value_dim, config.norm_eps)
        self.gated = GATES[config.state_gate]

    def forward(
        self,
        x: Tensor,
        turn: Turn,  # noqa: ARG002 - it knows the order of tokens without
        location: Location,
        cache: Cache | None,
    ) -> tuple[Tensor, Cache | None]:
        """Mix ``x [batch, seq, hidden]``, which begins at ``location``; returns the state too."""
        (query, key, value), inputs = self.convolved(x, location, cache)
        position, slot = location
        mixed, after = ops.linear_attention(
            ops.l2_norm(query, L2_EPS) * self.key_dim**-0.5,
            ops.l2_norm(key, L2_EPS),
            value,
            self._decay(x),
            self.held(x, cache),
            position,
            beta=ops.sigmoid(self.beta(x)),
            slot=slot,
        )
        gate = self.by_head(self.gate(applied(self.gate_low, x)), self.value_dim)
        result = self.out(self.joined(self.norm(mixed) * self.gated(gate)))
        return result, None if cache is None else (*inputs, after)

    def _decay(self, x: Tensor) -> Tensor:
        """The share that is kept of a head's state, or of each of its channels of keys."""
        steps = self.step(applied(self.step_low, x)) + self.step_bias
        steps = self.by_head(steps, self.key_dim) if self.by_channel else steps
        return ops.exp(self.rate * ops.softplus(steps))
