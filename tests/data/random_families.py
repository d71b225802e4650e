"""Further families of which there are random configurations, and what llama.cpp grants of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.data.random_dense_families import DENSE
from tests.data.random_expert_families import WITH_EXPERTS
from tests.data.random_gpt_families import GPT
from tests.data.random_hybrid_families import HYBRID
from tests.data.random_options import Config, Draw
from tests.data.random_windowed_families import WINDOWED

FURTHER: Mapping[str, Callable[[Draw], Config]] = {**DENSE, **WITH_EXPERTS, **GPT, **HYBRID}
FURTHER = {**FURTHER, **WINDOWED}
# Families that are one model type.
MODEL_TYPES = {"granitehybrid": "granitemoehybrid", "nemotron_h_moe": "nemotron_h"}
MODEL_TYPES |= {"gemma_embedding": "gemma3_text"}
# Those whose rotated elements llama.cpp's converter takes for pairs.
AS_PAIRS = ("deepseek_v3_halves", "glm4_moe_lite_halves", "youtu_halves")
MODEL_TYPES |= {family: family.removesuffix("_halves") for family in AS_PAIRS}
# Their recipes, or fields of theirs, are told by tensors, and not by configurations alone.
BY_TENSORS = ("apertus", "granitehybrid", "granitemoehybrid", "nemotron_h_moe")


def type_of(family: str) -> str:
    """The model type of a family's configurations."""
    return MODEL_TYPES.get(family, family)


# Those that GGUF has no form of.
WITHOUT_GGUF = (
    "bitnet",
    "codegen",
    "cwm",
    "deberta-v2",
    "electra",
    "flex_olmo",
    "gpt_neo",
    "gptj",
    "gte",
    "helium",
    "hyperclovax",
    "lfm3",
    "ministral",
    "mpnet",
    "nanochat",
    "opt",
    "persimmon",
    "vaultgemma",
    "xglm",
)

SILU = {"hidden_act": "silu"}
STATES_GRANTED = {"use_bias": False}
FURTHER_GRANTED: Mapping[str, Config] = {
    **dict.fromkeys(FURTHER, SILU),
    "gemma": {
        "hidden_act": "gelu_pytorch_tanh",
        "attention_bias": False,
        "tie_word_embeddings": True,
    },
    "olmo": SILU | {"attention_bias": False},
    "arcee": {"hidden_act": "relu2"},
    "jais2": {"hidden_act": "relu2"},
    "cohere2": SILU | {"attention_bias": False, "tie_word_embeddings": True},
    "cohere2_moe": SILU
    | {"attention_bias": False, "shared_expert_combination_strategy": "average"},
    "nemotron": {"hidden_act": "relu2"},
    "olmoe": SILU
    | {"attention_bias": False, "clip_qkv": None, "norm_topk_prob": False, "rms_norm_eps": 1e-5},
    "qwen2_moe": SILU | {"norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "afmoe": SILU | {"attention_bias": False, "mup_enabled": True, "global_attn_every_n_layers": 4},
    "gpt_oss": SILU | {"swiglu_limit": 7.0, "swiglu_alpha": 1.702},
    "lfm2": {"conv_bias": False},
    "lfm2_moe": {"conv_bias": False, "norm_topk_prob": True}
    | {"routed_scaling_factor": 1.0, "tie_word_embeddings": True},
    "phimoe": SILU | {"router_jitter_noise": 0.01},
    "mellum": SILU | {"norm_topk_prob": True, "attention_bias": False},
    "hy_v3": SILU | {"mlp_bias": False, "attention_bias": False},
    "laguna": SILU | {"attention_bias": False, "moe_router_logit_softcapping": 0.0},
    "mimo_v2_flash": SILU
    | {"norm_topk_prob": True, "routed_scaling_factor": 1.0, "tie_word_embeddings": False},
    "ernie4_5_moe": SILU | {"moe_layer_end_index": -1},
    "bloom": {"tie_word_embeddings": True, "apply_residual_connection_post_layernorm": False},
    "mpt": {"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
    "gpt_bigcode": {"activation_function": "gelu_pytorch_tanh", "n_inner": None}
    | {"scale_attn_weights": True, "multi_query": True},
    "qwen3_next": SILU
    | {"attention_bias": False, "norm_topk_prob": True, "decoder_sparse_step": 1}
    | {"mlp_only_layers": [], "rms_norm_eps": 1e-6},
    **dict.fromkeys(
        ("qwen3_5_text", "qwen3_5_moe_text"),
        SILU | {"attention_bias": False, "rms_norm_eps": 1e-6},
    ),
    **dict.fromkeys(
        ("granitemoehybrid", "granitehybrid"),
        SILU | {"mamba_proj_bias": False, "position_embedding_type": "nope"},
    ),
    **dict.fromkeys(("mamba", "mamba2"), SILU | STATES_GRANTED),
    "jamba": SILU | {"mamba_conv_bias": True, "mamba_proj_bias": False},
    "falcon_mamba": SILU | STATES_GRANTED | {"mixer_rms_eps": 1e-6, "layer_norm_epsilon": 1e-6},
    "nemotron_h": {"mlp_hidden_act": "relu2", "mamba_hidden_act": "silu"} | {"use_bias": False},
    "nemotron_h_moe": {"mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "mlp_bias": False}
    | {"use_bias": False},
    "bamba": SILU | {"mamba_proj_bias": False},
    "falcon_h1": SILU
    | {"mamba_proj_bias": False, "projectors_bias": False}
    | {"attention_bias": False, "mlp_bias": False, "mamba_norm_before_gate": False}
    | {"tie_word_embeddings": False},
    "phi": {"hidden_act": "gelu_new", "qk_layernorm": False, "tie_word_embeddings": False},
}
# Architectures of llama.cpp that keep the factors of rotary frequencies, and those whose converter
# writes no scaling, or one in the place of others.
FURTHER_FACTORS_KEPT = ("arcee", "internlm3", "iquestcoder", "phimoe")
# Those whose converter writes each layer's kind of attention.
LISTED = ("exaone4", "exaone_moe", "lfm2", "lfm2_moe", "olmo3", "qwen3_next", *WINDOWED)
LISTED += ("qwen3_5_text", "qwen3_5_moe_text", "granitemoehybrid", "granitehybrid")
UNSCALED = ("cohere", "cohere2", "cohere2_moe", "exaone_moe", "falcon_h1", "gemma", "nemotron")
UNSCALED += ("eurobert", "phi", "stablelm")
# Families that say something else, or nothing, in the keys of transformers 4.
NEWER_ALONE = ("apertus", "cwm", "gpt_oss", "olmo3", "qwen3_5_text", "qwen3_5_moe_text")
NEWER_ALONE += ("cohere2_moe", "lfm3", "laguna", "mellum", "mimo_v2_flash")
