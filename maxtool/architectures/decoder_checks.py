"""Checks of a decoder's options, each in a table or in a rule of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import TypeAlias

from maxtool.architectures.config import MAX_POSITIONS, out_of_range, unsupported
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.errors import ConfigurationError

Rule: TypeAlias = Callable[[DecoderConfig], Iterator[str]]

# Numbers above 0 and finite, or of at least 0; None, where an option may be that, is fine.
POSITIVE = (
    "vocab_size hidden_size intermediate_size n_layers n_heads n_kv_heads head_dim context_length"
    " rotary_dim rope_theta rope_factor rope_original_context rope_low_freq_factor"
    " rope_high_freq_factor rope_beta_fast rope_beta_slow rope_attention_factor rope_local_theta"
    " sliding_window attention_scale attention_softcap logits_softcap embed_scale residual_scale"
    " logits_scale n_experts n_experts_used expert_size"
)
NOT_NEGATIVE = ("norm_eps", "rope_mscale", "rope_mscale_all_dim")

# Each layer costs time when a model is only planned.
MAXIMA = {"context_length": MAX_POSITIONS, "n_layers": 10_000}

CHOICES: dict[str, tuple[str, ...]] = {
    "norm": ("rms", "layer"),
    "block": ("pre", "post", "sandwich", "parallel", "parallel_shared"),
    "qk_norm": ("none", "head", "full"),
    "mlp": ("gated", "plain"),
    "hidden_act": ("silu", "gelu", "gelu_tanh", "relu"),
    "position": ("rope", "learned"),
    "rope_scaling": ("none", "linear", "dynamic", "llama3", "yarn", "longrope"),
}

# Options that a kind of scaling cannot do without.
SCALING_NEEDS: dict[str, tuple[str, ...]] = {
    "linear": ("rope_factor",),
    "dynamic": ("rope_factor",),
    "llama3": ("rope_factor",),
    "longrope": ("rope_short_factors", "rope_long_factors"),
}

# An option, and the one that must be there for it to mean anything.
MEANINGLESS_WITHOUT = {
    "rope_local_theta": "sliding_window",
    "n_experts": "n_experts_used",
    "n_experts_used": "n_experts",
    "expert_size": "n_experts",
    "expert_layers": "n_experts",
}

PER_LAYER = ("rope_layers", "sliding_layers", "expert_layers")
PER_FREQUENCY = ("rope_short_factors", "rope_long_factors")


def problems(config: DecoderConfig) -> list[str]:
    """Return the problems with the values, one line each."""
    return [line for rule in RULES for line in rule(config)]


def _out_of_range(config: DecoderConfig) -> Iterator[str]:
    yield from out_of_range(config, POSITIVE.split(), NOT_NEGATIVE)
    for name, most in MAXIMA.items():
        if getattr(config, name) > most:
            yield f"{name} is {getattr(config, name)}, above {most}"


def _needs(config: DecoderConfig) -> Iterator[str]:
    for name in SCALING_NEEDS.get(config.rope_scaling, ()):
        if getattr(config, name) is None:
            yield f"rope_scaling {config.rope_scaling!r} needs {name}"
    for name, need in MEANINGLESS_WITHOUT.items():
        if getattr(config, name) is not None and getattr(config, need) is None:
            yield f"{name} {getattr(config, name)} needs {need}"


def _lengths(config: DecoderConfig) -> Iterator[str]:
    sizes = dict.fromkeys(PER_LAYER, config.n_layers)
    sizes |= dict.fromkeys(PER_FREQUENCY, config.rotated // 2)
    for name, size in sizes.items():
        values = getattr(config, name)
        if values is not None and len(values) != size:
            yield f"{name} has {len(values)} values, not {size}"


def _factors(config: DecoderConfig) -> Iterator[str]:
    for name in PER_FREQUENCY:
        for value in getattr(config, name) or ():
            if not 0 < value < inf:
                yield f"{name} has {value}"


def _heads(config: DecoderConfig) -> Iterator[str]:
    if config.n_kv_heads > 0 and config.n_heads % config.n_kv_heads:
        yield f"n_heads {config.n_heads} is not a multiple of n_kv_heads {config.n_kv_heads}"


def _rotary(config: DecoderConfig) -> Iterator[str]:
    if config.position != "rope":
        return
    if config.rotated % 2:
        name = "head_dim" if config.rotary_dim is None else "rotary_dim"
        yield f"{name} {config.rotated} is odd"
    if config.rotated > config.head_dim:
        yield f"rotary_dim {config.rotated} is more than head_dim {config.head_dim}"


def _scaling(config: DecoderConfig) -> Iterator[str]:
    low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
    if config.rope_scaling == "llama3" and low >= high:
        yield f"rope_low_freq_factor {low} is not less than rope_high_freq_factor {high}"
    if config.rope_scaling == "dynamic" and config.rotated <= 2:
        yield f"rope_scaling 'dynamic' needs more than {config.rotated} rotated elements"
    if config.rope_scaling == "yarn" and config.rope_theta <= 1:
        yield f"rope_scaling 'yarn' needs a rope_theta above 1, not {config.rope_theta}"
    if config.rope_scaling == "longrope" and config.original_context == 1:
        yield "rope_scaling 'longrope' needs an original context of more than one position"


def _learned(config: DecoderConfig) -> Iterator[str]:
    if config.position != "learned":
        return
    if config.rope_scaling != "none":
        yield f"rope_scaling {config.rope_scaling!r} with learned positions"
    for name in ("rotary_dim", "rope_layers", "rope_local_theta"):
        if getattr(config, name) is not None:
            yield f"{name} with learned positions"


def _norms_and_windows(config: DecoderConfig) -> Iterator[str]:
    if config.norm_bias and config.norm == "rms":
        yield "norm_bias with rms norms, which have none"
    if config.sliding_window is None and any(config.sliding_layers or ()):
        yield "sliding_layers without a sliding_window"


def _experts(config: DecoderConfig) -> Iterator[str]:
    if config.n_experts is None:
        return
    if config.n_experts_used is not None and config.n_experts_used > config.n_experts:
        yield f"n_experts_used {config.n_experts_used} is more than n_experts {config.n_experts}"
    if config.mlp != "gated":
        yield f"mlp {config.mlp!r} with experts: theirs are gated"


RULES: tuple[Rule, ...] = (
    _out_of_range,
    partial(unsupported, choices=CHOICES),
    _needs,
    _lengths,
    _factors,
    _heads,
    _rotary,
    _scaling,
    _learned,
    _norms_and_windows,
    _experts,
)


def check_split(config: DecoderConfig, count: int) -> None:
    """Refuse to split a decoder over devices where its heads and widths make no equal parts.

    Raises:
        ConfigurationError: Listing everything that does not.
    """
    if listed := list(_unequal(config, count)):
        raise ConfigurationError(f"the model cannot be split over {count} devices", problems=listed)


def _unequal(config: DecoderConfig, count: int) -> Iterator[str]:
    heads = ("n_heads", "n_kv_heads")[: 1 + (config.n_kv_heads > 1)]
    for name in (*heads, *_inner_sizes(config)):
        if (size := getattr(config, name)) % count:
            yield f"{name} is {size}, which makes no {count} equal parts"
    if config.qk_norm == "full" and count > 1:
        yield "qk_norm is 'full': the norm of queries and keys is over all heads"


def _inner_sizes(config: DecoderConfig) -> Iterator[str]:
    """Yield the options that set the width of the MLPs, of experts and of layers without them."""
    layers = [config.has_experts(index) for index in range(config.n_layers)]
    if any(layers) and config.expert_size is not None:
        yield "expert_size"
    if not all(layers) or config.expert_size is None:
        yield "intermediate_size"
