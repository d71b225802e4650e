"""Random configurations of models that see images, of which the language model is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_expert_families import experts, grouped
from tests.data.random_options import (
    FLAGS,
    WINDOW,
    Config,
    Draw,
    partial,
    quotient,
    usual,
    without,
)

TOKENS = {"image_token_id": 3, "video_token_id": 4}
QWEN_TOKENS = TOKENS | {"vision_start_token_id": 5, "vision_end_token_id": 6}
PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "head_dim": 8,
    "image_size": 28,
    "patch_size": 14,
}
CLIP = {key: value for key, value in PIXTRAL.items() if key != "head_dim"}
CLIP |= {"model_type": "clip_vision_model", "projection_dim": 8}
QWEN = {"depth": 1, "hidden_size": 16, "intermediate_size": 8, "num_heads": 2, "patch_size": 2}
QWEN |= {"temporal_patch_size": 1, "spatial_merge_size": 1}
QWEN_2 = QWEN | {"embed_dim": 16}
QWEN_3 = QWEN | {"num_position_embeddings": 4, "deepstack_visual_indexes": [0, 0, 0]}


def _rotated(config: Config, sections: Config) -> Config:
    return config | {"rope_parameters": config["rope_parameters"] | sections}


def _parts(text: Config, vision: Config, **outer: object) -> Config:
    """Both parts; the outer table says whether the head is tied, as transformers writes it."""
    tied = text.pop("tie_word_embeddings")
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": tied, **outer}


def _qwen2_vl(draw: Draw, kind: str) -> Config:
    """Heads of 128 elements, which the three positions share."""
    text = usual(draw, explicit=False, use_sliding_window=FLAGS, sliding_window=WINDOW)
    text |= {"max_window_layers": draw(st.integers(0, 4)), "model_type": f"{kind}_text"}
    text = without(text, "head_dim")
    heads = draw(st.integers(1, 2)) * text["num_key_value_heads"]
    text |= {"num_attention_heads": heads, "hidden_size": 128 * heads}
    if text["rope_parameters"]["rope_type"] == "longrope":
        text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4}
    text = _rotated(text, {"mrope_section": [16, 24, 24]})
    return _parts(text, QWEN_2 | {"out_hidden_size": 128 * heads}, **QWEN_TOKENS)


def _first_qwen2_vl(draw: Draw) -> Config:
    return _qwen2_vl(draw, "qwen2_vl") | {"vision_config": QWEN_2}


def _second_qwen2_vl(draw: Draw) -> Config:
    return _qwen2_vl(draw, "qwen2_5_vl")


def _qwen3_vl(draw: Draw) -> Config:
    text = usual(draw, attention_bias=FLAGS) | {"model_type": "qwen3_vl_text"}
    text = _rotated(text, {"mrope_section": [24, 20, 20], "mrope_interleaved": True})
    return _parts(text, QWEN_3 | {"out_hidden_size": text["hidden_size"]}, **QWEN_TOKENS)


def _qwen3_vl_moe(draw: Draw) -> Config:
    whole = _qwen3_vl(draw)
    text = experts(draw, whole["text_config"], "num_experts")
    text |= {"moe_intermediate_size": draw(st.integers(3, 21)), "model_type": "qwen3_vl_moe_text"}
    layers = st.lists(st.integers(0, 3), max_size=2, unique=True)
    text |= {"decoder_sparse_step": draw(st.integers(1, 2)), "mlp_only_layers": draw(layers)}
    return whole | {"text_config": text}


def published_experts(shapes: dict[str, list[int]]) -> dict[str, list[int]]:
    """The shapes of tensors with experts as they are published: a row for each input."""
    return {
        name: [shape[0], shape[2], shape[1]] if ".mlp.experts." in name else shape
        for name, shape in shapes.items()
    }


def are_told_apart(config: Config) -> bool:
    """Return whether matrices of experts show which way they are kept."""
    text = config.get("text_config", config)
    size, width = text.get("moe_intermediate_size", 0), text["hidden_size"]
    return width not in (size, 2 * size)


def _mistral3(draw: Draw) -> Config:
    text = usual(draw, sliding_window=st.one_of(st.none(), WINDOW)) | {"model_type": "mistral"}
    return _parts(text, PIXTRAL, image_token_index=3)


def _llava(draw: Draw) -> Config:
    text = usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS) | {"model_type": "llama"}
    return _parts(text, CLIP, image_token_index=3)


def _sectioned(draw: Draw, text: Config) -> Config:
    """The pairs of a head that are rotated, shared among three positions in any way."""
    size = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    pairs = int(size * text["rope_parameters"].get("partial_rotary_factor", 1.0)) // 2
    first = draw(st.integers(0, pairs))
    second = draw(st.integers(0, pairs - first))
    return _rotated(text, {"mrope_section": [first, second, pairs - first - second]})


def _seen_by_glm(draw: Draw, text: Config, kind: str) -> Config:
    text = _sectioned(draw, partial(draw, text)) | {"model_type": f"{kind}_text"}
    vision = QWEN | {"out_hidden_size": text["hidden_size"], "image_size": 4}
    return _parts(text, vision, **TOKENS)


def _glm4v(draw: Draw) -> Config:
    return _seen_by_glm(draw, quotient(usual(draw, explicit=False)), "glm4v")


def _glm_ocr(draw: Draw) -> Config:
    return _seen_by_glm(draw, usual(draw), "glm_ocr")


def _glm4v_moe(draw: Draw) -> Config:
    return _seen_by_glm(draw, grouped(draw, usual(draw, attention_bias=FLAGS)), "glm4v_moe")


def _paddleocr_vl(draw: Draw) -> Config:
    text = usual(draw, use_bias=FLAGS) | {"model_type": "paddleocr_vl_text"}
    vision = {key: PIXTRAL[key] for key in PIXTRAL if key not in ("model_type", "head_dim")}
    return _parts(_sectioned(draw, text), vision, **QWEN_TOKENS)


IMAGE_TEXT: Mapping[str, Callable[[Draw], Config]] = {
    "glm4v": _glm4v,
    "glm4v_moe": _glm4v_moe,
    "glm_ocr": _glm_ocr,
    "llava": _llava,
    "mistral3": _mistral3,
    "paddleocr_vl": _paddleocr_vl,
    "qwen2_5_vl": _second_qwen2_vl,
    "qwen2_vl": _first_qwen2_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl_moe,
}
"""Families by the kind that config.json names."""
# Those that llama.cpp's converter takes for something else than their language models are.
IMAGE_TEXT_UNCONVERTED = ("glm4v", "glm4v_moe", "glm_ocr", "llava", "mistral3", "paddleocr_vl")
# Published without a table for the language model.
FLAT = ("qwen2_5_vl", "qwen2_vl")
IMAGE_TEXT_GRANTED: Mapping[str, Config] = {
    "qwen2_vl_text": {"hidden_act": "silu"},
    "qwen2_5_vl_text": {"hidden_act": "silu"},
    "qwen3_vl_text": {"hidden_act": "silu", "attention_bias": False},
    "qwen3_vl_moe_text": {"hidden_act": "silu", "attention_bias": False}
    | {"decoder_sparse_step": 1, "mlp_only_layers": []},
}


def published_flat(whole: Config) -> Config:
    """The same configuration without a table for the language model, as published ones are."""
    outer, text = without(whole, "text_config"), dict(whole["text_config"])
    table = without(text.pop("rope_parameters"), "type")
    theta, kind = table.pop("rope_theta"), table.pop("rope_type")
    scaling = {**table, "type": "mrope" if kind == "default" else kind}
    return {**text, **outer, "rope_theta": theta, "rope_scaling": scaling}
