"""Random configurations of each family, as hypothesis strategies: the row of a new family.

They are what ``transformers.AutoConfig.for_model`` takes; small, so that odd sizes are common.
``record_random.py`` records what transformers and llama.cpp's converter make of some of them, and
tests with the ``peers`` extra draw others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_activated_families import ACTIVATED, ACTIVATED_GRANTED
from tests.data.random_chunked_families import CHUNKED, CHUNKED_GRANTED, CHUNKED_VISION
from tests.data.random_encoder_families import OF_WORDS
from tests.data.random_expert_families import sayable_phimoe
from tests.data.random_families import (
    FURTHER,
    FURTHER_FACTORS_KEPT,
    FURTHER_GRANTED,
    LISTED,
    UNSCALED,
)
from tests.data.random_image_text_families import (
    IMAGE_TEXT,
    IMAGE_TEXT_GRANTED,
)
from tests.data.random_latent_families import LATENT, LATENT_GRANTED, SPARSE
from tests.data.random_layer_input_families import (
    LAYER_INPUTS,
    LAYER_INPUTS_GRANTED,
    SAYABLE,
    WHOLE,
)
from tests.data.random_options import (
    ACTIVATIONS,
    EPS,
    FLAGS,
    LONGEST,
    THETAS,
    WINDOW,
    WINDOWS,
    Config,
    Draw,
    common,
    heads,
    kinds,
    longrope,
    rope,
    two_bases,
    usual,
)
from tests.data.random_windowed_families import WINDOWED, sayable_windowed


def _llama(draw: Draw) -> Config:
    return usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS)


def _mistral(draw: Draw) -> Config:
    return usual(draw, sliding_window=WINDOWS)


def _mixtral(draw: Draw) -> Config:
    config = usual(draw, sliding_window=WINDOWS, num_local_experts=st.integers(2, 5))
    used = draw(st.integers(1, config["num_local_experts"]))
    return config | {"num_experts_per_tok": used}


def _qwen2(draw: Draw) -> Config:
    config = usual(
        draw,
        use_sliding_window=FLAGS,
        sliding_window=WINDOW,
        max_window_layers=st.integers(1, 4),
    )
    is_listed = draw(FLAGS) and config["use_sliding_window"]
    listed = {"layer_types": kinds(draw, config["num_hidden_layers"])} if is_listed else {}
    return config | listed


def _qwen3(draw: Draw) -> Config:
    return _qwen2(draw) | {"attention_bias": draw(FLAGS)}


def _qwen3_moe(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        use_sliding_window=FLAGS,
        sliding_window=WINDOW,
        num_experts=st.integers(2, 5),
        moe_intermediate_size=st.integers(3, 21),
        norm_topk_prob=FLAGS,
        decoder_sparse_step=st.integers(1, 2),
        mlp_only_layers=st.lists(st.integers(0, 3), max_size=2),
    )
    return config | {"num_experts_per_tok": draw(st.integers(1, config["num_experts"]))}


def _gemma2(draw: Draw) -> Config:
    config = usual(
        draw,
        sliding_window=WINDOW,
        query_pre_attn_scalar=st.integers(1, 64),
        attn_logit_softcapping=st.one_of(st.none(), st.floats(1.0, 50.0)),
        final_logit_softcapping=st.one_of(st.none(), st.floats(1.0, 50.0)),
        attention_bias=FLAGS,
    )
    config["hidden_activation"] = config.pop("hidden_act")
    listed = {"layer_types": kinds(draw, config["num_hidden_layers"])} if draw(FLAGS) else {}
    return config | listed


def _gemma3(draw: Draw) -> Config:
    config = two_bases(draw, _gemma2(draw) | {"attn_logit_softcapping": None})
    return config | {"sliding_window_pattern": draw(st.integers(2, 4))}


def _gemma_embedding(draw: Draw) -> Config:
    return _gemma3(draw) | {"use_bidirectional_attention": True}


def _eurobert(draw: Draw) -> Config:
    return usual(draw, explicit=False, attention_bias=FLAGS, mlp_bias=FLAGS)


def _phi3(draw: Draw) -> Config:
    config = common(draw) | heads(draw, explicit=False)
    config |= {"sliding_window": draw(WINDOWS)}
    share = draw(st.sampled_from([1.0, 0.75, 0.5]))
    dim = int(config["head_dim"] * share)
    table: Config = {"rope_type": "default", "rope_theta": draw(THETAS)}
    if dim % 2 == 0 and draw(FLAGS):
        table = table | {"rope_type": "longrope"} | longrope(draw, dim // 2)
        original = table.pop("original_max_position_embeddings")
        config |= {"original_max_position_embeddings": original}
    config.pop("head_dim")
    return config | {"rope_parameters": table | {"partial_rotary_factor": share}}


def _gpt2(draw: Draw) -> Config:
    count = draw(st.integers(1, 5))
    return {
        "n_embd": count * draw(st.integers(2, 9)),
        "n_head": count,
        "n_layer": draw(st.integers(1, 3)),
        "n_inner": draw(st.one_of(st.none(), st.integers(3, 37))),
        "n_positions": draw(st.integers(LONGEST, 64)),
        "vocab_size": draw(st.integers(11, 71)),
        "activation_function": draw(ACTIVATIONS),
        "layer_norm_epsilon": draw(EPS),
        "scale_attn_weights": draw(FLAGS),
        "tie_word_embeddings": draw(FLAGS),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _gpt_neox(draw: Draw) -> Config:
    config = common(draw) | heads(draw, explicit=False, shared=False)
    share = draw(st.sampled_from([1.0, 0.75, 0.5, 0.25]))
    dim = int(config.pop("head_dim") * share)
    config |= {
        "layer_norm_eps": config.pop("rms_norm_eps"),
        "use_parallel_residual": draw(FLAGS),
        "attention_bias": draw(FLAGS),
    }
    config.pop("num_key_value_heads")
    if dim % 2:
        table: Config = {"rope_type": "default", "rope_theta": draw(THETAS)}
    else:
        scaled = rope(draw, dim // 2)
        table = scaled.pop("rope_parameters")
        config |= scaled
    return config | {"rope_parameters": table | {"partial_rotary_factor": share}}


def _seed_oss(draw: Draw) -> Config:
    return usual(draw, attention_bias=FLAGS, attention_out_bias=FLAGS, mlp_bias=FLAGS)


def _starcoder2(draw: Draw) -> Config:
    config = usual(draw, sliding_window=WINDOWS, use_bias=FLAGS)
    return config | {"norm_epsilon": config.pop("rms_norm_eps")}


def _olmo2(draw: Draw) -> Config:
    return usual(draw, attention_bias=FLAGS)


def _granite(draw: Draw) -> Config:
    scales = st.floats(0.1, 4.0)
    return usual(
        draw,
        attention_bias=FLAGS,
        mlp_bias=FLAGS,
        attention_multiplier=scales,
        embedding_multiplier=scales,
        logits_scaling=scales,
        residual_multiplier=scales,
    )


def _smollm3(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        mlp_bias=FLAGS,
        use_sliding_window=FLAGS,
        sliding_window=WINDOW,
        no_rope_layer_interval=st.integers(1, 4),
    )
    layers = config["num_hidden_layers"]
    rotated = st.lists(st.integers(0, 1), min_size=layers, max_size=layers)
    return config | ({"no_rope_layers": draw(rotated)} if draw(FLAGS) else {})


def _falcon(draw: Draw) -> Config:
    kv_heads = draw(st.integers(1, 3))
    count, head_dim = kv_heads * draw(st.integers(1, 3)), draw(st.integers(2, 6)) * 2
    config = {
        "vocab_size": draw(st.integers(11, 71)),
        "hidden_size": count * head_dim,
        "num_attention_heads": count,
        "num_hidden_layers": draw(st.integers(1, 3)),
        "max_position_embeddings": draw(st.integers(LONGEST, 128)),
        "layer_norm_epsilon": draw(EPS),
        "activation": draw(st.sampled_from(["gelu", "relu", "gelu_new"])),
        "bias": draw(FLAGS),
        "alibi": False,
        "ffn_hidden_size": draw(st.one_of(st.none(), st.integers(3, 37))),
        "tie_word_embeddings": draw(FLAGS),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    forms = [
        {"new_decoder_architecture": True, "num_kv_heads": kv_heads},
        {
            "new_decoder_architecture": True,
            "num_kv_heads": kv_heads,
            "num_ln_in_parallel_attn": 1,
        },
        {"multi_query": True, "parallel_attn": True},
        {"multi_query": False, "parallel_attn": True},
        {"multi_query": True, "parallel_attn": False},
        {"multi_query": False, "parallel_attn": False},
    ]
    return config | rope(draw, head_dim // 2) | draw(st.sampled_from(forms))


FAMILIES: Mapping[str, Callable[[Draw], Config]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "seed_oss": _seed_oss,
    "starcoder2": _starcoder2,
    "olmo2": _olmo2,
    "granite": _granite,
    "smollm3": _smollm3,
    "falcon": _falcon,
    **FURTHER,
    **LATENT,
    **ACTIVATED,
    **CHUNKED,
    **LAYER_INPUTS,
}

VISION = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 28,
    "patch_size": 14,
    "model_type": "siglip_vision_model",
}


def _gemma3_vision(draw: Draw) -> Config:
    """The language model inside one that sees."""
    tokens = {"image_token_index": 0, "boi_token_index": 1, "eoi_token_index": 2}
    text = _gemma3(draw) | {"model_type": "gemma3_text", "tie_word_embeddings": True}
    text |= {"final_logit_softcapping": None}
    return {"text_config": text, "vision_config": VISION, "mm_tokens_per_image": 4, **tokens}


ENCODERS: Mapping[str, Callable[[Draw], Config]] = {
    **OF_WORDS,
    "gemma_embedding": _gemma_embedding,
    "eurobert": _eurobert,
}
"""The families that give vectors of tokens, and no logits."""
RECORDED = {
    **FAMILIES,
    "gemma3": _gemma3_vision,
    **CHUNKED_VISION,
    **WHOLE,
    **IMAGE_TEXT,
    **ENCODERS,
}
"""Every family that ``record_random.py`` records."""

TANH = {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
SILU = {"hidden_act": "silu"}
GRANTED: Mapping[str, Config] = {
    **dict.fromkeys(FAMILIES, SILU),
    "bert": {"hidden_act": "gelu"},
    "roberta": {"hidden_act": "gelu"},
    "distilbert": {"activation": "gelu"},
    "falcon": {"activation": "gelu", "bias": False, "ffn_hidden_size": None},
    "gemma2": TANH | {"attn_logit_softcapping": 20.0, "final_logit_softcapping": 30.0},
    "gemma3_text": TANH,
    "gemma_embedding": TANH,
    "eurobert": SILU | {"attention_bias": False, "mlp_bias": False},
    "gpt2": {"activation_function": "gelu_new", "scale_attn_weights": True, "n_inner": None},
    "gpt_neox": {"hidden_act": "gelu"},
    "modernbert": dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias"), False),
    "qwen3_moe": SILU | {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "smollm3": SILU | {"no_rope_layer_interval": 4},
    "starcoder2": {"hidden_act": "gelu_pytorch_tanh"},
    **FURTHER_GRANTED,
    **LATENT_GRANTED,
    **ACTIVATED_GRANTED,
    **CHUNKED_GRANTED,
    **LAYER_INPUTS_GRANTED,
    **IMAGE_TEXT_GRANTED,
}
"""What llama.cpp takes for granted of each family: other values are refused for GGUF."""


# Architectures of llama.cpp that keep the factors of rotary frequencies.
FACTORS_KEPT = (
    *("apertus", "llama", "llama4_text", "minicpm3", "mistral", "mixtral", "phi3", "smollm3"),
    *FURTHER_FACTORS_KEPT,
)


# How the positions of an image share the rotation, of which a text has one.
SECTIONS = ("mrope_section", "mrope_interleaved")


def sayable(model_type: str, config: Config) -> Config:
    """The configuration, changed so that llama.cpp's converter says all of it."""
    if model_type in IMAGE_TEXT:
        text = config["text_config"]
        return config | {"text_config": sayable(text["model_type"], text)}
    config = config | GRANTED.get(model_type, {})
    tables = config.get("rope_parameters")
    if tables:
        table = tables.get("full_attention", tables)
        kept_mscales = model_type == "ministral3" or model_type in LATENT
        lost = ("truncate",) if kept_mscales else ("mscale", "mscale_all_dim", "truncate")
        kept = {key: value for key, value in table.items() if key not in lost}
        kind = table["rope_type"]
        if kind == "longrope":
            kept = {key: kept[key] for key in kept if key not in ("factor", "attention_factor")}
        if kind == "dynamic" or (kind in ("llama3", "longrope") and model_type not in FACTORS_KEPT):
            theta_and_share = ("rope_theta", "partial_rotary_factor", *SECTIONS)
            plain = {key: table[key] for key in theta_and_share if key in table}
            kept = {"rope_type": "linear", "factor": 2.0, **plain}
            longest = max(config["max_position_embeddings"], LONGEST)
            config["max_position_embeddings"] = longest
        if model_type in (*UNSCALED, "dbrx"):
            theta_and_share = ("rope_theta", "partial_rotary_factor")
            kept = {"rope_type": "default"} | {k: table[k] for k in theta_and_share if k in table}
            longest = max(config["max_position_embeddings"], LONGEST)
            config["max_position_embeddings"] = longest
        if model_type == "minicpm3":  # the converter says nothing else
            factors = ("short_factor", "long_factor", "original_max_position_embeddings")
            kept = {key: kept[key] for key in factors if key in kept and kind == "longrope"}
            kept |= {"rope_type": "longrope" if kept else "default", "rope_theta": 10000.0}
            longest = max(config["max_position_embeddings"], LONGEST)
            config["max_position_embeddings"] = longest
        whole = {**tables, "full_attention": kept} if "full_attention" in tables else kept
        config |= {"rope_parameters": whole}
    for key in ("layer_types", "no_rope_layers"):
        if model_type not in (*LISTED, *LAYER_INPUTS, "kimi_linear"):
            config.pop(key, None)
    if model_type in ("granite", "granite_swa", "nemotron") or (
        model_type == "mixtral" and config["rope_parameters"]["rope_type"] in ("default", "linear")
    ):
        config["hidden_size"] = config.pop("head_dim") * config["num_attention_heads"]
    if model_type == "gpt_oss" and config["rope_parameters"]["rope_type"] == "yarn":
        config["rope_parameters"] = config["rope_parameters"] | {"truncate": False}
    if model_type == "ernie4_5_moe":  # the converter divides the one by the other
        shared = config["moe_intermediate_size"] * max(1, config["moe_num_shared_experts"])
        config["moe_layer_interval"] = 1
        start = min(config["moe_layer_start_index"], config["num_hidden_layers"] - 1)
        config["moe_layer_start_index"] = start
        config["intermediate_size"] = shared * config["num_key_value_heads"]
    if model_type == "hunyuan_v1_moe" and not isinstance(config["moe_topk"], list):
        config["moe_topk"] = [config["moe_topk"]] * config["num_hidden_layers"]
    if model_type == "kimi_linear":
        kinds = config["mlp_layer_types"]
        config["mlp_layer_types"] = sorted(kinds)  # dense ones first
        config["linear_num_heads"] = config["num_attention_heads"]
    if model_type == "glm4_moe_lite":
        config["mlp_layer_types"] = ["dense", *["sparse"] * (config["num_hidden_layers"] - 1)]
    if model_type in SPARSE:
        config.pop("mlp_layer_types", None)
    if model_type == "exaone_moe":
        config.pop("mlp_layer_types", None)
        first = min(config["first_k_dense_replace"], config["num_hidden_layers"])
        config["first_k_dense_replace"] = first
    if "linear_key_head_dim" in config:
        config["linear_value_head_dim"] = config["linear_key_head_dim"]
    if model_type in LATENT and "mscale" in config.get("rope_parameters", {}):
        same = {"mscale": config["rope_parameters"]["mscale_all_dim"]}
        config["rope_parameters"] = config["rope_parameters"] | same
    if model_type == "ministral3":
        config["rope_parameters"] = config["rope_parameters"] | {"mscale": 1.0}
    if model_type == "modernbert" and config["hidden_activation"] != "gelu":
        config["hidden_activation"] = "silu"
    if model_type == "mpt":
        config["attn_config"] = config["attn_config"] | {"softmax_scale": None}
    if model_type == "mamba2":  # the converter takes twice the width for granted
        config["hidden_size"] = config["num_heads"] * config["head_dim"]
        config |= {"num_heads": 2 * config["num_heads"], "expand": 2}
    if model_type in ("mamba", "falcon_mamba"):  # the same of these
        config |= {"intermediate_size": 2 * config["hidden_size"], "expand": 2}
    if model_type == "nemotron_h_moe":  # it knows no other MLPs where there are experts
        kinds = config["layers_block_type"]
        config["layers_block_type"] = ["moe" if kind == "mlp" else kind for kind in kinds]
    if model_type in SAYABLE:
        config = SAYABLE[model_type](config)
    if model_type in WINDOWED:
        config = sayable_windowed(model_type, config)
    if model_type == "phimoe":
        config = sayable_phimoe(config)
    if model_type == "dbrx":
        usual = {"ffn_act_fn": {"name": "silu"}, "moe_normalize_expert_weights": 1.0}
        config["ffn_config"] = config["ffn_config"] | usual
    if model_type == "phi":
        config["intermediate_size"] = 4 * config["hidden_size"]
        config["num_key_value_heads"] = config["num_attention_heads"]
    return config


@st.composite
def configurations(draw: Draw, model_type: str) -> Config:
    """A configuration of a family."""
    return RECORDED[model_type](draw)


def is_supported(config: Config) -> bool:
    """Whether ``LONGEST`` tokens fit, which dynamic scaling stretches, and planes are whole."""
    table = config.get("rope_parameters") or {}
    longest = config.get("max_position_embeddings", LONGEST)
    factor = table.get("factor", 1.0) if table.get("rope_type") == "dynamic" else 1.0
    dim = config.get("head_dim") or (
        config.get("hidden_size", 0) // config.get("num_attention_heads", 1)
    )
    rotated = int(dim * table.get("partial_rotary_factor", 1.0))
    return longest * factor >= LONGEST and rotated % 2 == 0
