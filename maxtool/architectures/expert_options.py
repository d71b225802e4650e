"""Options of experts, which take the place of a layer's MLP."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes, chosen


@dataclass(frozen=True, kw_only=True)
class ExpertOptions(DecoderSizes):
    """Numbers of experts, and options of how tokens are given to them."""

    n_experts: int | None = None  # how many experts take the place of the MLP; None for no experts
    n_experts_used: int | None = None  # how many of them each token goes through
    expert_size: int | None = None  # width inside an expert; ``intermediate_size`` when None
    # Width to which tokens are brought before experts, and from which behind them; None for none.
    expert_latent_size: int | None = None
    norm_topk: bool = True  # whether weights of the experts that are used are divided by a norm
    # With that, the order of the norm that they are divided by, which is 1 then.
    topk_norm_order: float = 1.0
    expert_sum_eps: float = 0.0  # with that, what is added to the norm that they are divided by
    expert_layers: tuple[bool, ...] | None = None  # which layers have experts; all when None

    # What a router makes of its outputs: ``softmax``, ``sigmoid`` of each by itself,
    # ``sigmoid_of_chosen``, of those that are chosen by the outputs themselves, or
    # ``sparsemixer``, for each that is chosen its softmax among those near to it, without those
    # chosen before (Liu et al. 2024, as they infer).
    expert_scores: str = "softmax"
    # sparsemixer: outputs are near that are at most so far below the best: twice this, times the
    # larger of the best and their own magnitude.
    expert_jitter: float = 0.0
    # Whether a number for each expert is added to its score where experts are chosen, and not where
    # what they make is added up.
    expert_correction: bool = False
    # Experts are chosen from some of this many groups only, those whose best scores add up to
    # most (DeepSeek-V3, arXiv:2412.19437).
    expert_groups: int = 1
    expert_groups_used: int = 1  # how many of the groups
    # How many of a group's best scores are added up for that; 1 in DeepSeek-V2.
    expert_group_best: int = 2
    expert_scale: float = 1.0  # what the weights of the experts are multiplied by in the end
    # Whether what goes into an expert is multiplied by its weight, rather than what it makes.
    expert_input_scaled: bool = False
    # ``cap * tanh(output / cap)`` bounds the outputs of the router; None for no bound.
    router_softcap: float | None = None
    router_bias: bool = False  # whether the router has a bias
    expert_bias: bool = False  # whether the projections of experts have biases
    # With the next one, activations are held within bounds: ``(min(max(up, -limit), limit) + 1) *
    # gate * sigmoid(alpha * gate)``, with a gate of at most ``limit`` (gpt-oss).
    swiglu_limit: float | None = None
    swiglu_alpha: float | None = None
    # Width inside an MLP that each token goes through besides; None for none.
    shared_expert_size: int | None = None
    # Whether what it makes is multiplied by the sigmoid of one more output of the layer.
    shared_expert_gate: bool = False

    # Whether experts and that MLP are averaged rather than added up (Cohere's).
    shared_expert_mean: bool = False

    # Whether layers with experts have their MLP, too, and each of both norms of its own, before and
    # behind (Gemma 4).
    experts_beside: bool = False
    # Whether the router has a norm (RMS) of its own, of what the layer adds to; and what its
    # outputs are multiplied by.
    router_norm: bool = False
    router_scale: float = 1.0
    expert_factors: bool = False  # whether each expert has a factor of what it makes

    def has_experts(self, layer: int) -> bool:
        """Return whether a layer has experts in the place of its MLP."""
        return self.n_experts is not None and chosen(self.expert_layers, layer)
