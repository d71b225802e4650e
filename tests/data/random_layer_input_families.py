"""Random configurations of families with vectors for each layer, and layers without own keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_options import (
    FLAGS,
    LONGEST,
    WINDOW,
    Config,
    Draw,
    kinds,
    rotated_by_kind,
    two_bases,
    usual,
    without,
)

WIDTHS = st.integers(1, 7)
BOUNDS = st.none() | st.floats(0.5, 30.0)


def _kinds(draw: Draw, layers: int, shared: int) -> list[str]:
    """Kinds of layers, and before shared ones all that these are."""
    listed, first = kinds(draw, layers), layers - shared
    if shared:
        listed[first - 1] = "full_attention"
    if "sliding_attention" in listed[first:] and "sliding_attention" not in listed[:first]:
        listed[first:] = ["full_attention"] * shared
    return listed


def _kinds_but_of_last(draw: Draw, layers: int, shared: int) -> list[str]:
    """The same, the last without a window."""
    return [*_kinds(draw, layers, shared)[:-1], "full_attention"]


def _gemma4(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        sliding_window=WINDOW,
        final_logit_softcapping=BOUNDS,
        use_bidirectional_attention=st.sampled_from([None, "vision"]),
        hidden_size_per_layer_input=st.just(0) | WIDTHS,
        attention_k_eq_v=FLAGS,
        use_double_wide_mlp=FLAGS,
        enable_moe_block=FLAGS,
        num_hidden_layers=st.integers(2, 5),
    )
    layers, kv_heads = config["num_hidden_layers"], config["num_key_value_heads"]
    # Transformers fails where layers share keys, and there are no vectors for them.
    shared = draw(st.integers(0, layers - 1)) if config["hidden_size_per_layer_input"] else 0
    config |= {
        "hidden_activation": config.pop("hidden_act"),
        "max_position_embeddings": max(config["max_position_embeddings"], LONGEST),
        "num_kv_shared_layers": shared,
        "layer_types": _kinds_but_of_last(draw, layers, shared),
        "vocab_size_per_layer_input": config["vocab_size"],
        "global_head_dim": draw(st.integers(1, 8)) * 2,
        "num_global_key_value_heads": draw(st.sampled_from([1, kv_heads, 1, None])),
    }
    if config["enable_moe_block"]:
        count = draw(st.integers(2, 5))
        config |= {"num_experts": count, "top_k_experts": draw(st.integers(1, count))}
        config |= {"moe_intermediate_size": draw(st.integers(3, 19))}
    return config | {"rope_parameters": rotated_by_kind(draw)}


# What Gemma 4 has, and Gemma 4 Unified has not.
OF_LAYERS_AND_EXPERTS = ("hidden_size_per_layer_input", "vocab_size_per_layer_input")
OF_LAYERS_AND_EXPERTS += ("enable_moe_block", "num_experts", "top_k_experts")
OF_LAYERS_AND_EXPERTS += ("moe_intermediate_size",)


def _gemma4_unified(draw: Draw) -> Config:
    config = without(_gemma4(draw), *OF_LAYERS_AND_EXPERTS)
    layers = config["num_hidden_layers"]
    shared = draw(st.integers(0, layers - 1))
    kinds_of = _kinds_but_of_last(draw, layers, shared)
    return config | {"num_kv_shared_layers": shared, "layer_types": kinds_of}


# Some gates may be zero, and all but few of them.
SPARSITIES = st.sampled_from([0.0, 0.95, 0.5, 0.3, 0.05, 0.995])


def _gemma3n(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        sliding_window=WINDOW,
        final_logit_softcapping=st.floats(0.5, 30.0),
        hidden_size_per_layer_input=WIDTHS,
        num_hidden_layers=st.integers(2, 5),
        altup_num_inputs=st.integers(1, 5),
        altup_correct_scale=FLAGS,
        laurel_rank=WIDTHS,
    )
    layers = config["num_hidden_layers"]
    shared = draw(st.integers(0, layers - 1))
    each = st.lists(st.integers(3, 37), min_size=layers, max_size=layers)
    sparse = st.lists(SPARSITIES, min_size=layers, max_size=layers)
    config |= {
        "hidden_activation": config.pop("hidden_act"),
        "num_kv_shared_layers": shared,
        "layer_types": _kinds(draw, layers, shared),
        "intermediate_size": draw(st.just(config["intermediate_size"]) | each),
        "activation_sparsity_pattern": draw(st.none() | sparse),
        "altup_active_idx": draw(st.integers(0, config["altup_num_inputs"] - 1)),
        "vocab_size_per_layer_input": draw(st.integers(3, config["vocab_size"])),
    }
    return two_bases(draw, config)


def _by_place(config: Config) -> Config:
    """A configuration whose shared layers attend to those that llama.cpp takes by their place."""
    layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    listed = [*config["layer_types"]]
    if 0 < shared < layers - 1 and "sliding_attention" in listed[layers - shared :]:
        listed[layers - shared - 2] = "sliding_attention"
    elif "sliding_attention" in listed[layers - shared :]:
        listed[layers - shared :] = ["full_attention"] * shared
    return config | {"layer_types": listed}


def _sayable_streams(config: Config) -> Config:
    """A configuration of Gemma 3n, changed so that llama.cpp's converter says all of it.

    Where tokens have the vectors of another one, it gives them zeros.
    """
    return _by_place(config) | {"vocab_size_per_layer_input": config["vocab_size"]}


def _sayable_shapes(config: Config) -> Config:
    """A configuration of Gemma 4, changed so that llama.cpp's converter says all of it.

    It writes lists even where all layers are alike, and attends to the last two keys by place.
    """
    config = _by_place(config)
    whole = config["rope_parameters"]["full_attention"]
    whole = {key: each for key, each in whole.items() if key != "factor"}
    whole |= {"rope_type": "proportional"}
    whole |= {"partial_rotary_factor": whole.get("partial_rotary_factor", 0.5)}
    tables = config["rope_parameters"] | {"full_attention": whole}
    # A number for layers without a window counts where keys are values alone.
    is_other = config["num_global_key_value_heads"] != config["num_key_value_heads"]
    if not config["attention_k_eq_v"] or not is_other:
        config["num_global_key_value_heads"] = None
    doubled = config["use_double_wide_mlp"] and config["num_kv_shared_layers"] > 0
    return config | {"rope_parameters": tables, "use_double_wide_mlp": doubled}


def own_tokens(config: Config) -> int:
    """How many tokens have vectors of their own for each layer, or all; GGUF has zeros for more."""
    return int(config.get("vocab_size_per_layer_input", config["vocab_size"]))


def published_shapes(config: Config) -> Config:
    """The same configuration in the keys of checkpoints that were published."""
    whole = next(iter(config["per_layer_config"].values()), {})
    heads = {
        "global_head_dim": whole.get("head_dim", config["head_dim"]),
        "num_global_key_value_heads": whole.get("num_key_value_heads"),
    }
    return without(config, "per_layer_config") | heads


SEEN = {"image_token_id": 0, "video_token_id": 0, "audio_token_id": 0, "boi_token_id": 1}
VISION = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "head_dim": 8,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "position_embedding_size": 8,
    "patch_size": 4,
    "model_type": "gemma4_vision",
}


def _gemma4_whole(draw: Draw) -> Config:
    """The language model inside one that sees."""
    text = _gemma4(draw) | {"model_type": "gemma4_text", "use_bidirectional_attention": None}
    tied = text["tie_word_embeddings"]
    return {"text_config": text, "vision_config": VISION, "tie_word_embeddings": tied, **SEEN}


SEEN_UNIFIED = {
    "patch_size": 2,
    "pooling_kernel_size": 2,
    "mm_embed_dim": 8,
    "mm_posemb_size": 8,
    "output_proj_dims": 8,
    "model_type": "gemma4_unified_vision",
}
HEARD_UNIFIED = {"audio_embed_dim": 8, "model_type": "gemma4_unified_audio"}


def _gemma4_unified_whole(draw: Draw) -> Config:
    """The language model inside one that sees and hears without towers."""
    text = _gemma4_unified(draw) | {"model_type": "gemma4_unified_text"}
    parts = {"text_config": text, "vision_config": SEEN_UNIFIED, "audio_config": HEARD_UNIFIED}
    return {**parts, "tie_word_embeddings": text["tie_word_embeddings"], **SEEN}


SEEN_3N = {"hidden_size": 8, "vocab_size": 2, "num_classes": 2, "label_names": ["a", "b"]}
HEARD_3N = {
    "hidden_size": 8,
    "vocab_size": 2,
    "input_feat_size": 8,
    "conf_num_hidden_layers": 1,
    "conf_num_attention_heads": 1,
    "sscp_conv_channel_size": [2, 2],
}


def _gemma3n_whole(draw: Draw) -> Config:
    """The language model inside one that sees and hears, whose tokens are behind those of texts."""
    text = _gemma3n(draw) | {"model_type": "gemma3n_text"}
    first = text["vocab_size"]
    vision = SEEN_3N | {"model_type": "gemma3n_vision", "vocab_offset": first}
    audio = HEARD_3N | {"model_type": "gemma3n_audio", "vocab_offset": first + 2}
    tokens = {"boi_token_id": 1, "eoi_token_id": first, "image_token_id": first + 1}
    tokens |= {"boa_token_id": 1, "eoa_token_id": first + 2, "audio_token_id": first + 3}
    parts = {"text_config": text, "vision_config": vision, "audio_config": audio}
    return {**parts, "tie_word_embeddings": text["tie_word_embeddings"], **tokens}


LAYER_INPUTS: Mapping[str, Callable[[Draw], Config]] = {
    "gemma3n_text": _gemma3n,
    "gemma4_text": _gemma4,
    "gemma4_unified_text": _gemma4_unified,
}
# Models that are more than a language model, which alone is read.
WHOLE: Mapping[str, Callable[[Draw], Config]] = {
    "gemma3n": _gemma3n_whole,
    "gemma4": _gemma4_whole,
    "gemma4_unified": _gemma4_unified_whole,
}
# How configurations are changed so that llama.cpp's converter says all of them.
SAYABLE: Mapping[str, Callable[[Config], Config]] = {
    "gemma3n_text": _sayable_streams,
    "gemma4_text": _sayable_shapes,
    "gemma4_unified_text": _sayable_shapes,
}
GELU = {"hidden_activation": "gelu_pytorch_tanh"}
LAYER_INPUTS_GRANTED: Mapping[str, Config] = {
    "gemma3n_text": {
        **GELU,
        "attention_bias": False,
        "altup_num_inputs": 4,
        "altup_active_idx": 0,
        "altup_correct_scale": True,
    },
    "gemma4_text": GELU | {"attention_bias": False},
    "gemma4_unified_text": GELU | {"attention_bias": False},
}
