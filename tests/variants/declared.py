"""Published configurations with something changed, which are read in one way, or refused.

No recording of outputs shows these: defaults of keys that tiny models need, and what
sentence-transformers keeps in files of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.data.seeded import Config
from tests.recipe.test_published_encoders import PUBLISHED as ENCODERS
from tests.variants.rows import DATA


class Declared(NamedTuple):
    """One configuration.

    Attributes:
        base: The published model.
        change: Keys that are set, or left out where this says None.
        fields: Some fields of the recipe; None if it is refused.
        gguf: Keys that are written, in this order, or left out where this says None.
        files: What lies beside ``config.json``.
    """

    base: str
    change: Config
    fields: Config | None
    gguf: Mapping[str, object] = MappingProxyType({})
    files: Mapping[str, object] = MappingProxyType({})


TYPE = "sentence_transformers.models."
PARTS = ("Transformer", "Pooling", "Normalize")
WITH_LAYERS = ("Transformer", "Pooling", "Dense", "Dense", "Normalize")


def _modules(*names: str) -> list[Config]:
    paths = ("", *(f"{index}_{name}" for index, name in enumerate(names[1:], 1)))
    return [
        {"idx": index, "name": str(index), "path": path, "type": f"{TYPE}{name}"}
        for index, (name, path) in enumerate(zip(names, paths, strict=True))
    ]


def _sentences(mode: str, *names: str, **settings: object) -> dict[str, object]:
    return {
        "modules.json": _modules(*names),
        "1_Pooling/config.json": {f"pooling_mode_{mode}": True},
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False, **settings},
    }


def _layers(*widths: int, end: bool = True, **settings: object) -> dict[str, object]:
    """Layers of these widths behind the mean, which only multiply unless settings say more.

    Vectors are of length 1 in the ``end``, or not.
    """
    plain = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    names = WITH_LAYERS[: 2 + len(widths)]
    configs = {
        f"{index}_Dense/config.json": {"out_features": width, **plain, **settings}
        for index, width in enumerate(widths, 2)
    }
    names += ("Normalize",) if end else ()
    return {**_sentences("mean_tokens", *names), **configs}


MEAN = _sentences("mean_tokens", *PARTS)
LAST = _sentences("lasttoken", *PARTS)
READ = {"pooling": "mean", "normalize": True, "max_length": 256}
BGE, QWEN, GEMMA = "bge-small-en-v1.5", "Qwen3-0.6B", "embeddinggemma-300m"
NOMIC = "nomic-embed-text-v1"
NORTH = "North-Mini-Code-1.0"
EURO = "EuroBERT-210m"
LAGUNA = "Laguna-XS.2"
MIMO = "MiMo-V2-Flash"
SWASH = "granite-swash-2b"
MIXER = "Phi-3.5-MoE-instruct"
DEBERTA = "deberta-v2-xlarge"
LABSE = {"dense_features": (384,), "dense_biases": (True,), "dense_activations": ("tanh",)}
TANH = {"bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
PLAIN_TWICE = {"dense_biases": (False, False), "dense_activations": ("identity", "identity")}
# What a layer reads and writes, and what it adds, otherwise than usual.
OTHER_SETTINGS = {
    "module_input_name": "token_embeddings",
    "module_output_name": "projected",
    "use_residual": True,
}
PROMPT = {"config_sentence_transformers.json": {"default_prompt_name": "query", "prompts": {}}}

NEWER_KINDS = ["linear_attention"] * 39 + ["full_attention"]

XGLM = "xglm-1.7B"
# The names that transformers' class has for them besides.
GENERAL = {"num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16}
ITS_OWN = dict.fromkeys(("num_layers", "d_model", "attention_heads"))

# Sizes that no language model of a kind has by itself.
SIZES = {
    "hidden_size": 1536,
    "intermediate_size": 4608,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "vocab_size": 59392,
}
EXPERTS = {
    "n_routed_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1408,
    "n_shared_experts": 1,
}
PADDLE = "PaddleOCR-VL without images"
LFM3 = "LFM3-1.7B"


def _rotating(full: Config, sliding: Config) -> Config:
    """Rotation of LFM3's layers, otherwise than published."""
    usual = {"partial_rotary_factor": 0.5, "rope_theta": 1e6, "rope_type": "proportional"}
    windows = {"rope_theta": 10000.0, "rope_type": "default", **sliding}
    return {"rope_parameters": {"full_attention": usual | full, "sliding_attention": windows}}


