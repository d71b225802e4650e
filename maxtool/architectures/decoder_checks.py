"""Checks of a decoder's options, each in a table or in a rule of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import TypeAlias

from maxtool.architectures import (
    expert_checks,
    latent_checks,
    rope_checks,
    sparse_gates,
    stream_checks,
    xielu,
)
from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.bucket_checks import bucket_problems
from maxtool.architectures.config import MAX_POSITIONS, other_lengths, out_of_range, unsupported
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.dense_layers import dense_problems
from maxtool.architectures.pooling import POOLINGS
from maxtool.architectures.score_options import score_problems
from maxtool.errors import ConfigurationError

Rule: TypeAlias = Callable[[DecoderConfig], Iterator[str]]

# Numbers above 0 and finite, or of at least 0; None, where an option may be that, is fine.
POSITIVE = (
    "vocab_size hidden_size n_layers context_length"
    " rotary_dim rope_theta rope_factor rope_original_context rope_low_freq_factor"
    " rope_high_freq_factor rope_beta_fast rope_beta_slow rope_attention_factor rope_local_theta"
    " rope_long_attention_factor"
    " sliding_window attention_scale attention_softcap logits_softcap embed_scale residual_scale"
    " logits_scale qkv_clip temperature temperature_context n_experts n_experts_used expert_size"
    " expert_groups expert_groups_used expert_scale swiglu_limit swiglu_alpha"
    " shared_expert_size expert_latent_size conv_taps state_heads state_key_heads state_key_dim"
    " state_value_dim source_positions embed_size expert_group_best latent_size query_latent_size"
    " relative_buckets relative_distance plain_dim value_dim attention_in_scale key_scale"
    " value_scale"
    " attention_out_scale mixer_in_scale mixer_out_scale max_length step_rank local_head_dim"
    " local_kv_heads router_scale layer_embed_size layer_embed_rows gate_rank streams laurel_rank"
    " router_softcap rotary_local_dim index_topk index_heads index_dim"
    " topk_norm_order"
)
# Sizes of attention, which are needed where a layer has it.
ATTENTION = ("n_heads", "n_kv_heads", "head_dim")
NOT_NEGATIVE = (
    *("norm_eps", "position_offset", "position_padding", "rope_mscale", "rope_mscale_all_dim"),
    *(
        "expert_sum_eps",
        "expert_jitter",
        "latent_eps",
        "scan_eps",
        "intermediate_size",
        "temperature_offset",
    ),
    *("kv_shared_layers", "active_stream", *ATTENTION),
)

# Each layer costs time when a model is only planned.
MAXIMA = {"context_length": MAX_POSITIONS, "n_layers": 10_000}

SIDE_BY_SIDE = ("parallel", "parallel_shared")
CHOICES: dict[str, tuple[str, ...]] = {
    "norm": ("rms", "layer"),
    "block": (*("pre", "normed", "post", "after", "sandwich"), *SIDE_BY_SIDE, "single"),
    "qk_norm": ("none", "head", "each_head", "plain", "full"),
    "qk_norm_type": ("rms", "layer"),
    "attention_gate_act": ("sigmoid", "softplus"),
    "mlp": ("gated", "plain"),
    "expert_scores": ("softmax", "sigmoid", "sigmoid_of_chosen", "sparsemixer"),
    "hidden_act": (*ACTIVATIONS, xielu.NAME),
    "state_act": (*ACTIVATIONS,),
    "mixer": ("convolution", "delta", "mamba", "selective"),
    "state_norm": ("gated", "before", "none"),
    "state_decay": ("head", "channel"),
    "state_gate": ("silu", "sigmoid"),
    "scan_norm": ("none", "plain", "rms"),
    "position": ("rope", "learned", "sinusoidal", "alibi", "relative", "none"),
    "rope_scaling": ("none", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional"),
    "pooling": (*POOLINGS,),
    "scored_by": ("tokens", "labels"),
    "scores": ("softmax", "sigmoid", "none"),
}

# An option, and the one that must be there for it to mean anything.
MEANINGLESS_WITHOUT = {
    "rope_local_theta": "sliding_window",
    "temperature": "temperature_context",
    "temperature_context": "temperature",
    "n_experts": "n_experts_used",
    "n_experts_used": "n_experts",
    "expert_size": "n_experts",
    "expert_layers": "n_experts",
    "shared_expert_size": "n_experts",
    "expert_latent_size": "n_experts",
    "swiglu_limit": "swiglu_alpha",
    "swiglu_alpha": "swiglu_limit",
    "query_latent_size": "latent_size",
    "plain_dim": "latent_size",
    "latent_eps": "latent_size",
    "index_topk": "index_heads",
    "index_heads": "index_dim",
    "index_dim": "index_topk",
    "index_layers": "index_topk",
    "local_head_dim": "rope_local_theta",
    "local_kv_heads": "sliding_window",
    "rotary_local_dim": "rope_local_theta",
    "router_softcap": "n_experts",
}

# The options that each kind of layer needs that has something else than attention.
STATES = ("state_heads", "state_key_heads", "state_key_dim", "state_value_dim")
MIXERS = {"convolution": ("conv_taps",), "delta": ("conv_taps", *STATES)}
MIXERS["mamba"] = MIXERS["delta"]
MIXERS["selective"] = ("conv_taps", "state_key_dim", "state_value_dim", "step_rank")

# The option that says the type of a norm, by the prefix of its options.
NORM_TYPES = {"": "norm", "qk_": "qk_norm_type"}

PER_LAYER = (
    *("rope_layers", "sliding_layers", "expert_layers", "attention_layers", "mlp_layers"),
    *("value_layers", "layer_widths", "layer_heads", "gate_sparsity", "index_layers"),
    "sink_layers",
)
# The forms of block that attend to a source, too.
SOURCED = ("pre", "after")
# How many multipliers there are of the parts of a state space, and of an MLP.
MULTIPLIERS = {"state_scales": 5, "mlp_scales": 2}


def problems(config: DecoderConfig) -> list[str]:
    """Return the problems with the values, one line each."""
    return [line for rule in RULES for line in rule(config)]


def _out_of_range(config: DecoderConfig) -> Iterator[str]:
    yield from out_of_range(config, POSITIVE.split(), NOT_NEGATIVE)
    for name, most in MAXIMA.items():
        if getattr(config, name) > most:
            yield f"{name} is {getattr(config, name)}, above {most}"


def _needs(config: DecoderConfig) -> Iterator[str]:
    for name, need in MEANINGLESS_WITHOUT.items():
        if getattr(config, name) is not None and getattr(config, need) is None:
            yield f"{name} {getattr(config, name)} needs {need}"


def _lengths(config: DecoderConfig) -> Iterator[str]:
    yield from other_lengths(config, dict.fromkeys(PER_LAYER, config.n_layers) | MULTIPLIERS)


def _parts(config: DecoderConfig) -> Iterator[str]:
    """Refuse layers that would have no part, or parts that have no size."""
    if not _has_flags(config):
        return
    layers = range(config.n_layers)
    if config.block == "single" and config.mlp_layers is None:
        yield "block 'single' needs mlp_layers, in which not every layer is an MLP"
    if config.block != "single" and config.mlp_layers is not None:
        yield f"mlp_layers with block {config.block!r}: they go with 'single' alone"
    for layer in layers:
        if config.is_mlp(layer) and config.has_attention(layer):
            yield f"layer {layer} is both in attention_layers and in mlp_layers"
            break
    attends = config.position == "rope" or any(map(config.has_attention, layers))
    needed = (*(ATTENTION if attends else ()), "intermediate_size")
    for name in needed if any(map(config.has_mlp, layers)) else needed[:-1]:
        if getattr(config, name) == 0:
            yield f"{name} is 0"


def _has_flags(config: DecoderConfig) -> bool:
    """Return whether there is a flag for each layer where there are any, and no end of layers."""
    if config.n_layers > MAXIMA["n_layers"]:
        return False
    listed = (config.attention_layers, config.mlp_layers)
    return all(len(flags) == config.n_layers for flags in listed if flags is not None)


def _scales(config: DecoderConfig) -> Iterator[str]:
    for name in MULTIPLIERS:
        if any(not 0 < scale < inf for scale in getattr(config, name) or ()):
            yield f"{name} has a multiplier that is not above 0 and finite"
    if config.mlp_scales is not None and (config.mlp != "gated" or config.n_experts is not None):
        yield "mlp_scales are for gated MLPs alone, and not for experts"
    if config.state_scales is not None and config.mixer != "mamba":
        yield f"state_scales with mixer {config.mixer!r}: they are for state spaces alone"
    if config.state_act is not None and config.mixer not in ("delta", "mamba"):
        yield f"state_act {config.state_act!r} with mixer {config.mixer!r}, which has no states"
    if config.state_norm != "gated" and config.mixer != "mamba":
        yield f"state_norm {config.state_norm!r} is for state spaces alone"


def _heads(config: DecoderConfig) -> Iterator[str]:
    own = config.layer_heads
    for heads in (config.n_heads,) if own is None else sorted({*own}):
        of = "n_heads" if own is None else "layer_heads:"
        for name in ("n_kv_heads", "local_kv_heads"):
            count = getattr(config, name)
            if count is not None and count > 0 and heads % count:
                yield f"{of} {heads} is not a multiple of {name} {count}"
    if own is not None and any(heads <= 0 for heads in own):
        yield "layer_heads has a number that is not above 0"


def _widths(config: DecoderConfig) -> Iterator[str]:
    if any(width <= 0 for width in config.layer_widths or ()):
        yield "layer_widths has a width that is not above 0"
    in_place = config.n_experts is not None and not config.experts_beside
    if config.layer_widths is not None and in_place:
        yield "layer_widths with experts in the place of MLPs, which are all as wide"


def _local(config: DecoderConfig) -> Iterator[str]:
    dim, turned = config.local_head_dim, config.rotary_local_dim
    if dim is not None and config.rotary_dim is not None and turned is None:
        yield "local_head_dim with rotary_dim, which is of all layers"
    if dim is not None and config.position == "rope" and turned is None and dim % 2:
        yield f"local_head_dim {dim} is odd"
    if turned is not None and turned % 2:
        yield f"rotary_local_dim {turned} is odd"
    if turned is not None and turned > (dim or config.head_dim):
        yield f"rotary_local_dim {turned} is more than a head has, {dim or config.head_dim}"


# What heads of values of another width than those of keys cannot have beside, if not latents.
OF_ONE_WIDTH = ("value_layers", "local_head_dim")


def _values(config: DecoderConfig) -> Iterator[str]:
    for name in OF_ONE_WIDTH:
        if config.value_dim is not None and getattr(config, name) is not None:
            yield f"value_dim {config.value_dim} with {name}"
    if config.sink_layers is not None and not config.attention_sinks:
        yield "sink_layers without attention_sinks"


def _dense(config: DecoderConfig) -> Iterator[str]:
    yield from dense_problems(config)
    if config.dense_features is not None and not config.makes_vectors:
        yield "dense_features needs pooling"


# Blocks of another kind than two parts, one after the other, beside what bypasses both.
APART = ("single", "after", "normed")
# Options by which a layer of another kind than two parts, one after the other, could not be built.
OF_TWO_PARTS = (
    *("kv_shared_layers", "experts_beside", "layer_embed_size", "layer_scale"),
    "index_layers",
)
# What layers that share keys and values cannot have beside, by the values that are fine.
UNSHARED: dict[str, object] = {"latent_size": None, "attention_layers": None, "mlp_layers": None}
UNSHARED |= {"mixer_beside": False, "position": "rope"}


def _shared_keys(config: DecoderConfig) -> Iterator[str]:
    """Refuse layers without keys where there are none that they could attend to."""
    count, layers = config.kv_shared_layers, config.n_layers
    if count <= 0:
        return
    for name, fine in UNSHARED.items():
        if getattr(config, name) != fine:
            yield f"kv_shared_layers {count} with {name} {getattr(config, name)!r}"
    flags = config.sliding_layers
    if count >= layers or (flags is not None and len(flags) != layers):
        yield f"kv_shared_layers {count} of {layers} layers: the first needs keys of its own"
    elif any(config.kv_source(layer) is None for layer in range(layers - count, layers)):
        yield f"kv_shared_layers {count}: no layer before them is of the same kind as one of them"


def _two_parts(config: DecoderConfig) -> Iterator[str]:
    for name in OF_TWO_PARTS:
        if getattr(config, name) and config.block in APART:
            yield f"{name} with block {config.block!r}"
    if config.experts_beside and config.block in SIDE_BY_SIDE:
        yield f"experts_beside with block {config.block!r}"
    if config.value_layers is not None and config.latent_size is not None:
        yield "value_layers with latents, of which values are made"


def _norms_and_windows(config: DecoderConfig) -> Iterator[str]:
    for prefix in ("", "qk_"):
        if getattr(config, f"{prefix}norm_bias") and getattr(config, NORM_TYPES[prefix]) == "rms":
            yield f"{prefix}norm_bias with rms norms, which have none"
    if config.norm_bias and config.plain_norms:
        yield "norm_bias with norms that have no weights"
    if config.qk_norm_after_rope and config.qk_norm == "full":
        yield "qk_norm_after_rope with qk_norm 'full', which is not of heads"
    if config.qk_norm == "plain" and config.qk_norm_bias:
        yield "qk_norm_bias with qk_norm 'plain', which has no weights"
    if config.sliding_window is None and any(config.sliding_layers or ()):
        yield "sliding_layers without a sliding_window"
    if config.sliding_window is None and config.chunked_window:
        yield "chunked_window without a sliding_window"


def _mixers(config: DecoderConfig) -> Iterator[str]:
    has_others = _has_flags(config) and config.recurrent_layers
    missing = [name for name in MIXERS.get(config.mixer, ()) if getattr(config, name) is None]
    if has_others and missing:
        yield f"mixer {config.mixer!r} needs {', '.join(missing)}"
    if config.conv_taps == 1:
        yield "conv_taps is 1: a convolution over time looks at two tokens at least"
    heads, key_heads = config.state_heads, config.state_key_heads
    if heads and key_heads and heads > 0 < key_heads and heads % key_heads:
        yield f"state_heads {heads} is not a multiple of state_key_heads {key_heads}"


# Options of some mixers alone: what asks for nothing, and of which.
OF_MIXERS: dict[str, tuple[object, tuple[str, ...]]] = {
    "scan_norm": ("none", ("selective",)),
    "step_rank": (None, ("selective", "delta")),
    "gate_rank": (None, ("delta",)),
    "state_decay": ("head", ("delta",)),
    "state_gate": ("silu", ("delta",)),
}


def _of_mixers(config: DecoderConfig) -> Iterator[str]:
    for name, (nothing, mixers) in OF_MIXERS.items():
        if (asked := getattr(config, name)) != nothing and config.mixer not in mixers:
            words = " and ".join(map(repr, mixers))
            yield f"{name} {asked!r} with mixer {config.mixer!r}: it is for {words} alone"


def _scans(config: DecoderConfig) -> Iterator[str]:
    if config.scan_eps is not None and config.scan_norm == "none":
        yield f"scan_eps {config.scan_eps} needs scan_norm"


def _biased(config: DecoderConfig) -> Iterator[str]:
    """Refuse what is not the same for scores that are all larger by as much."""
    for name in ("attention_softcap", "attention_sinks"):
        if config.position == "alibi" and getattr(config, name):
            yield f"{name} with linear biases of positions"


def _bidirectional(config: DecoderConfig) -> Iterator[str]:
    """Refuse what has no meaning, or several, where tokens see those behind them."""
    if not config.bidirectional:
        return
    for name in ("attention_softcap", "attention_sinks", "latent_size", "source_positions"):
        if getattr(config, name):
            yield f"{name} with attention in both directions"
    if config.position == "alibi":
        yield "linear biases of positions with attention in both directions"
    if _has_flags(config) and config.recurrent_layers:
        yield f"mixer {config.mixer!r} with attention in both directions, which it has not"
    windows = config.sliding_window is not None and config.sliding_layers is None
    if not config.centred_windows and (windows or any(config.sliding_layers or ())):
        yield "windows with attention in both directions, of which nothing says how far they reach"


def _scores(config: DecoderConfig) -> Iterator[str]:
    yield from score_problems(config)
    if config.scored_by == "tokens" and config.lm_head_bias:
        yield "scored_by 'tokens' with lm_head_bias, which scores do not have"
    if config.scored_by is not None and config.dense_features:
        yield f"scored_by {config.scored_by!r} with layers behind the pooling"


def _source(config: DecoderConfig) -> Iterator[str]:
    if config.source_positions is not None and config.block not in SOURCED:
        known = " or ".join(map(repr, SOURCED))
        yield f"source_positions with block {config.block!r}: an encoder goes with {known} alone"
    if config.source_varies and config.source_positions is None:
        yield "source_varies needs source_positions"


def _relative(config: DecoderConfig) -> Iterator[str]:
    """Refuse buckets that are too few, and what biases of scores do not go with."""
    if config.position != "relative":
        return
    count, farthest = config.relative_buckets, config.relative_distance
    if count is None or farthest is None:
        yield "position 'relative' needs relative_buckets and relative_distance"
    else:
        yield from bucket_problems(count, farthest)
    for name in ("attention_softcap", "attention_sinks", "sliding_window"):
        if getattr(config, name):
            yield f"{name} with relative positions"


RULES: tuple[Rule, ...] = (
    _out_of_range,
    partial(unsupported, choices=CHOICES),
    _needs,
    _lengths,
    _parts,
    _scales,
    _heads,
    _widths,
    _local,
    _values,
    _shared_keys,
    _two_parts,
    *rope_checks.RULES,
    _norms_and_windows,
    _mixers,
    _of_mixers,
    _scans,
    _biased,
    _bidirectional,
    _dense,
    _scores,
    _source,
    _relative,
    *expert_checks.RULES,
    *latent_checks.RULES,
    *stream_checks.RULES,
    sparse_gates.check,
    xielu.check,
)


# Values of options with which heads are not parts of a layer, and why.
UNSPLIT: tuple[tuple[str, object, str], ...] = (
    ("position", "alibi", "each head has its own slope"),
    ("position", "relative", "each head has its own biases"),
    ("qk_norm", "full", "the norm of queries and keys is over all heads"),
    ("qk_norm", "each_head", "each head has its own norm"),
    ("attention_sinks", True, "each head has its own sink"),
    ("expert_bias", True, "biases of experts would be added on every device"),
    ("sub_norms", True, "a norm before the output projection is over all heads"),
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
    sizes = [(name, getattr(config, name)) for name in (*heads, *_inner_sizes(config))]
    own = config.local_kv_heads or 1
    sizes += [("local_kv_heads", own)] if own > 1 else []
    sizes += [("a number of layer_heads", heads) for heads in sorted({*(config.layer_heads or ())})]
    sizes += [
        ("a width of layer_widths", width) for width in sorted({*(config.layer_widths or ())})
    ]
    for name, size in sizes:
        if size % count:
            yield f"{name} is {size}, which makes no {count} equal parts"
    if count > 1 and (layers := config.recurrent_layers):
        listed = f"{len(layers)} layers, the first of them {layers[0]}"
        yield f"{listed}, keep a state of fixed size, of which no device can have a part"
    if count > 1 and config.latent_size is not None:
        yield f"latent_size is {config.latent_size}: one latent serves all heads"
    for name, kind, reason in UNSPLIT:
        if getattr(config, name) == kind and count > 1:
            yield f"{name} is {kind!r}: {reason}"
    if count > 1 and any(config.gate_sparsity or ()):
        yield "gate_sparsity is above 0: which gates are zero is decided by all of a layer"


def _inner_sizes(config: DecoderConfig) -> Iterator[str]:
    """Yield the options that set the width of the MLPs, of experts and of layers without them."""
    layers = [config.has_experts(index) for index in range(config.n_layers)]
    if any(layers) and config.expert_size is not None:
        yield "expert_size"
    if not all(layers) or config.expert_size is None or config.experts_beside:
        yield "intermediate_size"
    if any(layers) and config.shared_expert_size is not None:
        yield "shared_expert_size"
