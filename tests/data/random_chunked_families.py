"""Random configurations of Llama 4 and DBRX, as ``random_families.py`` has those of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_families import SILU
from tests.data.random_options import FLAGS, WINDOW, Config, Draw, common, heads, rope, usual

VISION = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 28,
    "patch_size": 14,
    "vision_output_dim": 8,
    "projector_input_dim": 8,
    "projector_output_dim": 8,
    "model_type": "llama4_vision_model",
}


def _llama4(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        intermediate_size_mlp=st.integers(3, 37),
        num_local_experts=st.integers(2, 5),
        interleave_moe_layer_step=st.integers(1, 3),
        use_qk_norm=FLAGS,
        attention_chunk_size=WINDOW,
        attn_temperature_tuning=FLAGS,
        attn_scale=st.floats(0.1, 2.0),
        floor_scale=st.integers(1, 7),
        no_rope_layer_interval=st.integers(1, 4),
    )
    layers = draw(st.integers(1, 5))
    every = min(config["interleave_moe_layer_step"], layers)
    config |= {"num_hidden_layers": layers, "moe_layers": None, "interleave_moe_layer_step": every}
    config |= {"num_experts_per_tok": draw(st.integers(1, config["num_local_experts"]))}
    flags = st.lists(st.integers(0, 1), min_size=layers, max_size=layers)
    if draw(FLAGS):
        config |= {"no_rope_layers": draw(flags)}
    if draw(FLAGS):
        kinds = ("full_attention", "chunked_attention")
        config |= {"layer_types": [kinds[flag] for flag in draw(flags)]}
    if draw(FLAGS):
        numbers = st.lists(st.integers(0, layers - 1), min_size=1, max_size=layers, unique=True)
        config |= {"moe_layers": sorted(draw(numbers))}
    return config


def _dbrx(draw: Draw) -> Config:
    found = common(draw) | heads(draw, explicit=False)
    scaled = {"max_position_embeddings": found["max_position_embeddings"]}
    scaled |= rope(draw, found["head_dim"] // 2)
    count = draw(st.integers(2, 6))
    attention = {
        "kv_n_heads": found["num_key_value_heads"],
        "clip_qkv": draw(st.floats(0.5, 4.0)),
        "rope_theta": scaled["rope_parameters"]["rope_theta"],
    }
    experts = {
        "ffn_act_fn": {"name": found["hidden_act"]},
        "ffn_hidden_size": found["intermediate_size"],
        "moe_num_experts": count,
        "moe_top_k": draw(st.integers(1, count)),
        "moe_normalize_expert_weights": draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])),
    }
    return scaled | {
        "vocab_size": found["vocab_size"],
        "d_model": found["hidden_size"],
        "n_heads": found["num_attention_heads"],
        "n_layers": found["num_hidden_layers"],
        "attn_config": attention,
        "ffn_config": experts,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _llama4_vision(draw: Draw) -> Config:
    """The language model inside one that sees."""
    tokens = {"image_token_index": 0, "boi_token_index": 1, "eoi_token_index": 2}
    text = _llama4(draw) | {"model_type": "llama4_text", "tie_word_embeddings": False}
    return {"text_config": text, "vision_config": VISION, **tokens}


CHUNKED: Mapping[str, Callable[[Draw], Config]] = {"dbrx": _dbrx, "llama4_text": _llama4}
CHUNKED_VISION: Mapping[str, Callable[[Draw], Config]] = {"llama4": _llama4_vision}
CHUNKED_GRANTED: Mapping[str, Config] = {
    "dbrx": {},
    "llama4_text": SILU
    | {
        "attention_bias": False,
        "attention_chunk_size": 8192,
        "attn_temperature_tuning": True,
        "attn_scale": 0.1,
        "floor_scale": 8192,
        "no_rope_layer_interval": 4,
        "moe_layers": None,
        "use_qk_norm": True,
    },
}
