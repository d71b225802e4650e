"""Mamba 2: a state space of each head, which tokens decay and add to."""

from __future__ import annotations

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.mlp import scaled
from maxtool.architectures.normalization import EachHeadNorm
from maxtool.architectures.rotary_angles import Turn
from maxtool.architectures.state_mixer import StateMixer
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops


class Mamba(StateMixer):
    """A state space with one rate for each head (Dao and Gu 2024, arXiv:2405.21060).

    What the paper calls C, B and x are queries, keys and values of linear attention.

    Attributes:
        skip: ``[heads]``, float32: how much of its value a token adds to what it reads.
    """

    def __init__(self, config: DecoderConfig, dtype: DType, form: CacheLayout) -> None:
        super().__init__(config, dtype, form)
        self.skip = Weight("skip", DType.float32, (self.heads,))
        self.group_dim = self.width // self.key_heads
        self.norm_at, self.norm = config.state_norm, None
        if self.norm_at != "none":
            self.norm = EachHeadNorm("rms", self.key_heads, self.group_dim, config.norm_eps)
        self.scales = config.state_scales or (1.0,) * 5

    def forward(
        self,
        x: Tensor,
        turn: Turn,  # noqa: ARG002 - it knows the order of tokens without
        location: Location,
        cache: Cache | None,
    ) -> tuple[Tensor, Cache | None]:
        """Mix ``x [batch, seq, hidden]``, which begins at ``location``; returns the state too."""
        (query, key, value), inputs = self.convolved(x, location, cache, self.scales[3:0:-1])
        step = ops.softplus(scaled(self.step(x), self.scales[4]) + self.step_bias)
        position, slot = location
        mixed, after = ops.linear_attention(
            query,
            key,
            value * step.reshape([*x.shape[:2], self.heads, 1]),
            ops.exp(self.rate * step),
            self.held(x, cache),
            position,
            slot=slot,
        )
        mixed = self.joined(mixed + value * self.skip.reshape([self.heads, 1]))
        result = self.out(self._gated(mixed, scaled(self.gate(x), self.scales[0])))
        return result, None if cache is None else (*inputs, after)

    def _gated(self, mixed: Tensor, gate: Tensor) -> Tensor:
        """``[batch, seq, width]`` times the activation of a gate, with the norm where it is."""
        if self.norm is None:
            return mixed * ops.silu(gate)
        if self.norm_at == "before":
            return self._normed(self.norm, mixed) * ops.silu(gate)
        return self._normed(self.norm, mixed * ops.silu(gate))

    def _normed(self, norm: EachHeadNorm, x: Tensor) -> Tensor:
        return self.joined(norm(self.by_head(x, self.group_dim)))
