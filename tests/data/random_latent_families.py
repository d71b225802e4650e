"""Random configurations of families with latent attention, as ``random_families.py`` has others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_expert_families import grouped
from tests.data.random_families import SILU
from tests.data.random_options import FLAGS, LONGEST, Config, Draw, renamed, usual, without

RANKS = st.integers(2, 17)
WIDTHS = st.integers(1, 9)


def _latent(draw: Draw, **options: st.SearchStrategy[object]) -> Config:
    """A configuration with latents, whose heads have as many of keys as of queries."""
    config = usual(
        draw,
        attention_bias=FLAGS,
        kv_lora_rank=RANKS,
        q_lora_rank=st.none() | RANKS,
        qk_nope_head_dim=WIDTHS,
        v_head_dim=WIDTHS,
        **options,
    )
    turned, count = config["head_dim"], config["num_attention_heads"]
    config |= {"qk_rope_head_dim": turned, "hidden_size": 2 * count * draw(st.integers(1, 6))}
    return without(config, "head_dim") | {"num_key_value_heads": count}


def _in_groups(draw: Draw, config: Config) -> Config:
    config = grouped(draw, config)
    first = min(config["first_k_dense_replace"], config["num_hidden_layers"])
    return config | {"first_k_dense_replace": first}


def _deepseek_v3(draw: Draw) -> Config:
    # None is saved, of those that predict further tokens.
    return _in_groups(draw, _latent(draw)) | {"num_nextn_predict_layers": 0}


def _deepseek_v2(draw: Draw) -> Config:
    config = _in_groups(draw, _latent(draw, mlp_bias=FLAGS)) | {"norm_topk_prob": False}
    # Transformers takes pairs for complex numbers, which begin at even places.
    config |= {key: 2 * config[key] for key in ("kv_lora_rank", "qk_nope_head_dim")}
    return config | {"topk_method": "group_limited_greedy" if config["n_group"] > 1 else "greedy"}


def _glm4_moe_lite(draw: Draw) -> Config:
    config = without(_deepseek_v3(draw), "first_k_dense_replace")
    layers = config["num_hidden_layers"]
    listed = draw(st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers))
    return config | ({"mlp_layer_types": listed} if draw(FLAGS) else {})


def _indexed(draw: Draw) -> Config:
    """Latents with an index, of so many heads that hardly any score is zero: no two are equal."""
    config = _deepseek_v3(draw)
    layers, turned = config["num_hidden_layers"], config["qk_rope_head_dim"]
    listed = draw(st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers))
    return (
        config
        | {"mlp_bias": False, "q_lora_rank": draw(RANKS)}
        | {
            "index_topk": draw(st.integers(1, LONGEST + 5)),
            "index_head_dim": turned + draw(st.integers(0, 7)),
            "index_n_heads": draw(st.integers(14, 18)),
        }
        | ({"mlp_layer_types": listed} if draw(FLAGS) else {})
    )


def _glm_moe_dsa(draw: Draw) -> Config:
    config = _indexed(draw)
    kinds = st.lists(st.sampled_from(["full", "shared"]), max_size=config["num_hidden_layers"] - 1)
    listed = ["full", *draw(kinds)]
    listed += ["shared"] * (config["num_hidden_layers"] - len(listed))
    spelling = draw(st.sampled_from(["types", "letters", "pattern", "period"]))
    if spelling == "types":
        return config | {"indexer_types": listed}
    if spelling == "letters":
        letters = "".join(kind[0].upper() for kind in listed)
        return config | {"index_topk_pattern": letters, "index_topk_freq": 1}
    if spelling == "pattern":
        return config | {"index_topk_pattern": listed}
    numbers = {"index_topk_freq": draw(st.integers(0, 3))}
    return config | numbers | ({"index_skip_topk_offset": draw(st.integers(1, 3))})


def _minicpm3(draw: Draw) -> Config:
    config = _latent(
        draw,
        mlp_bias=FLAGS,
        scale_emb=st.sampled_from([1, 2.5, 12]),
        scale_depth=st.none() | st.floats(0.5, 3.0),
        dim_model_base=st.none() | st.integers(1, 9),
    )
    return config | ({"v_head_dim": None} if draw(FLAGS) else {})


def _youtu(draw: Draw) -> Config:
    # Transformers would clear the embedding of such a token when it loads a model.
    return _latent(draw) | {"pad_token_id": None}


def _kimi_linear(draw: Draw) -> Config:
    config = _in_groups(draw, _latent(draw))
    names = {
        "n_routed_experts": "num_experts",
        "n_group": "num_expert_group",
        "num_experts_per_tok": "num_experts_per_token",
        "n_shared_experts": "num_shared_experts",
        "norm_topk_prob": "moe_renormalize",
        "max_position_embeddings": "model_max_length",
    }
    layers = max(2, config["num_hidden_layers"])
    # Transformers counts tokens by a layer with attention, and is told by one without.
    attends = draw(st.sets(st.integers(0, layers - 1), min_size=1, max_size=layers - 1))
    kinds = ["full_attention" if n in attends else "linear_attention" for n in range(layers)]
    first = config["first_k_dense_replace"]
    dense = [n < first if draw(FLAGS) else draw(FLAGS) for n in range(layers)]
    unknown = ("first_k_dense_replace", "rope_parameters", "tie_word_embeddings")
    return without(renamed(config, names), *unknown) | {
        "model_max_length": draw(st.integers(LONGEST, 128)),
        "num_hidden_layers": layers,
        "layer_types": kinds,
        "mlp_layer_types": ["dense" if flag else "sparse" for flag in dense],
        # The norm of one number is its sign, and that of a few little else.
        "hidden_size": 4 * config["hidden_size"],
        "linear_head_dim": draw(st.integers(3, 9)),
        "linear_num_heads": config["num_attention_heads"] + draw(st.integers(0, 1)),
        "linear_conv_kernel_dim": draw(st.integers(2, 5)),
    }


def _halves(family: Callable[[Draw], Config]) -> Callable[[Draw], Config]:
    """The family with rotated elements that are not kept in pairs."""
    return lambda draw: family(draw) | {"rope_interleave": False}


LATENT: Mapping[str, Callable[[Draw], Config]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "glm4_moe_lite": _glm4_moe_lite,
    "deepseek_v32": _indexed,
    "glm_moe_dsa": _glm_moe_dsa,
    "minicpm3": _minicpm3,
    "youtu": _youtu,
    "kimi_linear": _kimi_linear,
    "deepseek_v3_halves": _halves(_deepseek_v3),
    "glm4_moe_lite_halves": _halves(_glm4_moe_lite),
    "youtu_halves": _halves(_youtu),
}
# Those of which a choice of keys hangs on the order of scores.
SPARSE = ("deepseek_v32", "glm_moe_dsa")
_GRANTED = SILU | {"attention_bias": False, "rms_norm_eps": 1e-6}
LATENT_GRANTED: Mapping[str, Config] = {
    "deepseek_v2": _GRANTED | {"mlp_bias": False},
    "deepseek_v3": _GRANTED,
    "glm4_moe_lite": _GRANTED,
    **dict.fromkeys(SPARSE, _GRANTED),
    "minicpm3": _GRANTED
    | {"mlp_bias": False, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}
    | {"q_lora_rank": 7, "v_head_dim": None},
    "youtu": _GRANTED,
    **dict.fromkeys(("deepseek_v3_halves", "glm4_moe_lite_halves", "youtu_halves"), _GRANTED),
    "kimi_linear": _GRANTED | {"moe_renormalize": True, "num_expert_group": 1, "topk_group": 1},
}
