"""Random configurations of families with experts, whose layers have attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_dense_families import exaone4, hunyuan
from tests.data.random_options import (
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
    partial,
    quotient,
    renamed,
    usual,
    without,
)


def experts(draw: Draw, config: Config, count: str, used: str = "num_experts_per_tok") -> Config:
    """A configuration with a number of experts, some of which are used."""
    total = draw(st.integers(2, 6))
    return config | {count: total, used: draw(st.integers(1, total))}


def grouped(draw: Draw, config: Config) -> Config:
    """Experts as DeepSeek-V3's configurations have them: in groups, some of which are used."""
    groups = draw(st.integers(1, 3))
    used, size = draw(st.integers(1, groups)), draw(st.integers(2, 3))
    return config | {
        "n_routed_experts": groups * size,
        "n_group": groups,
        "topk_group": used,
        "num_experts_per_tok": draw(st.integers(1, used * size)),
        "n_shared_experts": draw(st.integers(1, 2)),
        "moe_intermediate_size": draw(st.integers(3, 21)),
        "routed_scaling_factor": draw(st.floats(0.5, 3.0)),
        "first_k_dense_replace": draw(st.integers(0, 2)),
        "norm_topk_prob": draw(FLAGS),
    }


def _olmoe(draw: Draw) -> Config:
    bounds = st.one_of(st.none(), st.floats(0.3, 3.0))
    config = usual(
        draw, explicit=False, attention_bias=FLAGS, clip_qkv=bounds, norm_topk_prob=FLAGS
    )
    return experts(draw, quotient(config), "num_experts")


def _qwen2_moe(draw: Draw) -> Config:
    config = usual(
        draw,
        explicit=False,
        use_sliding_window=FLAGS,
        sliding_window=WINDOW,
        max_window_layers=st.integers(1, 4),
        moe_intermediate_size=st.integers(3, 21),
        shared_expert_intermediate_size=st.integers(3, 21),
        norm_topk_prob=FLAGS,
        decoder_sparse_step=st.integers(1, 2),
        mlp_only_layers=st.lists(st.integers(0, 3), max_size=2),
        qkv_bias=FLAGS,
    )
    listed = draw(FLAGS) and config["use_sliding_window"]
    found = {"layer_types": kinds(draw, config["num_hidden_layers"])} if listed else {}
    return experts(draw, quotient(config), "num_experts") | found


def granitemoe(draw: Draw) -> Config:
    scales = st.floats(0.1, 4.0)
    config = usual(
        draw,
        explicit=False,
        attention_bias=FLAGS,
        attention_multiplier=scales,
        embedding_multiplier=scales,
        logits_scaling=scales,
        residual_multiplier=scales,
    )
    return experts(draw, quotient(config), "num_local_experts")


def _granitemoeshared(draw: Draw) -> Config:
    return granitemoe(draw) | {"shared_intermediate_size": draw(st.integers(3, 21))}


def _glm4_moe(draw: Draw) -> Config:
    config = usual(draw, attention_bias=FLAGS, use_qk_norm=FLAGS)
    return grouped(draw, partial(draw, config)) | {"num_nextn_predict_layers": 0}


def _dots1(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        sliding_window=WINDOWS,
        max_window_layers=st.integers(1, 4),
    )
    return grouped(draw, config)


def _minimax_m2(draw: Draw) -> Config:
    config = partial(draw, usual(draw))
    return experts(draw, config, "num_local_experts")


def _afmoe(draw: Draw) -> Config:
    config = usual(
        draw,
        moe_intermediate_size=st.integers(3, 21),
        num_shared_experts=st.integers(1, 2),
        num_dense_layers=st.integers(0, 1),
        route_scale=st.floats(0.5, 3.0),
        global_attn_every_n_layers=st.integers(2, 4),
        sliding_window=WINDOW,
        mup_enabled=FLAGS,
        attention_bias=FLAGS,
    )
    listed = {"layer_types": kinds(draw, config["num_hidden_layers"])} if draw(FLAGS) else {}
    return experts(draw, config, "num_experts") | listed


def _gpt_oss(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        sliding_window=WINDOW,
        swiglu_limit=st.floats(0.3, 7.0),
        swiglu_alpha=st.floats(0.5, 2.0),
    )
    listed = {"layer_types": kinds(draw, config["num_hidden_layers"])} if draw(FLAGS) else {}
    return experts(draw, config, "num_local_experts") | listed | {"hidden_act": "silu"}


def _flex_olmo(draw: Draw) -> Config:
    config = usual(draw, explicit=False, attention_bias=FLAGS, norm_topk_prob=FLAGS)
    return experts(draw, quotient(config), "num_experts")


