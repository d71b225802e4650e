"""Random configurations of families whose configurations list the layers that have a window."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_expert_families import experts, granitemoe, grouped, mlp_kinds
from tests.data.random_options import (
    FLAGS,
    LAYER_NORM,
    SHARES,
    THETAS,
    WINDOW,
    Config,
    Draw,
    kinds,
    partial,
    renamed,
    two_bases,
    usual,
    without,
)


def listed(draw: Draw, config: Config) -> Config:
    """A configuration that lists the kinds of its layers, or does not."""
    named = {"layer_types": kinds(draw, config["num_hidden_layers"])}
    return config | (named if draw(FLAGS) else {})


def _ministral(draw: Draw) -> Config:
    return listed(draw, usual(draw, sliding_window=WINDOW))


def _mellum(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        sliding_window=WINDOW,
        moe_intermediate_size=st.integers(3, 21),
        norm_topk_prob=FLAGS,
    )
    config |= {"mlp_layer_types": mlp_kinds(draw, config)} if draw(FLAGS) else {}
    return listed(draw, experts(draw, two_bases(draw, config), "num_experts"))


def _with_bases(draw: Draw, config: Config) -> Config:
    """A configuration with a rotary base for each layer, which is that of all or none."""
    base = config["rope_parameters"]["rope_theta"]
    layers = config["num_hidden_layers"]
    bases = draw(st.lists(st.sampled_from([0, base]), min_size=layers, max_size=layers))
    return config | ({"layer_rope_theta": bases} if draw(FLAGS) else {})


def _granite_swa(draw: Draw) -> Config:
    scales = st.floats(0.1, 1.5)
    config = usual(
        draw,
        attention_bias=FLAGS,
        mlp_bias=FLAGS,
        sliding_window=WINDOW,
        attention_multiplier=scales,
        embedding_multiplier=scales,
        logits_scaling=scales,
        residual_multiplier=scales,
    )
    return _with_bases(draw, listed(draw, config))


def _granitemoe_swa(draw: Draw) -> Config:
    config = granitemoe(draw) | {"sliding_window": draw(WINDOW)}
    shared = {"shared_intermediate_size": draw(st.one_of(st.just(0), st.integers(3, 21)))}
    return _with_bases(draw, listed(draw, config | shared))


def _cohere2_moe(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        sliding_window=WINDOW,
        logit_scale=st.floats(0.05, 2.0),
        num_shared_experts=st.integers(0, 2),
        shared_expert_combination_strategy=st.sampled_from(["average", "sum"]),
        expert_selection_fn=st.sampled_from(["softmax", "sigmoid"]),
        norm_topk_prob=FLAGS,
        prefix_dense_sliding_window_pattern=st.sampled_from([1, 4]),
        prefix_dense_intermediate_size=st.one_of(st.none(), st.integers(3, 37)),
    )
    config |= {"rope_theta": config["rope_parameters"]["rope_theta"]}  # its class says it twice
    if draw(FLAGS):  # a layer norm
        config = renamed(config, LAYER_NORM)
    config |= {"mlp_layer_types": mlp_kinds(draw, config)} if draw(FLAGS) else {}
    return experts(draw, listed(draw, config), "num_experts")


def _laguna(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        sliding_window=WINDOW,
        gating=st.sampled_from([True, "per-head", "per-element"]),
        moe_intermediate_size=st.integers(3, 21),
        shared_expert_intermediate_size=st.integers(3, 21),
        moe_routed_scaling_factor=st.floats(0.5, 3.0),
        moe_router_logit_softcapping=st.one_of(st.just(0.0), st.floats(0.2, 5.0)),
    )
    layers, shared = config["num_hidden_layers"], config["num_key_value_heads"]
    if draw(FLAGS):
        counts = st.lists(st.integers(1, 3), min_size=layers, max_size=layers)
        own = {"num_attention_heads_per_layer": [shared * count for count in draw(counts)]}
        config |= own
    tables = two_bases(draw, partial(draw, config))
    share = draw(SHARES)
    share = share if int(config["head_dim"] * share) % 2 == 0 else 1.0
    tables["rope_parameters"]["sliding_attention"] |= {"partial_rotary_factor": share}
    config = config | tables
    config |= {"mlp_layer_types": mlp_kinds(draw, config)} if draw(FLAGS) else {}
    return listed(draw, experts(draw, config, "num_experts"))


def _mimo(draw: Draw) -> Config:
    config = usual(
        draw,
        attention_bias=FLAGS,
        sliding_window=WINDOW,
        v_head_dim=st.integers(1, 14),
        attention_value_scale=st.sampled_from([None, 0.707, 1.6]),
    )
    per_head = draw(st.integers(1, 2))  # of keys in layers with a window
    config |= {"num_attention_heads": 2 * config["num_key_value_heads"] * per_head}
    if draw(FLAGS):
        config |= {"sliding_window_size": draw(WINDOW)}
    config |= {"rope_parameters": {kind: _turned(draw, config) for kind in ATTENTION}}
    config = without(grouped(draw, config), "n_shared_experts", "first_k_dense_replace")
    config |= {"mlp_layer_types": mlp_kinds(draw, config)} if draw(FLAGS) else {}
    return listed(draw, config)


ATTENTION = ("full_attention", "sliding_attention")


def _turned(draw: Draw, config: Config) -> Config:
    """A table of rotary positions without a scaling, of a share of each head."""
    share = draw(SHARES)
    share = share if int(config["head_dim"] * share) % 2 == 0 else 1.0
    return {"rope_type": "default", "rope_theta": draw(THETAS), "partial_rotary_factor": share}


WINDOWED: Mapping[str, Callable[[Draw], Config]] = {
    "ministral": _ministral,
    "mellum": _mellum,
    "granite_swa": _granite_swa,
    "granitemoe_swa": _granitemoe_swa,
    "cohere2_moe": _cohere2_moe,
    "laguna": _laguna,
    "mimo_v2_flash": _mimo,
}


def sayable_windowed(model_type: str, config: Config) -> Config:
    """Bases of rotation and experts as llama.cpp's converter says them."""
    if model_type == "mellum":
        return without(config, "mlp_layer_types")
    if model_type == "mimo_v2_flash":
        shares = [table["partial_rotary_factor"] for table in config["rope_parameters"].values()]
        share = {"partial_rotary_factor": shares[0]}
        tables = {kind: table | share for kind, table in config["rope_parameters"].items()}
        return without(config, "sliding_window_size") | {"rope_parameters": tables}
    if model_type == "laguna":
        layers = config["num_hidden_layers"]
        # In the order in which it takes for granted that they come.
        kinds_first = sorted(config.get("mlp_layer_types") or ["dense"] + ["sparse"] * (layers - 1))
        windows = ["full_attention", *["sliding_attention"] * 3] * layers
        return config | {"mlp_layer_types": kinds_first, "layer_types": windows[:layers]}
    if model_type == "cohere2_moe":
        kinds_first = sorted(config.get("mlp_layer_types") or ())  # dense ones first
        told = {"mlp_layer_types": kinds_first} if kinds_first else {}
        granted = {"norm_topk_prob": True, "prefix_dense_sliding_window_pattern": 1}
        softmax = config["expert_selection_fn"] == "softmax"
        told |= {"rope_theta": config["rope_parameters"]["rope_theta"]}
        return config | told | (granted if softmax else without(granted, "norm_topk_prob"))
    if "layer_rope_theta" in config:
        base = config["rope_parameters"]["rope_theta"]
        bases = [base if each else 0 for each in config["layer_rope_theta"]]
        config = config | {"layer_rope_theta": bases}
    return config
