"""Configurations in the keys of transformers 4, which most checkpoints have."""

from __future__ import annotations

from tests.data.random_families import NEWER_ALONE
from tests.data.random_layer_input_families import published_shapes
from tests.data.random_options import Config


def _published_modernbert(older: Config, tables: Config) -> Config:
    if "global_attn_every_n_layers" in older:
        older.pop("layer_types")
    return older | {
        "global_rope_theta": tables["full_attention"]["rope_theta"],
        "local_rope_theta": tables["sliding_attention"]["rope_theta"],
        "layer_norm_eps": older["norm_eps"],
    }


# What transformers writes of experts where Nemotron-H has none, and of tokens further on.
UNUSED = ("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size")
UNUSED += ("moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "norm_topk_prob")
UNUSED += ("moe_latent_size", "routed_scaling_factor", "n_group", "topk_group")
UNUSED += ("num_nextn_predict_layers", "mtp_layers_block_type")
LETTERS = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}


def _published_nemotron_h(older: Config) -> Config:
    pattern = "".join(LETTERS[kind] for kind in older["layers_block_type"])
    unused = () if "E" in pattern else UNUSED
    kept = {key: value for key, value in older.items() if key not in unused}
    kept.pop("layers_block_type")
    return kept | {"hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern)}


def _published_kimi_linear(older: Config) -> Config:
    kinds, dense = older.pop("layer_types"), older.pop("mlp_layer_types")
    listed = {
        name: [number for number, one in enumerate(kinds, 1) if one == kind]
        for name, kind in (("full_attn_layers", "full"), ("kda_layers", "linear"))
        for kind in (f"{kind}_attention",)
    }
    names = {
        "linear_head_dim": "head_dim",
        "linear_num_heads": "num_heads",
        "linear_conv_kernel_dim": "short_conv_kernel_size",
    }
    sizes = {name: older.pop(key) for key, name in names.items()}
    first = dense.count("dense")
    said = {"mlp_layer_types": dense} if dense != sorted(dense) else {}
    return (
        older
        | said
        | {
            "head_dim": older["hidden_size"] // older["num_attention_heads"],
            "first_k_dense_replace": first,
            "linear_attn_config": listed | sizes,
            "mla_use_nope": True,
            "moe_layer_freq": 1,
            "moe_router_activation_func": "sigmoid",
            "num_nextn_predict_layers": 0,
            "rope_scaling": None,
            "rope_theta": 10000.0,
            "use_grouped_topk": True,
        }
    )


def _published_indexes(older: Config) -> Config:
    """Without what transformers makes of other keys and writes beside them."""
    drawn = ("index_topk_freq", "index_topk_pattern", "index_skip_topk_offset")
    made = ["layer_types", *(["indexer_types"] if any(key in older for key in drawn) else [])]
    layers, first = older["num_hidden_layers"], older.get("first_k_dense_replace", 3)
    kinds = ["dense" if layer < first else "sparse" for layer in range(layers)]
    made += ["mlp_layer_types"] if older.get("mlp_layer_types") == kinds else []
    return {key: value for key, value in older.items() if key not in made}


def published(newer: Config) -> Config:
    """The same configuration in the keys of transformers 4, as most checkpoints have it."""
    older = dict(newer)
    if older["model_type"] == "kimi_linear":
        return older if "linear_attn_config" in older else _published_kimi_linear(older)
    if "index_topk" in older:
        older = _published_indexes(older)
    if "layers_block_type" in older and older["model_type"] == "nemotron_h":
        return _published_nemotron_h(older)
    if "per_layer_config" in older:
        return published_shapes(older)
    if older["model_type"] in NEWER_ALONE:
        return older
    table = dict(older.pop("rope_parameters", None) or {})
    if older["model_type"] == "modernbert" and table:
        return _published_modernbert(older, table)
    key = "type"
    if "full_attention" in table:
        # Transformers reads no other key of Gemma 3; nor do its published configurations have one.
        key = "rope_type"
        older["rope_local_base_freq"] = table["sliding_attention"]["rope_theta"]
        table = dict(table["full_attention"])
    if table:
        theta, share = table.pop("rope_theta"), table.pop("partial_rotary_factor", None)
        neox = older["model_type"] == "gpt_neox"
        older["rotary_emb_base" if neox else "rope_theta"] = theta
        if older["model_type"] == "bamba":  # transformers takes it for granted
            share = 0.5
            rotated = older["hidden_size"] // older["num_attention_heads"] // 2
            older["attn_rotary_emb"] = rotated
            for name in {"short_factor", "long_factor"} & table.keys():
                table[name] = (4 * table[name])[: rotated // 2]
        if share is not None:
            older["rotary_pct" if neox else "partial_rotary_factor"] = share
        kind = table.pop("rope_type")
        older["rope_scaling"] = None if kind == "default" else {**table, key: kind}
    if "dtype" in older:
        older["torch_dtype"] = older.pop("dtype")
    return older
