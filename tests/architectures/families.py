"""Checkpoints of transformers as options and weights of the decoder, one small table per family.

This is the tests' own reading of them. Recipes have another one, and so has the reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

Array = np.ndarray[Any, Any]
Config = Mapping[str, Any]
Tensors = dict[str, Array]

LAYER = "layers.{i}."
LLAMA = {
    "model.embed_tokens": "embed",
    "model.norm": "norm",
    "lm_head": "lm_head",
    "model.layers.{i}.input_layernorm": LAYER + "attn_norm",
    "model.layers.{i}.post_attention_layernorm": LAYER + "mlp_norm",
    "model.layers.{i}.mlp.c_fc": LAYER + "mlp.up",
    "model.layers.{i}.mlp.c_proj": LAYER + "mlp.down",
    "model.layers.{i}.self_attn.q_norm": LAYER + "attn.q_norm",
    "model.layers.{i}.self_attn.k_norm": LAYER + "attn.k_norm",
    **{f"model.layers.{{i}}.mlp.{x}_proj": LAYER + f"mlp.{x}" for x in ("gate", "up", "down")},
    **{f"model.layers.{{i}}.self_attn.{x}_proj": LAYER + f"attn.{x}" for x in "qkvo"},
    "model.layers.{i}.mlp.gate": LAYER + "mlp.router",
    "model.layers.{i}.block_sparse_moe.gate": LAYER + "mlp.router",
}
GEMMA = LLAMA | {
    "model.layers.{i}.post_attention_layernorm": LAYER + "attn_post_norm",
    "model.layers.{i}.pre_feedforward_layernorm": LAYER + "mlp_norm",
    "model.layers.{i}.post_feedforward_layernorm": LAYER + "mlp_post_norm",
}
GPT2 = {
    "transformer.wte": "embed",
    "transformer.wpe": "position",
    "lm_head": "lm_head",
    "transformer.ln_f": "norm",
    "transformer.h.{i}.ln_1": LAYER + "attn_norm",
    "transformer.h.{i}.ln_2": LAYER + "mlp_norm",
    "transformer.h.{i}.attn.c_proj": LAYER + "attn.o",
    "transformer.h.{i}.mlp.c_fc": LAYER + "mlp.up",
    "transformer.h.{i}.mlp.c_proj": LAYER + "mlp.down",
}
NEOX = {
    "gpt_neox.embed_in": "embed",
    "gpt_neox.final_layer_norm": "norm",
    "embed_out": "lm_head",
    "gpt_neox.layers.{i}.input_layernorm": LAYER + "attn_norm",
    "gpt_neox.layers.{i}.post_attention_layernorm": LAYER + "mlp_norm",
    "gpt_neox.layers.{i}.attention.dense": LAYER + "attn.o",
    "gpt_neox.layers.{i}.mlp.dense_h_to_4h": LAYER + "mlp.up",
    "gpt_neox.layers.{i}.mlp.dense_4h_to_h": LAYER + "mlp.down",
}
FALCON = {
    "transformer.word_embeddings": "embed",
    "transformer.ln_f": "norm",
    "lm_head": "lm_head",
    "transformer.h.{i}.input_layernorm": LAYER + "attn_norm",
    "transformer.h.{i}.post_attention_layernorm": LAYER + "mlp_norm",
    "transformer.h.{i}.ln_attn": LAYER + "attn_norm",
    "transformer.h.{i}.ln_mlp": LAYER + "mlp_norm",
    "transformer.h.{i}.self_attention.dense": LAYER + "attn.o",
    "transformer.h.{i}.mlp.dense_h_to_4h": LAYER + "mlp.up",
    "transformer.h.{i}.mlp.dense_4h_to_h": LAYER + "mlp.down",
}
NAMES = {
    "gemma2": GEMMA,
    "gemma3_text": GEMMA,
    "olmo2": GEMMA,
    "gpt2": GPT2,
    "gpt_neox": NEOX,
    "falcon": FALCON,
}
ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
ROPE = {
    "factor": "rope_factor",
    "original_max_position_embeddings": "rope_original_context",
    "low_freq_factor": "rope_low_freq_factor",
    "high_freq_factor": "rope_high_freq_factor",
    "beta_fast": "rope_beta_fast",
    "beta_slow": "rope_beta_slow",
    "attention_factor": "rope_attention_factor",
    "mscale": "rope_mscale",
    "mscale_all_dim": "rope_mscale_all_dim",
    "truncate": "rope_truncate",
    "short_factor": "rope_short_factors",
    "long_factor": "rope_long_factors",
    "rope_theta": "rope_theta",
}


def read(folder: Path) -> tuple[dict[str, Any], Tensors]:
    """The decoder's options and weights of a folder that transformers 5 has written."""
    config = configuration(folder)
    return options(config), weights(config, load_file(folder / "model.safetensors"))


def configuration(folder: Path) -> Config:
    """The folder's configuration as transformers 5 spells it, where there are two."""
    newer, usual = folder / "config.newer.json", folder / "config.json"
    found: Config = json.loads((newer if newer.exists() else usual).read_text())
    return found


