"""Random configurations of families with vectors for each layer, and layers without own keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_options import (
    FACTORS,
    FLAGS,
    LONGEST,
    THETAS,
    WINDOW,
    Config,
    Draw,
    kinds,
    usual,
    without,
)

WIDTHS = st.integers(1, 7)
BOUNDS = st.none() | st.floats(0.5, 30.0)
SHARES = st.sampled_from([1.0, 0.75, 0.5, 0.25, 0.3])


def _kinds(draw: Draw, layers: int, shared: int) -> list[str]:
    """Kinds of layers, the last without a window, and before shared ones all that these are."""
    listed = [*kinds(draw, layers)[:-1], "full_attention"]
    first = layers - shared
    if shared:
        listed[first - 1] = "full_attention"
    if "sliding_attention" in listed[first:] and "sliding_attention" not in listed[:first]:
        listed[first:] = ["full_attention"] * shared
    return listed


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
        "layer_types": _kinds(draw, layers, shared),
        "vocab_size_per_layer_input": config["vocab_size"],
        "global_head_dim": draw(st.integers(1, 8)) * 2,
        "num_global_key_value_heads": draw(st.sampled_from([1, kv_heads, 1, None])),
    }
    if config["enable_moe_block"]:
        count = draw(st.integers(2, 5))
        config |= {"num_experts": count, "top_k_experts": draw(st.integers(1, count))}
        config |= {"moe_intermediate_size": draw(st.integers(3, 19))}
    whole = {"rope_type": draw(st.sampled_from(["proportional", "default", "linear"]))}
    if whole["rope_type"] != "default":
        whole |= {"factor": draw(FACTORS)}
    if whole["rope_type"] == "proportional":
        whole |= {"partial_rotary_factor": draw(SHARES)}
    tables = {
        "full_attention": whole | {"rope_theta": draw(THETAS)},
        "sliding_attention": {"rope_type": "default", "rope_theta": draw(THETAS)},
    }
    return config | {"rope_parameters": tables}


def sayable_shapes(config: Config) -> Config:
    """A configuration of these families, changed so that llama.cpp's converter says all of it.

    It writes lists even where all layers are alike, and attends to the last two keys by place.
    """
    layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    listed = [*config["layer_types"]]
    if 0 < shared < layers - 1 and "sliding_attention" in listed[layers - shared :]:
        listed[layers - shared - 2] = "sliding_attention"
    elif "sliding_attention" in listed[layers - shared :]:
        listed[layers - shared :] = ["full_attention"] * shared
    config = config | {"layer_types": listed}
    whole = config["rope_parameters"]["full_attention"]
    whole = {key: each for key, each in whole.items() if key != "factor"}
    whole |= {"rope_type": "proportional"}
    whole |= {"partial_rotary_factor": whole.get("partial_rotary_factor", 0.5)}
    tables = config["rope_parameters"] | {"full_attention": whole}
    # A number for layers without a window counts where keys are values alone.
    is_other = config["num_global_key_value_heads"] != config["num_key_value_heads"]
    if not config["attention_k_eq_v"] or not is_other:
        config["num_global_key_value_heads"] = None
    doubled = config["use_double_wide_mlp"] and shared > 0
    return config | {"rope_parameters": tables, "use_double_wide_mlp": doubled}


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


LAYER_INPUTS: Mapping[str, Callable[[Draw], Config]] = {"gemma4_text": _gemma4}
# Models that are more than a language model, which alone is read.
WHOLE: Mapping[str, Callable[[Draw], Config]] = {"gemma4": _gemma4_whole}
LAYER_INPUTS_GRANTED: Mapping[str, Config] = {
    "gemma4_text": {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
    }
}