NOTHING_OF_PADDLE: Config = {
    **dict.fromkeys(("head_dim", "max_position_embeddings", "num_key_value_heads", "rms_norm_eps")),
    **dict.fromkeys(("rope_theta", "rope_scaling", "tie_word_embeddings", "use_bias")),
    **dict.fromkeys(("compression_ratio", "use_3d_rope", "weight_share_add_bias")),
    **dict.fromkeys(("rope_is_neox_style", "sliding_window")),
}

BLOOM, DBRX = "bloom-560m", "dbrx-instruct"
OF_DBRX = dict.fromkeys(("d_model", "n_heads", "n_layers", "max_seq_len"))

DECLARED: tuple[Declared, ...] = (
    Declared(
        "GLM-OCR",
        {"text_config": {"model_type": "glm_ocr_text", **SIZES}},
        {"context_length": 131072, "n_kv_heads": 8, "head_dim": 96, "rotary_dim": 96}
        | {"norm_eps": 1e-5, "qkv_bias": False},
        {
            "glm4.context_length": 131072,
            "glm4.attention.head_count_kv": 8,
            "glm4.attention.key_length": 96,
            "glm4.attention.value_length": 96,
        },
    ),
    Declared(
        "GLM-OCR",
        {"text_config": {"model_type": "glm_ocr_text", **SIZES, "num_nextn_predict_layers": 0}},
        {"n_layers": 16},
    ),
    Declared(
        "GLM-OCR",
        {
            "text_config": {
                "model_type": "glm_ocr_text",
                "head_dim": None,
                "num_key_value_heads": None,
                **SIZES,
            }
        },
        {"head_dim": 96, "n_kv_heads": 16},
    ),
    Declared(
        "GLM-4.1V-9B-Thinking",
        {"text_config": {"model_type": "glm4v_text", **SIZES}},
        {"context_length": 32768, "n_kv_heads": 2, "head_dim": 96, "rotary_dim": 96}
        | {"norm_eps": 1e-5, "qkv_bias": True},
        {
            "glm4.context_length": 32768,
            "glm4.attention.layer_norm_rms_epsilon": 1e-5,
            "glm4.attention.key_length": 96,
            "glm4.attention.value_length": 96,
            "glm4.rope.dimension_count": 96,
        },
    ),
    Declared(
        "GLM-4.1V-9B-Thinking",
        {"text_config": {"model_type": "glm4v_text", **SIZES, "head_dim": 64}},
        None,
    ),
    Declared(
        "GLM-4.5V",
        {"text_config": {"model_type": "glm4v_moe_text", **SIZES, **EXPERTS}},
        {"context_length": 65536, "qkv_bias": True, "qk_norm": "none", "rotary_dim": 48},
        {"glm4moe.context_length": 65536},
    ),
    Declared(
        "GLM-4.5V",
        {
            "text_config": {
                "model_type": "glm4v_moe_text",
                **SIZES,
                **EXPERTS,
                "video_token_id": 1,
                "video_start_token_id": 2,
                "video_end_token_id": 3,
                "rope_scaling": {"rope_type": "default", "mrope_section": [8, 12, 12]},
            }
        },
        {"qk_norm": "none"},
    ),
    Declared(
        "GLM-4.5V",
        {"text_config": {"model_type": "glm4v_moe_text", **SIZES, **EXPERTS, "use_qk_norm": True}},
        None,
    ),
    Declared(PADDLE, {"weight_share_add_bias": False}, {"head_dim": 128}),
    Declared(PADDLE, {"use_3d_rope": False}, None),
    Declared(
        PADDLE,
        {
            "rope_theta": None,
            "rope_scaling": None,
            "rope_parameters": {"rope_theta": 1e5, "mrope_section": [16, 24, 24]},
        },
        {"rope_theta": 1e5},
    ),
    Declared(
        PADDLE,
        NOTHING_OF_PADDLE,
        {"context_length": 131072, "n_kv_heads": 2, "head_dim": 128, "rope_theta": 500000.0}
        | {"norm_eps": 1e-5, "qkv_bias": False, "o_bias": False, "mlp_bias": False}
        | {"tie_word_embeddings": True},
        {
            "llama.context_length": 131072,
            "llama.attention.head_count_kv": 2,
            "llama.rope.freq_base": 500000.0,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.attention.key_length": 128,
            "llama.attention.value_length": 128,
        },
    ),
    Declared(
        PADDLE,
        {"use_bias": None, "attention_bias": True},
        {"qkv_bias": True, "o_bias": True, "mlp_bias": False},
    ),
    Declared(
        PADDLE,
        {"use_bias": None, "mlp_bias": True},
        {"qkv_bias": False, "o_bias": False, "mlp_bias": True},
    ),
    Declared(
        "PaddleOCR-VL",
        {
            f"{kind}_{end}_token_id": 100000
            for kind in ("image", "video")
            for end in ("start", "end")
        },
        {"head_dim": 128},
    ),
    Declared(PADDLE, {"use_bias": True}, {"qkv_bias": True, "o_bias": True, "mlp_bias": True}),
    Declared(
        LFM3,
        {
            **dict.fromkeys(("num_hidden_layers", "max_position_embeddings", "norm_eps")),
            **dict.fromkeys(("conv_bias", "layer_types", "rope_parameters")),
            **dict.fromkeys(("tie_word_embeddings", "num_key_value_heads")),
        },
        {"n_layers": 24, "context_length": 128000, "norm_eps": 1e-5, "conv_bias": False}
        | {"rope_theta": 1e6, "rope_pairs": 32, "rope_scaling": "proportional"}
        | {"tie_word_embeddings": True, "n_kv_heads": 4},
    ),
    Declared(LFM3, {"norm_eps": None, "rms_norm_eps": 1e-6}, {"norm_eps": 1e-6}),
    Declared(LFM3, {"rope_theta": 5e5}, None),
    *(
        Declared(LFM3, _rotating(full, sliding), fields)
        for full, sliding, fields in (
            ({"rope_theta": 5e5}, {}, {"rope_theta": 5e5, "rope_pairs": 32, "rope_factor": None}),
            ({"factor": 4.0}, {}, {"rope_factor": 4.0, "rope_scaling": "proportional"}),
            ({"partial_rotary_factor": 0.25}, {}, {"rope_pairs": 16}),
            ({"rope_type": "default"}, {}, {"rope_pairs": 64, "rope_scaling": "proportional"}),
            ({"rope_type": "default", "factor": 4.0}, {}, {"rope_factor": None}),
            ({"rope_type": "yarn", "factor": 4.0}, {}, None),
            *(
                ({"rope_type": kind, "factor": 4.0, "partial_rotary_factor": 1.0}, {}, None)
                for kind in ("yarn", "llama3", "dynamic", "longrope", "another")
            ),
            ({}, {"partial_rotary_factor": 1.0}, {"rope_local_theta": 10000.0}),
            ({}, {"partial_rotary_factor": 0.5}, None),
            ({}, {"rope_type": "linear"}, None),
        )
    ),
    Declared(
        DBRX,
        {
            **OF_DBRX,
            "hidden_size": 6144,
            "num_attention_heads": 48,
            "num_hidden_layers": 40,
            "max_position_embeddings": 32768,
        },
        {"hidden_size": 6144, "n_heads": 48, "n_layers": 40, "context_length": 32768},
    ),
    Declared(
        DBRX,
        {**OF_DBRX, "attn_config": {"clip_qkv": 8}, "ffn_config": None},
        {"hidden_size": 2048, "n_heads": 16, "n_layers": 24, "context_length": 2048}
        | {"n_kv_heads": 1, "intermediate_size": 3584, "norm_topk": True, "topk_norm_order": 1.0},
    ),
    Declared(DBRX, {"tie_word_embeddings": True}, None),
    Declared(
        DBRX,
        {
            "attn_config": {"clip_qkv": 8, "tie_word_embeddings": False},
            "ffn_config": {"tie_word_embeddings": False},
        },
        {"hidden_size": 6144, "n_kv_heads": 1},
    ),
    Declared(
        BLOOM,
        {"n_layer": None, "num_hidden_layers": 24, "n_embed": None, "hidden_size": 1024}
        | {"masked_softmax_fusion": False, "skip_bias_add": False},
        {"n_layers": 24, "hidden_size": 1024, "hidden_act": "gelu_tanh"},
    ),
    Declared(BLOOM, {"unk_token_id": 5}, None),
    Declared(
        "starcoder",
        {"attention_softmax_in_fp32": False, "pre_allocate_kv_cache": True},
        {"hidden_act": "gelu", "n_kv_heads": 1},
    ),
    Declared("starcoder", {"runner_max_sequence_length": None}, {"n_kv_heads": 1}),
    *(
        Declared(base, {key: word}, {"hidden_act": activation}, {f"{arch}.hidden_activation": told})
        for base, key, arch, word, activation, told in (
            ("gpt-neox-20b", "hidden_act", "gptneox", "gelu_fast", "gelu_tanh", "gelu_tanh"),
            ("gpt-neox-20b", "hidden_act", "gptneox", "gelu", "gelu", None),
            ("starcoder", "activation_function", "starcoder", "gelu", "gelu", "gelu"),
            ("starcoder", "activation_function", "starcoder", "gelu_new", "gelu_tanh", None),
        )
    ),
    *(
        Declared(
            "internlm3-8b-instruct",
            {"qkv_bias": of_queries, "bias": of_others},
            {"qkv_bias": of_queries, "o_bias": of_others, "mlp_bias": of_others},
        )
        for of_queries, of_others in ((True, False), (False, True))
    ),
    Declared(
        "internlm3-8b-instruct",
        {"num_key_value_heads": None, "head_dim": None, "hidden_size": 2048},
        {"n_kv_heads": 2, "head_dim": 128},
    ),
    Declared(
        "internlm3-8b-instruct",
        {},
        {"rope_scaling": "dynamic", "rope_factor": 6.0},
        {"llama.rope.scaling.type": None, "llama.rope.scaling.dynamic_factor": 6.0},
    ),
    Declared("Apertus-8B-Instruct-2509", {"rope_theta": None}, {"rope_theta": 12e6}),
    Declared("MiniCPM3-4B", {"qk_rope_head_dim": None}, {"rotary_dim": 32}),
    Declared(
        "MiniCPM3-4B",
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"rope_scaling": "dynamic", "rope_factor": 2.0},
    ),
    Declared(XGLM, {**ITS_OWN, **GENERAL}, {"n_layers": 24, "hidden_size": 2048, "n_heads": 16}),
    Declared(XGLM, {"attention_heads": None}, {"n_heads": 16}),
    Declared(XGLM, {"activation_function": "gelu_python"}, {"hidden_act": "gelu"}),
    Declared(XGLM, {"activation_function": "gelu_fast"}, {"hidden_act": "gelu_tanh"}),
    Declared(XGLM, {"activation_function": "gelu_pytorch_tanh"}, {"hidden_act": "gelu_tanh"}),
    Declared(XGLM, {"activation_function": "swish"}, {"hidden_act": "silu"}),
    Declared(XGLM, {"add_cross_attention": True}, None),
    Declared(BGE, {}, READ, files=MEAN),
    Declared(BGE, {}, {**READ, "pooling": "max"}, files=_sentences("max_tokens", *PARTS)),
    Declared(BGE, {}, {**READ, "normalize": False}, files=_sentences("mean_tokens", *PARTS[:2])),
    Declared(BGE, {}, {"pooling": None, "max_length": 256}, files=_sentences("x", *PARTS[:1])),
    Declared(BGE, {}, None, files=_sentences("lasttoken", *PARTS)),
    Declared(BGE, {}, None, files=_sentences("mean_tokens", "Transformer", "Pooling", "LayerNorm")),
    Declared(BGE, {}, {**READ, **LABSE}, files=_layers(384, **TANH)),
    Declared(BGE, {}, {**READ, **LABSE, "normalize": False}, files=_layers(384, end=False, **TANH)),
    *(
        Declared(model, {}, None, files=_layers(384, **{name: other}))
        for name, other in OTHER_SETTINGS.items()
        for model in (BGE, QWEN)
    ),
    Declared(BGE, {}, None, files=_sentences("mean_tokens", *PARTS, do_lower_case=True)),
    Declared(BGE, {}, {**READ, "default_prompt": "query"}, files=MEAN | PROMPT),
    Declared(BGE, {"num_attention_heads": None}, {"n_heads": 12}),
    Declared(QWEN, {}, {**READ, "pooling": "last"}, {"qwen3.pooling_type": 3}, LAST),
    Declared(
        QWEN,
        {"is_causal": False},
        {**READ, "pooling": "last", "bidirectional": True},
        {"qwen3.attention.causal": False, "qwen3.pooling_type": 3},
        LAST,
    ),
    Declared(GEMMA, {}, READ, {"gemma-embedding.pooling_type": 1}, MEAN),
    Declared(
        GEMMA,
        {},
        {**READ, "dense_features": (3072, 768), **PLAIN_TWICE},
        {
            "gemma-embedding.attention.sliding_window": 512,
            "gemma-embedding.dense_2_feat_in": 768,
            "gemma-embedding.dense_2_feat_out": 3072,
            "gemma-embedding.dense_3_feat_in": 3072,
            "gemma-embedding.dense_3_feat_out": 768,
            "gemma-embedding.pooling_type": 1,
        },
        _layers(3072, 768),
    ),
    Declared(
        QWEN, {}, {**READ, "default_prompt": "query"}, {"qwen3.pooling_type": 1}, MEAN | PROMPT
    ),
    Declared(
        QWEN,
        {},
        {**READ, "pooling": "cls"},
        {"qwen3.pooling_type": 2},
        _sentences("cls_token", *PARTS),
    ),
    Declared(QWEN, {}, {**READ, "pooling": "max"}, files=_sentences("max_tokens", *PARTS)),
    Declared(
        QWEN, {}, {"pooling": "last", "normalize": False}, files=_sentences("lasttoken", *PARTS[:2])
    ),
    Declared(
        QWEN,
        {},
        {"pooling": None, "normalize": False},
        {"qwen3.block_count": 28},
        _sentences("x", *PARTS[:1]),
    ),
    Declared(QWEN, {}, None, files=_sentences("mean_sqrt_len_tokens", *PARTS)),
    Declared(
        QWEN, {}, None, files=_sentences("mean_tokens", "Transformer", "Pooling", "LayerNorm")
    ),
    Declared(QWEN, {}, {**READ, **LABSE}, files=_layers(384, **TANH)),
    Declared(QWEN, {}, None, files=_sentences("mean_tokens", *PARTS, do_lower_case=True)),
    Declared(
        "distilbert-base-uncased",
        {"n_heads": None},
        {**READ, "n_heads": 12},
        {
            "bert.attention.causal": False,
            "bert.pooling_type": 1,
            "tokenizer.ggml.token_type_count": 1,
        },
        MEAN,
    ),
    Declared(NOMIC, {"n_positions": 2048, "rotary_scaling_factor": 1}, {"context_length": 2048}),
    Declared(NOMIC, {"rotary_scaling_factor": 4}, {"context_length": 2048}),
    Declared(
        "ModernBERT-base",
        {"global_attn_every_n_layers": None, "num_hidden_layers": 4},
        {**READ, "sliding_layers": [False, True, True, False]},
        {
            "modern-bert.attention.causal": False,
            "modern-bert.pooling_type": 1,
            "modern-bert.classifier.pooling_type": 1,
        },
        MEAN,
    ),
    Declared(
        DEBERTA,
        dict.fromkeys(("hidden_size", "pooler_hidden_size", "num_attention_heads")),
        {"hidden_size": 1536, "n_heads": 24},
    ),
    Declared(DEBERTA, {"attention_head_size": 32}, None),
    *(
        Declared("gte-multilingual-base", change, None)
        for change in (
            {"layer_norm_type": "rms_norm"},
            {"logn_attention_clip1": True},
            {"logn_attention_scale": True},
            {"pack_qkv": False},
            {"position_embedding_type": "absolute"},
            {"rope_scaling": {"type": "linear", "factor": 8.0}},
            *({key: None} for key in ("vocab_size", "max_position_embeddings", "type_vocab_size")),
            {"rope_theta": None},
        )
    ),
    Declared(DEBERTA, {"pooler_hidden_size": 768}, None),
    Declared(DEBERTA, {"pos_att_type": "p2c|p2p"}, None),
    Declared(DEBERTA, {"conv_act": "prelu"}, None),
    Declared(DEBERTA, {"legacy": False, "conv_act": "gelu_python"}, {"conv_act": "gelu"}),
    Declared(DEBERTA, {"conv_act": "gelu_fast"}, {"conv_act": "gelu_tanh"}),
    Declared(DEBERTA, {"conv_act": "gelu_pytorch_tanh"}, {"conv_act": "gelu_tanh"}),
    Declared(DEBERTA, {"conv_act": "swish"}, {"conv_act": "silu"}),
    Declared(NOMIC, {"rotary_emb_base": None, "rope_theta": 500.0}, {"rope_theta": 500.0}),
    Declared(
        NOMIC,
        {},
        {**READ, "position_offset": 0},
        {
            "general.architecture": "nomic-bert",
            "nomic-bert.attention.causal": False,
            "nomic-bert.pooling_type": 1,
            "tokenizer.ggml.token_type_count": 2,
        },
        MEAN,
    ),
    Declared(
        "Phi-3-mini-128k",
        {"original_max_position_embeddings": None},
        {"rope_original_context": 4096},
    ),
    Declared(
        MIXER,
        {"original_max_position_embeddings": None, "rope_scaling": None, "rope_theta": None},
        {"rope_original_context": None, "rope_scaling": "none", "rope_theta": 1e6},
    ),
    Declared(MIXER, {"num_experts_per_tok": 4}, None),
    Declared(MIXER, {"rope_scaling": {"type": "linear", "factor": 2.0}}, None),
    Declared(NORTH, {"rope_scaling": {"type": "linear", "factor": 2.0}}, None),
    Declared(NORTH, {"rope_theta": None}, {"rope_theta": 10000.0}),
    Declared(NORTH, {"layer_norm_eps": None}, {"norm": "layer", "norm_eps": 1e-5}),
    Declared(NORTH, {"use_qk_norm": True}, None),
    Declared(SWASH, {"layer_rope_theta": [0, *[5000] * 23]}, {"rope_theta": 5000.0}),
    Declared(SWASH, {"layer_rope_theta": [0, 5000, *[10000] * 22]}, None),
    Declared(SWASH, {"layer_rope_theta": None, "no_rope_layers": [0, *[1] * 23]}, None),
    Declared(
        SWASH,
        {"layer_rope_theta": None, "no_rope_layers": [1] * 24},
        {"rope_layers": None},
    ),
    Declared(SWASH, {"no_rope_layers": [1] * 24}, None),
    Declared("Mellum2-12B-A2.5B-Base", {"rope_parameters": None, "rope_theta": 1e6}, None),
    Declared(MIMO, {"sliding_window_size": None}, {"sliding_window": 128}),
    Declared(MIMO, {"sliding_window_size": 64}, None),
    Declared(MIMO, {"hybrid_layer_pattern": [0] * 48}, None),
    Declared(MIMO, {"swa_num_key_value_heads": 4}, None),
    Declared(MIMO, {"rope_theta": 1e7}, None),
    Declared(MIMO, {"layernorm_epsilon": 1e-6}, None),
    Declared(MIMO, {"layernorm_epsilon": 1e-6, "rms_norm_eps": 1e-6}, {"norm_eps": 1e-6}),
    Declared(MIMO, {"add_full_attention_sink_bias": True}, None),
    Declared(MIMO, {"attention_value_scale": None}, {"value_scale": 0.707}),
    Declared(MIMO, {"attention_value_scale": 0.5}, {"value_scale": 0.5}),
    Declared(LAGUNA, {"gating": "per-element"}, {"attention_gate_by_head": False}),
    Declared(LAGUNA, {"gating": "per-head"}, {"attention_gate_by_head": True}),
    Declared(LAGUNA, {"gating": None}, {"attention_gate_by_head": True}),
    Declared(LAGUNA, {"gating": False}, None),
    Declared(LAGUNA, {"gating": "per_element"}, None),
    Declared(LAGUNA, {"gating_types": ["per_head"] * 40}, {"attention_gate_by_head": True}),
    Declared(LAGUNA, {"gating_types": ["per_element"] * 40}, None),
    Declared(LAGUNA, {"num_attention_heads_per_layer": [48] * 39}, None),
    Declared(LAGUNA, {"num_attention_heads_per_layer": None}, {"layer_heads": None}),
    Declared(LAGUNA, {"rope_parameters": None}, {"rotary_dim": 64, "rope_scaling": "none"}),
    Declared(LAGUNA, {"moe_router_logit_softcapping": 30.0}, {"router_softcap": 30.0}),
    Declared(LAGUNA, {"moe_apply_router_weight_on_input": True}, None),
    Declared(LAGUNA, {"norm_topk_prob": False}, None),
    Declared(LAGUNA, {"qkv_bias": True}, None),
    Declared(LAGUNA, {"swa_attention_sink_enabled": True}, None),
    Declared(LAGUNA, {"decoder_sparse_step": 2}, None),
    Declared(LAGUNA, {"partial_rotary_factor": 0.25}, None),
    *(
        Declared(LAGUNA, change, {"n_heads": 48})
        for change in (
            {"mlp_only_layers": []},
            {"mlp_only_layers": [0]},
            {"mlp_only_layers": [0, 1, 2]},
            {"decoder_sparse_step": 1},
            {"qkv_bias": False},
            {"swa_attention_sink_enabled": False},
            {"norm_topk_prob": True},
            {"partial_rotary_factor": 1.0},
            {"num_attention_heads": None, "num_attention_heads_per_layer": None},
        )
    ),
    # Laguna M.1 has no windows.
    Declared(
        LAGUNA,
        {"sliding_window": 0, "layer_types": None, "gating": "per-element"},
        {"sliding_window": None, "rope_local_theta": None, "rotary_local_dim": None},
        {
            "laguna.attention.sliding_window": None,
            "laguna.rope.freq_base_swa": None,
            "laguna.attention.sliding_window_pattern": None,
        },
    ),
    Declared(
        LAGUNA,
        {"layer_types": None},
        {"sliding_window": 512},
        {"laguna.attention.sliding_window_pattern": 1},  # all but the first of one
    ),
    Declared(EURO, {"clf_pooling": "late", "is_causal": False}, {"bidirectional": True}),
    Declared(EURO, {"classifier_pooling": "mean"}, {"pooling": None}),
    Declared(EURO, {"classifier_pooling": "bos", "clf_pooling": "mean"}, {"pooling": None}),
    Declared(EURO, {"classifier_pooling": "late", "clf_pooling": "bos"}, {"pooling": None}),
    Declared(EURO, {"classifier_pooling": "max"}, None),
    Declared(EURO, {"clf_pooling": "max"}, None),
    Declared(EURO, {"rope_scaling": {"type": "linear", "factor": 2.0}}, {"rope_factor": 2.0}),
    Declared(EURO, {"is_causal": True}, None),
    Declared(EURO, {"max_position_embeddings": None}, {"context_length": 8192}),
    Declared(EURO, {"rms_norm_eps": None}, {"norm_eps": 1e-5}),
    Declared(EURO, {"tie_word_embeddings": True}, {"pooling": None}),
    Declared("Hy3-preview", {"num_nextn_predict_layers": 0}, {}),
    Declared("DeepSeek-V3.2-Exp", {"num_hidden_layers": None}, {"n_layers": 61}),
    Declared("GLM-5", {"num_hidden_layers": None}, {"n_layers": 78}),
    Declared("Phi-3-mini-4k", {"rope_scaling": {"type": "linear", "factor": 2.0}}, None),
    Declared(
        "Qwen2.5-7B",
        {
            "num_hidden_layers": 30,
            "use_sliding_window": True,
            "sliding_window": 4096,
            "max_window_layers": None,
        },
        {"sliding_layers": [False] * 28 + [True] * 2},
    ),
    Declared("Qwen2.5-0.5B", {"partial_rotary_factor": 1.0}, {"rotary_dim": 64}),
    Declared("Qwen2.5-0.5B", {"partial_rotary_factor": 0.5}, None),
    Declared("gpt2", {"add_cross_attention": True}, None),
    Declared("Mixtral-8x7B-v0.1", {"rms_norm_eps": None}, {"norm_eps": 1e-5}),
    Declared(
        "Qwen3-30B-A3B",
        {"head_dim": None},
        {"head_dim": 64},
        {"qwen3moe.attention.key_length": None},
    ),
    Declared(
        "SmolLM3-3B",
        {"no_rope_layers": None, "no_rope_layer_interval": None},
        {"rope_layers": ([True] * 3 + [False]) * 9},
    ),
    Declared(
        "Qwen3-Next-80B-A3B-Instruct",
        {"full_attention_interval": 24},
        {"attention_layers": ([False] * 23 + [True]) * 2},
        {"qwen3next.attention.recurrent_layers": ([True] * 23 + [False]) * 2},
    ),
    *(
        Declared("granite-4.0-h-micro", change, fields)
        for change, fields in (
            ({"time_step_limit": [0.0, math.inf]}, {"state_value_dim": 64}),
            ({"time_step_limit": [0.0, {"__float__": "Infinity"}]}, {"state_value_dim": 64}),
            ({"time_step_limit": [0.0, 0.1]}, None),
            ({"mamba_d_head": "auto"}, {"state_value_dim": 64}),
            ({"layer_types": NEWER_KINDS}, {"attention_layers": [False] * 39 + [True]}),
            ({"num_local_experts": 8}, None),
            ({"num_experts_per_tok": 2}, None),
        )
    ),
    Declared(
        "gemma-3-4b",
        {
            **dict.fromkeys(("boi_token_index", "eoi_token_index", "image_token_index")),
            "boi_token_id": 255999,
            "eoi_token_id": 256000,
            "image_token_id": 262144,
        },
        {"vocab_size": 262208},
    ),
)


# What holds of a model whatever is changed: its recipe, and tensors by which it is recognised.
KEPT = ("recipe", "bytes", "floats")


@cache
def published() -> tuple[tuple[str, Config], ...]:
    """Return published configurations, as they are and changed, with what is known of them."""
    whole = json.loads((DATA / "published.json").read_text())
    for name, (config, recipe, fields) in ENCODERS.items():
        whole[name] = {"config": config, "recipe": recipe, "fields": fields}
    return (*whole.items(), *_changed(whole))


def _changed(whole: Mapping[str, Config]) -> Iterator[tuple[str, Config]]:
    for index, (base, change, fields, gguf, files) in enumerate(DECLARED):
        changed = {**whole[base]["config"], **change}
        config = {key: value for key, value in changed.items() if change.get(key, 0) is not None}
        kept = {key: whole[base][key] for key in KEPT if key in whole[base]}
        told: dict[str, Any] = {"config": config, "files": files, **kept}
        yield f"{base}, {index}", {**told, "fields": fields, "gguf": gguf}