def knows(folder: Path) -> bool:
    """Whether this reads it: the older spelling, and families not listed here, are left out."""
    config = configuration(folder)
    return config["model_type"] in MODEL_TYPES and "rope_theta" not in config


def options(config: Config) -> dict[str, Any]:
    """The decoder's options of a configuration of transformers 5."""
    kind = config["model_type"]
    common = gpt2(config) if kind == "gpt2" else usual(config)
    return common | FAMILIES.get(kind, lambda _config: {})(config)


def usual(config: Config) -> dict[str, Any]:
    """What most families call alike."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    dim = config.get("head_dim") or hidden // heads
    layers = config["num_hidden_layers"]
    activation = config.get("hidden_activation") or config.get("hidden_act")
    return {
        "vocab_size": config["vocab_size"],
        "hidden_size": hidden,
        "intermediate_size": config.get("intermediate_size"),
        "n_layers": layers,
        "n_heads": heads,
        "n_kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": dim,
        "context_length": config["max_position_embeddings"],
        "norm_eps": config.get("rms_norm_eps"),
        "hidden_act": ACTIVATIONS.get(activation, activation),
        "qkv_bias": config.get("attention_bias", False),
        "o_bias": config.get("attention_bias", False),
        "mlp_bias": config.get("mlp_bias", False),
        "tie_word_embeddings": config.get("tie_word_embeddings", True),
        **rope(config, dim),
        **windows(config),
    }


def rope(config: Config, dim: int) -> dict[str, Any]:
    scaling = config.get("rope_parameters") or {}
    if "full_attention" in scaling:
        local = scaling["sliding_attention"]["rope_theta"]
        whole = rope({"rope_parameters": scaling["full_attention"]}, dim)
        return whole | {"rope_local_theta": local}
    found = {ROPE[key]: _frozen(value) for key, value in scaling.items() if key in ROPE}
    kind = scaling.get("rope_type", "default")
    rotary = int(dim * scaling.get("partial_rotary_factor", 1.0))
    scaled = "none" if kind == "default" else kind
    return found | {"rope_scaling": scaled, "rotary_dim": rotary}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def windows(config: Config) -> dict[str, Any]:
    window, kinds = config.get("sliding_window"), config.get("layer_types")
    if window is None or config.get("use_sliding_window") is False:
        return {}
    sliding = tuple(kind == "sliding_attention" for kind in kinds) if kinds else None
    return {"sliding_window": window, "sliding_layers": sliding}


def gemma(config: Config) -> dict[str, Any]:
    return {
        "block": "sandwich",
        "embed_scale": float(np.float32(config["hidden_size"] ** 0.5)),
        "attention_scale": config["query_pre_attn_scalar"] ** -0.5,
        "attention_softcap": config.get("attn_logit_softcapping"),
        "logits_softcap": config.get("final_logit_softcapping"),
        "qk_norm": "head" if config["model_type"] == "gemma3_text" else "none",
    }


def qwen3_moe(config: Config) -> dict[str, Any]:
    every, plain = config["decoder_sparse_step"], config["mlp_only_layers"]
    layers = range(config["num_hidden_layers"])
    return {
        "qk_norm": "head",
        "n_experts": config.get("num_experts") or config["num_local_experts"],
        "n_experts_used": config["num_experts_per_tok"],
        "expert_size": config["moe_intermediate_size"],
        "norm_topk": config["norm_topk_prob"],
        "expert_layers": tuple(i not in plain and (i + 1) % every == 0 for i in layers),
    }


def falcon(config: Config) -> dict[str, Any]:
    new, heads = config["new_decoder_architecture"], config["num_attention_heads"]
    one = config["multi_query"] and not new
    parallel = "parallel" if new and config.get("num_ln_in_parallel_attn") != 1 else None
    alone = "parallel_shared" if config["parallel_attn"] or new else "pre"
    return {
        "norm": "layer",
        "norm_bias": True,
        "mlp": "plain",
        "norm_eps": config["layer_norm_epsilon"],
        "intermediate_size": config["ffn_hidden_size"],
        "hidden_act": ACTIVATIONS.get(config["activation"], config["activation"]),
        "n_kv_heads": 1 if one else config["num_kv_heads"] if new else heads,
        "block": parallel or alone,
        **dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias"), config["bias"]),
    }


def granite(config: Config) -> dict[str, Any]:
    return {
        "attention_scale": config["attention_multiplier"],
        "embed_scale": config["embedding_multiplier"],
        "residual_scale": config["residual_multiplier"],
        "logits_scale": 1 / config["logits_scaling"],
    }


def gpt2(config: Config) -> dict[str, Any]:
    activation = config["activation_function"]
    return {
        "vocab_size": config["vocab_size"],
        "hidden_size": config["n_embd"],
        "intermediate_size": config["n_inner"] or 4 * config["n_embd"],
        "n_layers": config["n_layer"],
        "n_heads": config["n_head"],
        "n_kv_heads": config["n_head"],
        "head_dim": config["n_embd"] // config["n_head"],
        "context_length": config["n_positions"],
        "norm_eps": config["layer_norm_epsilon"],
        "norm": "layer",
        "norm_bias": True,
        "mlp": "plain",
        "hidden_act": ACTIVATIONS.get(activation, activation),
        "position": "learned",
        "attention_scale": None if config["scale_attn_weights"] else 1.0,
        "tie_word_embeddings": config.get("tie_word_embeddings", True),
        **dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias"), True),
    }


LAYER_NORMS = {"norm": "layer", "norm_bias": True, "mlp": "plain"}
FAMILIES: dict[str, Callable[[Config], dict[str, Any]]] = {
    "qwen2": lambda _: {"qkv_bias": True},
    "qwen3": lambda _: {"qk_norm": "head"},
    "qwen3_moe": qwen3_moe,
    "mixtral": lambda c: {
        "n_experts": c["num_local_experts"],
        "n_experts_used": c["num_experts_per_tok"],
    },
    "gemma2": gemma,
    "gemma3_text": gemma,
    "olmo2": lambda _: {"block": "post", "qk_norm": "full"},
    "granite": granite,
    "smollm3": lambda c: {"rope_layers": tuple(bool(one) for one in c["no_rope_layers"])},
    "starcoder2": lambda c: {
        **LAYER_NORMS,
        "norm_eps": c["norm_epsilon"],
        **dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias"), c["use_bias"]),
    },
    "gpt_neox": lambda c: {
        **LAYER_NORMS,
        "norm_eps": c["layer_norm_eps"],
        "block": "parallel" if c["use_parallel_residual"] else "pre",
        "mlp_bias": True,
    },
    "falcon": falcon,
}
MODEL_TYPES = {"llama", "mistral", "phi3", "gpt2", *FAMILIES}


def weights(config: Config, tensors: Tensors) -> Tensors:
    """The decoder's parameters of a checkpoint."""
    names = NAMES.get(config["model_type"], LLAMA)
    found: Tensors = {}
    for name, value in tensors.items():
        for part, array in split(config, name, value).items():
            stem, _, kind = part.rpartition(".")
            generic, index = _numbered(stem)
            if generic in names:
                found[f"{names[generic].format(i=index)}.{kind}"] = array
            else:
                found[part] = array
    return _stacked(found)


