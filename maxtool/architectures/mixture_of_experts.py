"""A mixture of experts: a router sends each token through a few of many MLPs."""

from __future__ import annotations

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.expert_routing import route
from maxtool.architectures.mlp import MLPS, scaled
from maxtool.architectures.normalization import applied, stream_norm
from maxtool.dtype import DType
from maxtool.graph import ShardingStrategy, Tensor, Weight, ops
from maxtool.nn import Linear, Module, RMSNorm, parallel, tensor_parallel
from maxtool.nn.placement import by_dimension, sharding_of
from maxtool.nn.tensor_parallel import Role, strategy_of


class ExpertLinear(Module[[Tensor, Tensor], Tensor]):
    """A linear layer for each expert.

    Sums that are to be added up over devices, where its ``role`` says so, are left to who calls it.
    """

    def __init__(
        self,
        count: int,
        in_dim: int,
        out_dim: int,
        dtype: DType,
        role: Role,
        has_bias: bool = False,
    ) -> None:
        self.weight = Weight("weight", dtype, (count, out_dim, in_dim))
        self.bias = Weight("bias", DType.float32, (count, out_dim)) if has_bias else None
        self.role = role

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        """``x [..., in]`` or ``[..., used, in]`` to ``[..., used, out]``, by the experts chosen."""
        result = ops.expert_linear(x, tensor_parallel.part(self.weight), chosen)
        return result if self.bias is None else result + ops.gather(self.bias, chosen, 0)


@sharding_of.register
def _(
    layer: ExpertLinear,
    name: str,  # noqa: ARG001 - there is one weight
    weight: Weight,
    strategy: ShardingStrategy,
) -> ShardingStrategy:
    """The strategy as for any layer; where layers say how they are split, the one for its role."""
    if not strategy.is_tensor_parallel:
        return by_dimension(weight, strategy)
    return strategy_of(layer.role, weight, strategy.num_devices)


class MixtureOfExperts(Module[[Tensor], Tensor]):
    """The experts of one layer and their router.

    The router gives each expert a share of a token; the token goes through those with the largest
    shares, and what they make of it is added up by share (Shazeer et al. 2017). There may be an MLP
    besides that each token goes through. Experts have a gate where MLPs have, and may work in a
    narrower space than the layer, with a projection before and behind.
    """

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        count, hidden = config.n_experts or 0, config.hidden_size
        inner, has_bias = config.expert_size or config.intermediate_size, config.expert_bias

        def experts(in_dim: int, out_dim: int, role: Role) -> ExpertLinear:
            return ExpertLinear(count, in_dim, out_dim, dtype, role, has_bias)

        self.router_norm = RMSNorm(hidden, config.norm_eps) if config.router_norm else None
        self.norm = stream_norm(config) if config.experts_beside else None
        self.factors = Weight("factors", DType.float32, (count,)) if config.expert_factors else None
        self.router = Linear(hidden, count, dtype, has_bias=config.router_bias)
        self.correction = (
            Weight("correction", DType.float32, (count,)) if config.expert_correction else None
        )
        width = config.expert_latent_size or hidden
        self.gate = experts(width, inner, Role.OUTPUTS) if config.mlp == "gated" else None
        self.up = experts(width, inner, Role.OUTPUTS)
        self.down = experts(inner, width, Role.INPUTS)
        self.narrow = self.widen = None
        if config.expert_latent_size is not None:
            self.narrow = Linear(hidden, width, dtype, has_bias=config.mlp_bias)
            self.widen = Linear(width, hidden, dtype, has_bias=config.mlp_bias)
        self.shared = SharedExpert(config, dtype) if config.shared_expert_size else None
        self.config = config

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., hidden]`` to the same shape."""
        shares, chosen = self._routed(x)
        x = applied(self.norm, x)
        inner = self._inner(applied(self.narrow, x), chosen, shares)
        mixed = ops.weighted_sum(self.down(inner, chosen), shares)
        mixed = applied(self.widen, tensor_parallel.summed(mixed, self.down.weight))
        if self.shared is None:
            return mixed
        return scaled(mixed + self.shared(x), 0.5 if self.config.shared_expert_mean else 1.0)

    def _routed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The shares of the experts that tokens go through, and their numbers."""
        correction = self.correction
        local = None if correction is None else parallel.local(correction, x.device)
        logits = scaled(self.router(applied(self.router_norm, x)), self.config.router_scale)
        if (cap := self.config.router_softcap) is not None:
            logits = ops.tanh(logits / cap) * cap
        shares, chosen = route(logits, local, self.config)
        if self.factors is not None:
            shares = shares * ops.gather(parallel.local(self.factors, x.device), chosen, 0)
        return shares, chosen

    def _inner(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """The inside of experts; a share of ``x`` is one of its gate, and of the result."""
        up = self.up(x, chosen)
        if self.gate is None:
            return ACTIVATIONS[self.config.hidden_act](up)
        gate = self.gate(x, chosen)
        if self.config.expert_input_scaled:
            gate = gate * shares.reshape([*shares.shape, 1])
        return self._activated(gate, up)

    def _activated(self, gate: Tensor, up: Tensor) -> Tensor:
        limit, alpha = self.config.swiglu_limit, self.config.swiglu_alpha
        if limit is None or alpha is None:
            return ACTIVATIONS[self.config.hidden_act](gate) * up
        gate = ops.minimum(gate, limit)
        return (ops.clamp(up, -limit, limit) + 1.0) * (gate * ops.sigmoid(gate * alpha))


class SharedExpert(Module[[Tensor], Tensor]):
    """An MLP for every token, and how much of it is added, if that depends on the token."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        hidden, inner = config.hidden_size, config.shared_expert_size or 0
        self.mlp = MLPS[config.mlp](hidden, inner, config.hidden_act, dtype, config.mlp_bias)
        self.share = Linear(hidden, 1, dtype) if config.shared_expert_gate else None

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., hidden]`` to the same shape."""
        result = self.mlp(x)
        return result if self.share is None else result * ops.sigmoid(self.share(x))
