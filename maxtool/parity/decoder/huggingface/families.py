"""How each family's config.json is read: a row for each ``model_type``.

Defaults are those of transformers 5.23 for keys that published configurations leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from maxtool.parity.decoder import names
from maxtool.parity.decoder.huggingface.layers import (
    gemma3_ropes,
    late,
    not_every,
    smollm3_ropes,
    still,
)
from maxtool.parity.decoder.huggingface.rope import RopeKeys
from maxtool.parity.decoder.huggingface.row import Options, Row, Windows
from maxtool.parity.decoder.settings import ATTENTION, EVERY, MLP, QKV, Experts, Sizes
from maxtool.parity.raw_config import Reader


def _mixtral(read: Reader, sizes: Sizes) -> Options:
    experts = Experts(
        count=read.integer("num_local_experts"),
        used=read.integer("num_experts_per_tok"),
        inner=sizes.inner,
        normalized=True,
        layers=(True,) * sizes.layers,
    )
    return {"experts": experts}


def _qwen3_moe(read: Reader, sizes: Sizes) -> Options:
    plain, step = read.get("mlp_only_layers") or (), read.integer("decoder_sparse_step", 1)
    if not isinstance(plain, list | tuple):
        read.problems.append("mlp_only_layers is not a list")
        plain = ()
    experts = Experts(
        # Transformers 5 writes the second one.
        count=read.integer("num_experts" if read.get("num_experts") else "num_local_experts"),
        used=read.integer("num_experts_per_tok"),
        inner=read.integer("moe_intermediate_size"),
        normalized=read.flag("norm_topk_prob"),
        layers=tuple(i not in plain and (i + 1) % step == 0 for i in range(sizes.layers)),
    )
    return {"experts": experts}


def _gemma(read: Reader, sizes: Sizes) -> Options:
    return {
        "embed_scale": sizes.hidden**0.5,
        "scale": read.number("query_pre_attn_scalar") ** -0.5,
        "attention_cap": read.optional_number("attn_logit_softcapping"),
        "logits_cap": read.optional_number("final_logit_softcapping"),
    }


def _granite(read: Reader, sizes: Sizes) -> Options:  # noqa: ARG001 - called as the others are
    return {
        "scale": read.number("attention_multiplier"),
        "embed_scale": read.number("embedding_multiplier"),
        "residual_scale": read.number("residual_multiplier"),
        "logits_scale": 1 / read.number("logits_scaling"),
    }


def _gpt2(read: Reader, sizes: Sizes) -> Options:
    scaled = read.flag("scale_attn_weights", default=True)
    return {
        "positions": read.integer("n_positions"),
        "scale": sizes.head_dim**-0.5 if scaled else 1.0,
    }


def _gpt_neox(read: Reader, sizes: Sizes) -> Options:  # noqa: ARG001 - called as the others are
    parallel = read.flag("use_parallel_residual", default=True)
    return {"block": "parallel" if parallel else "pre"}


def _falcon(read: Reader, sizes: Sizes) -> Options:
    """The forms differ in their norms, and in how many query heads share a key head."""
    newer = read.flag("new_decoder_architecture")
    two = newer and read.integer("num_ln_in_parallel_attn", 2) == 2
    parallel = newer or read.flag("parallel_attn", default=True)
    one_key = read.flag("multi_query", default=True)
    kv_heads = sizes.kv_heads if newer else 1 if one_key else sizes.heads
    return {
        "block": "parallel" if two else "parallel_shared" if parallel else "pre",
        "names": names.FALCON_TWO_NORMS if two else names.FALCON,
        "sizes": replace(sizes, kv_heads=kv_heads),
    }


CONTEXT_2K: Options = {"max_position_embeddings": 2048}
CONTEXT_32K: Options = {"max_position_embeddings": 32768}
CONTEXT_128K: Options = {"max_position_embeddings": 131072}
LLAMA_EPS: Options = {"rms_norm_eps": 1e-6}
TIED: Options = {"tie_word_embeddings": True}
ATTENTION_BIAS = {"attention_bias": ATTENTION}
GEMMA: Options = {"norm_offset": 1.0, "block": "sandwich"}
GEMMA_DEFAULTS = (
    LLAMA_EPS
    | TIED
    | {
        "hidden_activation": "gelu_pytorch_tanh",
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "num_key_value_heads": 4,
    }
)
LAYER_NORM: Options = {"norm": "layer", "gated": False}

GEMMA3 = Row(
    names.GEMMA,
    fixed=GEMMA | {"qk_norm": "head"},
    keys={"activation": "hidden_activation"},
    defaults=GEMMA_DEFAULTS
    | {
        "vocab_size": 262208,
        "num_attention_heads": 8,
    }
    | CONTEXT_128K,
    biases=ATTENTION_BIAS,
    windows=Windows(4096, listed=True, rule=not_every(6)),
    ropes=gemma3_ropes,
    only={"use_bidirectional_attention": (False,), "attn_logit_softcapping": (None,)},
    more=_gemma,
)

FALCON = Row(
    names.FALCON,
    fixed=LAYER_NORM,
    keys={
        "inner": "ffn_hidden_size",
        "kv_heads": "num_kv_heads",
        "eps": "layer_norm_epsilon",
        "activation": "activation",
    },
    defaults=TIED | CONTEXT_2K | {"layer_norm_epsilon": 1e-5, "activation": "gelu"},
    older={
        "n_embed": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_head_kv": "num_kv_heads",
    },
    biases={"bias": EVERY},
    only={"alibi": (False,)},
    more=_falcon,
)

ROWS: Mapping[str, Row] = {
    "llama": Row(
        names.LLAMA, defaults=LLAMA_EPS | CONTEXT_2K, biases=ATTENTION_BIAS | {"mlp_bias": MLP}
    ),
    "mistral": Row(
        names.LLAMA,
        defaults=LLAMA_EPS | CONTEXT_128K | {"num_key_value_heads": 8},
        windows=Windows(4096),
    ),
    "mixtral": Row(
        names.MIXTRAL,
        defaults=CONTEXT_128K
        | {
            "rms_norm_eps": 1e-5,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        windows=Windows(),
        rope=RopeKeys(default_theta=1e6),
        more=_mixtral,
    ),
    "qwen2": Row(
        names.LLAMA,
        defaults=LLAMA_EPS | CONTEXT_32K,
        biased=QKV,
        windows=Windows(4096, switch=True, listed=True, rule=late),
    ),
    "qwen3": Row(
        names.LLAMA,
        fixed={"qk_norm": "head"},
        defaults=LLAMA_EPS | CONTEXT_32K | {"head_dim": 128},
        biases=ATTENTION_BIAS,
        windows=Windows(4096, switch=True, listed=True, rule=late),
    ),
    "qwen3_moe": Row(
        names.QWEN3_MOE,
        fixed={"qk_norm": "head"},
        defaults=LLAMA_EPS
        | CONTEXT_32K
        | {
            "num_key_value_heads": 4,
            "num_local_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
        biases=ATTENTION_BIAS,
        windows=Windows(4096, switch=True),
        more=_qwen3_moe,
    ),
    "gemma2": Row(
        names.GEMMA,
        fixed=GEMMA,
        keys={"activation": "hidden_activation"},
        defaults=GEMMA_DEFAULTS
        | {
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "max_position_embeddings": 8192,
        },
        biases=ATTENTION_BIAS,
        windows=Windows(4096, listed=True, rule=not_every(2)),
        only={"use_bidirectional_attention": (None, False)},
        more=_gemma,
    ),
    "gemma3_text": GEMMA3,
    "gemma3": replace(GEMMA3, section="text_config"),
    "phi3": Row(
        names.PHI3,
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
        windows=Windows(),
        rope=RopeKeys(
            partial="partial_rotary_factor",
            original=4096,
            renamed={"su": "longrope", "yarn": "longrope"},
        ),
        only={"attention_bias": (False,)},
    ),
    "gpt2": Row(
        names.GPT2,
        fixed=LAYER_NORM,
        keys={
            "hidden": "n_embd",
            "inner": "n_inner",
            "layers": "n_layer",
            "heads": "n_head",
            "eps": "layer_norm_epsilon",
            "activation": "activation_function",
            "context": "n_positions",
        },
        defaults=TIED
        | {"layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "n_positions": 1024},
        biased=EVERY,
        rope=None,
        only={"scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)},
        more=_gpt2,
    ),
    "gpt_neox": Row(
        names.GPT_NEOX,
        fixed=LAYER_NORM,
        keys={"eps": "layer_norm_eps"},
        defaults=CONTEXT_2K
        | {"layer_norm_eps": 1e-5, "hidden_act": "gelu", "attention_bias": True},
        biased=MLP,
        biases=ATTENTION_BIAS,
        rope=RopeKeys("rotary_emb_base", partial="rotary_pct", default_partial=0.25),
        more=_gpt_neox,
    ),
    "starcoder2": Row(
        names.STARCODER2,
        fixed=LAYER_NORM,
        keys={"eps": "norm_epsilon"},
        defaults=TIED
        | {
            "norm_epsilon": 1e-5,
            "hidden_act": "gelu_pytorch_tanh",
            "use_bias": True,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
        },
        biases={"use_bias": EVERY},
        windows=Windows(),
    ),
    "olmo2": Row(
        names.OLMO2,
        fixed={"block": "post", "qk_norm": "full"},
        defaults=CONTEXT_2K | {"rms_norm_eps": 1e-5},
        biases=ATTENTION_BIAS,
    ),
    "granite": Row(
        names.LLAMA,
        defaults=LLAMA_EPS
        | CONTEXT_2K
        | dict.fromkeys(
            (
                "attention_multiplier",
                "embedding_multiplier",
                "residual_multiplier",
                "logits_scaling",
            ),
            1.0,
        ),
        biases=ATTENTION_BIAS | {"mlp_bias": MLP},
        more=_granite,
    ),
    "smollm3": Row(
        names.LLAMA,
        defaults=LLAMA_EPS | TIED | CONTEXT_32K | {"num_key_value_heads": 4},
        biases=ATTENTION_BIAS | {"mlp_bias": MLP},
        windows=Windows(listed=True, rule=still),
        rope=RopeKeys(default_theta=2e6),
        ropes=smollm3_ropes,
    ),
    "falcon": FALCON,
    "RefinedWebModel": FALCON,
    "RefinedWeb": FALCON,
}
"""How each ``model_type`` is read."""