def _numbered(name: str) -> tuple[str, str]:
    """A name with its first number as ``{i}``, and the number."""
    parts = name.split(".")
    places = [place for place, part in enumerate(parts) if part.isdigit()]
    if not places:
        return name, ""
    index, parts[places[0]] = parts[places[0]], "{i}"
    return ".".join(parts), index


def split(config: Config, name: str, value: Array) -> Tensors:
    """What one tensor holds, by name: fused projections apart, and all as the decoder has them."""
    kind, given = config["model_type"], name.split(".")
    if kind == "gpt2" and given[-1] == "weight" and value.ndim == 2 and "c_" in name:
        value = value.T
    if kind.startswith("gemma") and "norm" in name:
        value = 1 + value
    layer = next((part for part in given if part.isdigit()), "")
    if given[-2] in ("c_attn", "query_key_value", "qkv_proj"):
        return {f"layers.{layer}.attn.{p}.{given[-1]}": v for p, v in fused(config, value).items()}
    if given[-2] == "gate_up_proj":
        gate, up = np.split(value, 2)
        return {f"layers.{layer}.mlp.gate.weight": gate, f"layers.{layer}.mlp.up.weight": up}
    return {name: value}


def fused(config: Config, value: Array) -> dict[str, Array]:
    """Queries, keys and values of one tensor: one after the other, or by groups of heads."""
    found = options(config)
    heads, kv, dim = found["n_heads"], found["n_kv_heads"], found["head_dim"]
    if config["model_type"] in ("gpt2", "phi3") or (config["model_type"] == "falcon" and kv == 1):
        cuts = np.cumsum([heads * dim, kv * dim])
        return dict(zip("qkv", np.split(value, cuts), strict=True))
    grouped = value.reshape(kv, heads // kv + 2, dim, *value.shape[1:])
    parts = {"q": grouped[:, :-2], "k": grouped[:, -2:-1], "v": grouped[:, -1:]}
    return {name: part.reshape(-1, *value.shape[1:]) for name, part in parts.items()}


MIXTRAL = {"w1": "gate", "w2": "down", "w3": "up"}


def _stacked(found: Tensors) -> Tensors:
    """Matrices of experts, each a tensor of its own, as one of all."""
    experts: dict[str, dict[int, Array]] = {}
    for name in [name for name in found if ".experts." in name]:
        parts = name.split(".")
        which = MIXTRAL.get(parts[-2]) or parts[-2].removesuffix("_proj")
        stacked = f"layers.{parts[2]}.mlp.{which}.weight"
        experts.setdefault(stacked, {})[int(parts[-3])] = found.pop(name)
    return found | {
        name: np.stack([each[index] for index in sorted(each)]) for name, each in experts.items()
    }
