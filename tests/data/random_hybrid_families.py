"""Random configurations of families with states or convolutions in some layers, or in all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from tests.data.random_expert_families import experts, granitemoe, grouped
from tests.data.random_options import (
    ACTIVATIONS,
    EPS,
    FLAGS,
    SQUARED,
    WINDOW,
    Config,
    Draw,
    common,
    heads,
    partial,
    quotient,
    renamed,
    rotated_by_kind,
    usual,
    without,
)

KINDS_OF_MIXERS = st.sampled_from(["linear_attention", "full_attention"])


def _lfm2(draw: Draw) -> Config:
    config = usual(
        draw,
        conv_bias=FLAGS,
        conv_L_cache=st.integers(2, 5),
        block_auto_adjust_ff_dim=FLAGS,
        block_ffn_dim_multiplier=st.sampled_from([1.0, 0.75, 1.3]),
        block_multiple_of=st.integers(1, 9),
    )
    layers = config["num_hidden_layers"]
    kinds_of_layers = st.sampled_from(["conv", "full_attention"])
    listed = draw(st.lists(kinds_of_layers, min_size=layers, max_size=layers))
    listed[draw(st.integers(0, layers - 1))] = "full_attention"  # one that transformers counts by
    config = renamed(without(config, "hidden_act"), {"rms_norm_eps": "norm_eps"})
    return config | ({"layer_types": listed} if draw(FLAGS) else {"full_attn_idxs": [layers - 1]})


def _lfm3(draw: Draw) -> Config:
    options = {
        "attention_bias": FLAGS,
        "conv_bias": FLAGS,
        "conv_L_cache": st.integers(2, 7),
        "use_sandwich_norm": FLAGS,
        "use_attention_gate": FLAGS,
        "sliding_window": WINDOW,
    }
    config = without(usual(draw, **options), "hidden_act")
    layers = config["num_hidden_layers"]
    kinds_of_layers = st.sampled_from(["conv", "full_attention", "sliding_attention"])
    config["layer_types"] = draw(st.lists(kinds_of_layers, min_size=layers, max_size=layers))
    config["layer_types"][draw(st.integers(0, layers - 1))] = "full_attention"
    config["rope_parameters"] = rotated_by_kind(draw)
    return renamed(config, {"rms_norm_eps": "norm_eps"})


def _lfm2_moe(draw: Draw) -> Config:
    config = _lfm2(draw)
    for key in ("block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of"):
        config.pop(key)
    layers = config["num_hidden_layers"]
    if (numbers := config.pop("full_attn_idxs", None)) is not None:
        kinds_of_layers = {True: "full_attention", False: "conv"}
        config["layer_types"] = [kinds_of_layers[layer in numbers] for layer in range(layers)]
    options = {
        "moe_intermediate_size": draw(st.integers(3, 21)),
        "num_dense_layers": draw(st.integers(0, layers - 1)),
        "use_expert_bias": draw(FLAGS),
        "norm_topk_prob": draw(FLAGS),
        "routed_scaling_factor": draw(st.floats(0.5, 3.0)),
    }
    return experts(draw, config, "num_experts") | options


def _delta_net(draw: Draw, **options: st.SearchStrategy[Any]) -> Config:
    """Layers by the gated delta rule, and some with attention."""
    config = usual(draw, attention_bias=FLAGS, **options)
    key_heads = draw(st.integers(1, 3))
    config |= {
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": key_heads * draw(st.integers(1, 3)),
        "linear_key_head_dim": draw(st.integers(2, 7)),
        "linear_value_head_dim": draw(st.integers(2, 7)),
        "linear_conv_kernel_dim": draw(st.integers(2, 5)),
    }
    layers = config["num_hidden_layers"]
    listed = draw(st.lists(KINDS_OF_MIXERS, min_size=layers, max_size=layers))
    listed[draw(st.integers(0, layers - 1))] = "full_attention"  # one that transformers counts by
    return partial(draw, config) | {"layer_types": listed}


def _qwen3_next(draw: Draw) -> Config:
    config = _delta_net(
        draw,
        moe_intermediate_size=st.integers(3, 21),
        shared_expert_intermediate_size=st.integers(3, 21),
        norm_topk_prob=FLAGS,
        decoder_sparse_step=st.integers(1, 2),
        mlp_only_layers=st.lists(st.integers(0, 3), max_size=2),
    )
    return experts(draw, config, "num_experts")


def _qwen3_5(draw: Draw) -> Config:
    config = _delta_net(draw)
    sections = {"mrope_section": [11, 11, 10], "mrope_interleaved": True}
    return config | {"rope_parameters": config["rope_parameters"] | sections}


def _qwen3_5_moe(draw: Draw) -> Config:
    config = _qwen3_5(draw)
    if draw(FLAGS):  # no layer has an MLP of that width, and published configurations say none
        config = without(config, "intermediate_size")
    sizes = {
        key: draw(st.integers(3, 21))
        for key in ("moe_intermediate_size", "shared_expert_intermediate_size")
    }
    return experts(draw, config, "num_experts") | sizes


def _state_sizes(draw: Draw, config: Config) -> Config:
    """The sizes of state spaces; their heads are together an even number of times as wide."""
    groups, expand = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    heads = groups * draw(st.integers(1, 3))
    inner = expand * config["hidden_size"]
    while inner % heads:
        heads -= 1
    return config | {
        "mamba_n_groups": groups if heads % groups == 0 else 1,
        "mamba_n_heads": heads,
        "mamba_d_head": inner // heads,
        "mamba_d_state": draw(st.integers(2, 7)),
        "mamba_d_conv": draw(st.integers(2, 5)),
        "mamba_expand": expand,
        "mamba_conv_bias": draw(FLAGS),
        "mamba_proj_bias": draw(FLAGS),
    }


def _granitemoehybrid(draw: Draw) -> Config:
    config = _state_sizes(draw, granitemoe(draw))
    layers = max(2, config["num_hidden_layers"])
    listed = draw(st.lists(KINDS_OF_MIXERS, min_size=layers, max_size=layers))
    place = draw(
        st.integers(0, layers - 1)
    )  # one of each kind, of which transformers counts by one
    listed[place - 1], listed[place] = "linear_attention", "full_attention"
    sizes = {
        "num_hidden_layers": layers,
        "layer_types": listed,
        "position_embedding_type": draw(st.sampled_from(["rope", "nope", None])),
        "shared_intermediate_size": draw(st.integers(3, 21)),
    }
    return config | sizes


def _granitehybrid(draw: Draw) -> Config:
    config = _granitemoehybrid(draw)
    dense = {"num_local_experts": 0, "num_experts_per_tok": 0}
    return config | dense | {"intermediate_size": config["shared_intermediate_size"]}


def _mamba2(draw: Draw) -> Config:
    config = _state_sizes(draw, common(draw) | {"hidden_size": draw(st.integers(3, 24))})
    names = {
        "mamba_n_groups": "n_groups",
        "mamba_n_heads": "num_heads",
        "mamba_d_head": "head_dim",
        "mamba_d_state": "state_size",
        "mamba_d_conv": "conv_kernel",
        "mamba_expand": "expand",
        "mamba_conv_bias": "use_conv_bias",
        "mamba_proj_bias": "use_bias",
        "rms_norm_eps": "layer_norm_epsilon",
    }
    return without(renamed(config, names), "max_position_embeddings", "intermediate_size")


def _mamba(draw: Draw) -> Config:
    """State spaces of each channel, of any width; a rank that is said, or follows."""
    config = without(common(draw), "max_position_embeddings", "intermediate_size")
    hidden, expand = draw(st.integers(3, 40)), draw(st.integers(1, 3))
    inner = {"intermediate_size": draw(st.integers(1, 3)) * hidden} if draw(FLAGS) else {}
    sizes = {
        "hidden_size": hidden,
        "expand": expand,
        "state_size": draw(st.integers(1, 9)),
        "conv_kernel": draw(st.integers(2, 5)),
        "time_step_rank": draw(st.one_of(st.just("auto"), st.integers(1, 9))),
        "use_bias": draw(FLAGS),
        "use_conv_bias": draw(FLAGS),
    }
    return renamed(config, {"rms_norm_eps": "layer_norm_epsilon"}) | sizes | inner


def _falcon_mamba(draw: Draw) -> Config:
    return _mamba(draw) | {"mixer_rms_eps": draw(EPS)}


def _jamba(draw: Draw) -> Config:
    config = quotient(common(draw) | heads(draw, explicit=False))
    experts = draw(st.integers(1, 6))
    # Transformers counts tokens by a layer with attention.
    period = draw(st.integers(1, config["num_hidden_layers"]))
    of_experts = draw(st.integers(1, 4))
    return config | {
        "attn_layer_period": period,
        "attn_layer_offset": draw(st.integers(0, period - 1)),
        "expert_layer_period": of_experts,
        "expert_layer_offset": draw(st.integers(0, of_experts - 1)),
        "num_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "mamba_d_state": draw(st.integers(1, 9)),
        "mamba_d_conv": draw(st.integers(2, 5)),
        "mamba_expand": draw(st.integers(1, 3)),
        "mamba_dt_rank": draw(st.one_of(st.just("auto"), st.integers(1, 9))),
        "mamba_conv_bias": draw(FLAGS),
        "mamba_proj_bias": draw(FLAGS),
    }


def _falcon_h1(draw: Draw) -> Config:
    scales = st.floats(0.1, 2.0).map(lambda x: round(x, 3))
    names = ("lm_head", "embedding", "key", "attention_in", "attention_out", "ssm_in", "ssm_out")
    config = _state_sizes(draw, usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS))
    config |= {
        "mamba_d_ssm": config["mamba_n_heads"] * config["mamba_d_head"],
        "projectors_bias": draw(FLAGS),
        "mamba_rms_norm": draw(FLAGS),
        "mamba_norm_before_gate": draw(FLAGS),
        "mlp_multipliers": draw(st.lists(scales, min_size=2, max_size=2)),
        "ssm_multipliers": draw(st.lists(scales, min_size=5, max_size=5)),
    }
    return config | {f"{name}_multiplier": draw(scales) for name in names}


def _bamba(draw: Draw) -> Config:
    config = usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS)
    config = quotient(config | {"head_dim": 2 * config["head_dim"]})  # half of it is even
    config = _state_sizes(draw, partial(draw, config))
    layers = max(2, config["num_hidden_layers"])
    # Transformers counts positions by a layer with attention, and GGUF has another form without.
    listed = draw(st.sets(st.integers(0, layers - 1), min_size=1, max_size=layers - 1))
    dim = config["hidden_size"] // config["num_attention_heads"]
    rotated = int(dim * config["rope_parameters"]["partial_rotary_factor"])
    return config | {
        "num_hidden_layers": layers,
        "attn_layer_indices": sorted(listed),
        "attn_rotary_emb": rotated,
    }


def _nemotron_h(draw: Draw) -> Config:
    config = _state_sizes(draw, usual(draw, mlp_bias=FLAGS, hidden_act=SQUARED))
    # The converter says how wide a head would be if all were as wide as the layer.
    config |= {"hidden_size": config["num_attention_heads"] * draw(st.integers(2, 9))}
    others = st.lists(st.sampled_from(["linear_attention", "full_attention", "mlp"]), max_size=2)
    one_of_each = st.permutations(["linear_attention", "full_attention", "mlp"])
    names = {
        "mamba_n_groups": "n_groups",
        "mamba_n_heads": "mamba_num_heads",
        "mamba_d_head": "mamba_head_dim",
        "mamba_d_state": "ssm_state_size",
        "mamba_d_conv": "conv_kernel",
        "mamba_conv_bias": "use_conv_bias",
        "mamba_proj_bias": "use_bias",
        "rms_norm_eps": "layer_norm_epsilon",
        "hidden_act": "mlp_hidden_act",
    }
    unknown = ("num_hidden_layers", "rope_parameters", "mamba_expand")
    return without(renamed(config, names), *unknown) | {
        "layers_block_type": draw(one_of_each) + draw(others),
        "mamba_hidden_act": draw(ACTIVATIONS),
        "rms_norm_eps": config["rms_norm_eps"],
        "tie_word_embeddings": False,
        # Transformers takes it for a bound of steps, which the published code has not.
        "time_step_min": 1e-30,
    }


def _nemotron_h_moe(draw: Draw) -> Config:
    config = grouped(draw, _nemotron_h(draw))
    kinds_of_layers = [*config["layers_block_type"], "moe"]
    return without(config, "n_shared_experts", "first_k_dense_replace") | {
        "layers_block_type": draw(st.permutations(kinds_of_layers)),
        "moe_shared_expert_intermediate_size": draw(st.integers(3, 21)),
        "moe_latent_size": draw(st.one_of(st.none(), st.integers(3, 17))),
    }


HYBRID: Mapping[str, Callable[[Draw], Config]] = {
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2_moe,
    "lfm3": _lfm3,
    "qwen3_next": _qwen3_next,
    "qwen3_5_text": _qwen3_5,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "granitemoehybrid": _granitemoehybrid,
    "granitehybrid": _granitehybrid,
    "mamba": _mamba,
    "falcon_mamba": _falcon_mamba,
    "jamba": _jamba,
    "mamba2": _mamba2,
    "falcon_h1": _falcon_h1,
    "bamba": _bamba,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h_moe,
}