def _solar_open(draw: Draw) -> Config:
    config = grouped(draw, usual(draw, attention_bias=FLAGS))
    return without(config, "first_k_dense_replace", "intermediate_size")


def _hunyuan_moe(draw: Draw) -> Config:
    config = experts(draw, hunyuan(draw), "num_experts", "moe_topk")
    layers = config["num_hidden_layers"]
    return config | ({"moe_topk": [config["moe_topk"]] * layers} if draw(FLAGS) else {})


def _ernie4_5_moe(draw: Draw) -> Config:
    config = usual(
        draw,
        explicit=False,
        use_bias=FLAGS,
        moe_intermediate_size=st.integers(3, 21),
        moe_num_shared_experts=st.integers(0, 2),
        moe_layer_interval=st.integers(1, 2),
        moe_layer_start_index=st.integers(0, 2),
        moe_layer_end_index=st.sampled_from([-1, 1, 2]),
    )
    return experts(draw, quotient(config), "moe_num_experts", "moe_k")


def _exaone_moe(draw: Draw) -> Config:
    config = grouped(draw, exaone4(draw))
    if config["sliding_window"] is None:
        config |= {"sliding_window": draw(WINDOW)}
    listed = mlp_kinds(draw, config)
    names = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}
    return renamed(config, names) | ({"mlp_layer_types": listed} if draw(FLAGS) else {})


def _hy_v3(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        mlp_bias=FLAGS,
        moe_intermediate_size=st.integers(3, 21),
        num_shared_experts=st.integers(1, 2),
        router_scaling_factor=st.floats(0.5, 3.0),
        enable_moe_fp32_combine=FLAGS,
    )
    config |= {"mlp_layer_types": mlp_kinds(draw, config)} if draw(FLAGS) else {}
    return experts(draw, config, "num_experts")


def mlp_kinds(draw: Draw, config: Config) -> list[str]:
    """A kind of MLP for each layer."""
    layers = config["num_hidden_layers"]
    kind = st.sampled_from(["dense", "sparse"])
    return draw(st.lists(kind, min_size=layers, max_size=layers))


def _phimoe(draw: Draw) -> Config:
    """Within the original context, or with factors that are the same beyond it.

    Transformers keeps the short factors for longer texts, too; the published code does not.
    """
    config = common(draw) | heads(draw) | {"sliding_window": draw(WINDOWS)}
    config |= {name: draw(FLAGS) for name in ("attention_bias", "lm_head_bias")}
    config |= {"router_jitter_noise": draw(st.sampled_from([0.01, 0.05, 0.3]))}
    config |= {"num_local_experts": draw(st.integers(2, 6)), "num_experts_per_tok": 2}
    table: Config = {"rope_type": "default", "rope_theta": draw(THETAS)}
    original = draw(st.integers(LONGEST, 60))
    if draw(FLAGS):
        factors = longrope(draw, config["head_dim"] // 2)
        if draw(FLAGS):
            original = factors["original_max_position_embeddings"]
            factors["long_factor"] = factors["short_factor"]
        kept = {name: factors[name] for name in ("short_factor", "long_factor")}
        scales = {f"{name}_mscale": draw(st.floats(0.5, 2.0)) for name in ("short", "long")}
        kept |= {"original_max_position_embeddings": original}
        table = table | {"rope_type": "longrope"} | kept | scales
    return config | {"rope_parameters": table, "original_max_position_embeddings": original}


def sayable_phimoe(config: Config) -> Config:
    """Heads of the usual size, and what cosines and sines are multiplied by, as contexts say it."""
    size = config["num_attention_heads"] * config["head_dim"]
    config = without(config | {"hidden_size": size}, "head_dim")
    table, original = config["rope_parameters"], config["original_max_position_embeddings"]
    if table["rope_type"] == "default":
        return config
    stretch = config["max_position_embeddings"] / original
    scale = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    return config | {"rope_parameters": table | {"short_mscale": scale, "long_mscale": scale}}


WITH_EXPERTS: Mapping[str, Callable[[Draw], Config]] = {
    "olmoe": _olmoe,
    "qwen2_moe": _qwen2_moe,
    "granitemoe": granitemoe,
    "granitemoeshared": _granitemoeshared,
    "glm4_moe": _glm4_moe,
    "dots1": _dots1,
    "minimax_m2": _minimax_m2,
    "afmoe": _afmoe,
    "gpt_oss": _gpt_oss,
    "flex_olmo": _flex_olmo,
    "solar_open": _solar_open,
    "hunyuan_v1_moe": _hunyuan_moe,
    "ernie4_5_moe": _ernie4_5_moe,
    "exaone_moe": _exaone_moe,
    "phimoe": _phimoe,
    "hy_v3": _hy_v3,
}
