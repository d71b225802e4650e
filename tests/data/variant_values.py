"""To which other values a configuration's keys are set, one at a time.

``VALUES`` has what a type alone does not suggest; every other key of a configuration class gets
``BY_TYPE``'s. A key of any family is tried in all: whoever reads what it should not is found so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Config = dict[str, Any]
ACTIVATIONS = ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python"]
ACTIVATIONS += ["relu", "silu", "swish", "tanh", "quick_gelu", "gelu_10"]

# What a run of transformers is told, and not what the model is.
_LEFT_ALONE = """
architectures auto_map dtype id2label label2id model_type name_or_path _name_or_path
output_attentions output_hidden_states problem_type quantization_config return_dict
text_config torch_dtype torchscript transformers_version vision_config
"""
LEFT_ALONE = frozenset(_LEFT_ALONE.split())

# Keys that no class lists: of transformers 4, of models with code of their own, and of kin.
_FURTHER = """
activation alibi attention_chunk_size attention_multiplier attn_logit_softcapping causal
clip_qkv embedding_multiplier final_logit_softcapping hidden_act hidden_activation
interpolate_factor is_causal layer_norm_epsilon layer_types logit_scale logits_scaling
max_window_layers mup_enabled n_ctx no_rope_layer_interval no_rope_layers norm_eps
norm_epsilon norm_topk_prob num_nextn_predict_layers parallel_attn partial_rotary_factor
position_embedding_type prenorm qk_layernorm qk_norm query_pre_attn_scalar
residual_multiplier rope_local_base_freq rope_interleaved rope_scaling rope_theta rotary_dim
rotary_emb_base rotary_emb_fraction rotary_pct scale_attn_weights scale_embedding
sliding_window sliding_window_pattern use_bidirectional_attention use_parallel_residual
use_qk_norm use_rope use_sliding_window
"""
FURTHER = _FURTHER.split()

ORIGINAL = {"original_max_position_embeddings": 12}
SCALINGS: tuple[Config, ...] = (
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 3.0},
    {"rope_type": "yarn", "factor": 3.0, **ORIGINAL},
    {"rope_type": "llama3", "factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0}
    | ORIGINAL,
    {"rope_type": "proportional", "factor": 3.0},
)
KINDS = ("full_attention", "sliding_attention")


def _layers(config: Config) -> int:
    return int(config.get("num_hidden_layers") or config.get("n_layer") or 2)


def _kinds(config: Config) -> list[Any]:
    count = _layers(config)
    return [[KINDS[(i + first) % 2] for i in range(count)] for first in (0, 1)] + [
        [kind] * count for kind in KINDS
    ]


def _longrope(planes: int) -> Config:
    """Divisors for ``planes`` frequencies."""
    rising = [1.0 + 0.5 * plane for plane in range(planes)]
    return {"rope_type": "longrope", "short_factor": rising, "long_factor": rising[::-1]} | ORIGINAL


def _tables(config: Config) -> list[Any]:
    heads = config.get("num_attention_heads") or 1
    dim = config.get("head_dim") or config.get("hidden_size", 0) // heads
    return [dict(table) for table in SCALINGS] + [_longrope(dim // 2)]


def _sizes(*values: Any) -> Callable[[Config], list[Any]]:
    return lambda _: list(values)


def _flags(config: Config) -> list[Any]:
    count = _layers(config)
    return [[i % 2 for i in range(count)], [0] * count, [1] * count]


SOME = _sizes(0.25, 0.5, 2.0)
WINDOWS = _sizes(3, 9, 4096)
VALUES: Mapping[str, Callable[[Config], list[Any]]] = {
    **dict.fromkeys(("hidden_act", "activation", "hidden_activation"), _sizes(*ACTIVATIONS)),
    "activation_function": _sizes(*ACTIVATIONS),
    **dict.fromkeys(("hidden_size", "n_embd", "dim"), _sizes(56, 60)),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), _sizes(1, 2, 4)),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_head_kv"), _sizes(1, 2, 3)),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_hidden_size", "hidden_dim"), _sizes(20)),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), _sizes(1, 4)),
    **dict.fromkeys(("head_dim", "rotary_dim"), _sizes(4, 6, 8)),
    "vocab_size": _sizes(67),
    "max_position_embeddings": _sizes(80, 256),
    "n_positions": _sizes(80),
    "n_ctx": _sizes(80),
    "original_max_position_embeddings": _sizes(8, 24),
    **dict.fromkeys(
        ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
        _sizes(0.25),
    ),
    "layer_types": _kinds,
    "rope_scaling": _tables,
    "rope_parameters": lambda config: [
        *({**table, "rope_theta": 700.0} for table in _tables(config)),
        {"rope_type": "default"},
    ],
    **dict.fromkeys(("sliding_window", "attention_chunk_size"), WINDOWS),
    **dict.fromkeys(("max_window_layers", "first_k_dense_replace"), _sizes(0, 1, 2, 28)),
    **dict.fromkeys(("sliding_window_pattern", "_sliding_window_pattern"), _sizes(1, 2, 4)),
    "no_rope_layers": _flags,
    "no_rope_layer_interval": _sizes(1, 2, 3),
    **dict.fromkeys(("rope_theta", "rotary_emb_base", "rope_local_base_freq"), _sizes(700.0)),
    **dict.fromkeys(("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"), _sizes(0.5, 1)),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), _sizes(1.5)),
    **dict.fromkeys(("embedding_multiplier", "attention_multiplier"), SOME),
    **dict.fromkeys(("residual_multiplier", "logits_scaling", "logit_scale"), SOME),
    **dict.fromkeys(("query_pre_attn_scalar", "clip_qkv"), _sizes(3)),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), _sizes(3, 6)),
    **dict.fromkeys(("num_experts_per_tok", "decoder_sparse_step"), _sizes(1, 2, 3)),
    "moe_intermediate_size": _sizes(12),
    "mlp_only_layers": _sizes([], [0], [0, 1]),
    "type_vocab_size": _sizes(1, 3),
    "pad_token_id": _sizes(0, 3, 5),
    "num_ln_in_parallel_attn": _sizes(1, 2),
    "position_embedding_type": _sizes("absolute", "relative_key", "alibi"),
    "chunk_size_feed_forward": _sizes(1),
}
# Beside the table of a scaling, or in it.
ROTARY: Mapping[str, Callable[[Config], list[Any]]] = {
    "rope_type": _sizes("default", "linear", "dynamic", "yarn", "llama3", "longrope", "su"),
    "type": _sizes("linear", "yarn"),
    "rope_theta": _sizes(700.0),
    "factor": _sizes(2.0, 5.0),
    "partial_rotary_factor": _sizes(0.5, 1.0),
    "original_max_position_embeddings": _sizes(8, 24),
    "low_freq_factor": _sizes(0.5),
    "high_freq_factor": _sizes(9.0),
    "attention_factor": _sizes(1.7),
    "beta_fast": _sizes(3.0),
    "beta_slow": _sizes(0.1),
    "mscale": _sizes(0.5),
    "mscale_all_dim": _sizes(0.7),
    "truncate": _sizes(False, True),
    "short_factor": lambda _: [],
    "long_factor": lambda _: [],
    "finetuned": _sizes(True),
}
BY_TYPE: Mapping[type, tuple[Any, ...]] = {
    bool: (True, False),
    int: (1, 2),
    float: (0.5, 2.0),
    str: ("other",),
    type(None): (True, 2),
}
TABLES = ("rope_parameters", "rope_scaling")


def values_of(key: str, config: Config, known: Mapping[str, Any]) -> list[Any]:
    """What a key is set to.

    Args:
        key: The key, not dotted.
        config: The configuration it is in.
        known: What the configuration classes of transformers have for it.
    """
    if key in VALUES:
        return VALUES[key](config)
    usual = config.get(key)
    kind = type(known.get(key)) if usual is None else type(usual)
    return list(BY_TYPE.get(kind, ()))


def nested(config: Config) -> Iterator[tuple[str, Any]]:
    """Dotted keys of the tables of rotary settings, and what they are set to.

    A table that is not there yet is tried too, since one key makes it one.
    """
    for name in TABLES:
        table = config.get(name)
        inner = [kind for kind in KINDS if isinstance(table, dict) and kind in table]
        for place in [f"{name}.{kind}" for kind in inner] or [name]:
            for key, values in ROTARY.items():
                yield from ((f"{place}.{key}", value) for value in values(config))
