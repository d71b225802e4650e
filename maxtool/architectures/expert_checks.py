"""Checks of a decoder's options of experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from maxtool.architectures.decoder_config import DecoderConfig

# Scores by which none are chosen: a router's outputs say which.
BY_OUTPUTS = ("sigmoid_of_chosen", "sparsemixer")

Rule: TypeAlias = Callable[[DecoderConfig], Iterator[str]]


def _experts(config: DecoderConfig) -> Iterator[str]:
    if config.n_experts is None:
        return
    if config.n_experts_used is not None and config.n_experts_used > config.n_experts:
        yield f"n_experts_used {config.n_experts_used} is more than n_experts {config.n_experts}"
    if config.mlp != "gated" and config.swiglu_limit is not None:
        yield f"swiglu_limit with mlp {config.mlp!r}: it is for gated experts alone"
    if config.expert_scores in BY_OUTPUTS:
        scores = f"expert_scores {config.expert_scores!r}"
        for name, usual in (("expert_correction", False), ("expert_groups", 1)):
            if getattr(config, name) != usual:
                yield f"{name} with {scores}, by which none are chosen"
    if config.expert_scores != "sparsemixer" and config.expert_jitter:
        yield f"expert_jitter with expert_scores {config.expert_scores!r}"
    if config.expert_input_scaled:
        if config.mlp != "gated" or config.swiglu_limit is not None:
            yield "expert_input_scaled is for gated experts alone, without a swiglu_limit"
        if config.expert_bias:
            yield "expert_input_scaled with expert_bias: biases are not of what goes in"


def _groups(config: DecoderConfig) -> Iterator[str]:
    count, groups, used = config.n_experts, config.expert_groups, config.expert_groups_used
    if count is None or groups <= 1 or used <= 0:
        return
    if used > groups:
        yield f"expert_groups_used {used} is more than expert_groups {groups}"
    elif count % groups or count < config.expert_group_best * groups:
        least = config.expert_group_best
        yield f"n_experts {count} are no {groups} equal groups of {least} or more"
    elif config.n_experts_used is not None and config.n_experts_used > count // groups * used:
        yield f"n_experts_used {config.n_experts_used} is more than {used} groups have"


RULES: tuple[Rule, ...] = (_experts, _groups)
