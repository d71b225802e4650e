"""Choice of the experts that a token goes through, and the share that each has in the result."""

from __future__ import annotations

from math import inf

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.dtype import DType
from maxtool.graph import Tensor, ops


def route(
    logits: Tensor, correction: Tensor | None, config: DecoderConfig
) -> tuple[Tensor, Tensor]:
    """The shares of the experts chosen, ``[..., used]``, and their numbers.

    Args:
        logits: What the router gives, ``[..., experts]``.
        correction: What is added to scores where experts are chosen, ``[experts]``, if anything.
        config: How many are used, and what scores are.
    """
    if config.expert_scores == "sigmoid_of_chosen":
        best, chosen = ops.top_k(logits, config.n_experts_used or 0)
        return _shared_out(ops.sigmoid(best), config), chosen
    if config.expert_scores == "sparsemixer":
        _, chosen = ops.top_k(logits, config.n_experts_used or 0)
        return _shared_out(_among_near(logits, chosen, config), config), chosen
    scores = ops.sigmoid(logits) if config.expert_scores == "sigmoid" else ops.softmax(logits)
    choice = scores if correction is None else scores + correction
    if config.expert_groups > 1:
        choice = _in_best_groups(choice, config)
    shares, chosen = ops.top_k(choice, config.n_experts_used or 0)
    if choice is not scores:
        places = chosen.reshape([*chosen.shape, 1])
        shares = ops.gather_nd(scores, places, batch_dims=scores.rank - 1)
    return _shared_out(shares, config), chosen


def _shared_out(scores: Tensor, config: DecoderConfig) -> Tensor:
    """The shares of experts of such scores, ``[..., used]``."""
    if config.norm_topk:
        total = _norm(scores, config.topk_norm_order)
        scores = scores / (total + config.expert_sum_eps if config.expert_sum_eps else total)
    return scores if config.expert_scale == 1 else scores * config.expert_scale


def _norm(scores: Tensor, order: float) -> Tensor:
    """The norm of that order of scores that are not negative, ``[..., 1]``."""
    if order == 1:
        return ops.sum(scores)
    return ops.pow(ops.sum(ops.pow(scores, order)), 1 / order)


def _among_near(logits: Tensor, chosen: Tensor, config: DecoderConfig) -> Tensor:
    """The softmax of each expert chosen, among those near to it that are not yet chosen."""
    count, used = int(logits.shape[-1]), int(chosen.shape[-1])
    numbers = ops.range(0, count, dtype=chosen.dtype, device=logits.device)
    left, shares = logits, []
    for place in range(used):
        best = ops.max(left)
        reach = ops.maximum(ops.abs(logits), best) * (2 * config.expert_jitter)
        shares.append(ops.max(ops.softmax(ops.where(best - left > reach, -inf, left))))
        taken = ops.equal(chosen[..., place : place + 1], numbers)
        left = ops.where(taken, -inf, left)
    return ops.concat(shares, axis=-1)


def _in_best_groups(scores: Tensor, config: DecoderConfig) -> Tensor:
    """Scores ``[..., experts]``, minus infinity in all groups but the best."""
    *outer, count = scores.shape
    groups = config.expert_groups
    grouped = scores.reshape([*outer, groups, int(count) // groups])
    best, _ = ops.top_k(grouped, config.expert_group_best)
    _, used = ops.top_k(ops.sum(best).reshape([*outer, groups]), config.expert_groups_used)
    numbers = ops.range(0, groups, dtype=used.dtype, device=scores.device)
    is_used = ops.equal(used.reshape([*outer, config.expert_groups_used, 1]), numbers)
    kept = ops.max(is_used.cast(DType.float32), axis=-2).reshape([*outer, groups, 1]) > 0
    return ops.where(kept, grouped, -inf).reshape(scores.shape)
