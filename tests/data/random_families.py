"""Random configurations of further families, as ``random_configs.py`` has those of the first.

What llama.cpp takes for granted of each is in ``FURTHER_GRANTED``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

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
    rope,
    usual,
)

SQUARED = st.sampled_from(["relu2", "silu", "gelu", "gelu_pytorch_tanh", "relu"])
SHARES = st.sampled_from([1.0, 0.75, 0.5, 0.25])
KINDS_OF_MIXERS = st.sampled_from(["linear_attention", "full_attention"])
LAYER_NORM = {"rms_norm_eps": "layer_norm_eps"}


def renamed(config: Config, names: Mapping[str, str]) -> Config:
    """A configuration with some keys under the names that a family has for them."""
    return {names.get(key, key): value for key, value in config.items()}


def without(config: Config, *keys: str) -> Config:
    """A configuration without keys that a family does not know."""
    return {key: value for key, value in config.items() if key not in keys}


def quotient(config: Config) -> Config:
    """A configuration whose heads make up the hidden size, which says theirs."""
    size = config["num_attention_heads"] * config["head_dim"]
    return without(config | {"hidden_size": size}, "head_dim")


def partial(draw: Draw, config: Config) -> Config:
    """A configuration that rotates a share of each head."""
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    share = draw(SHARES)
    if int(dim * share) % 2:
        share = 1.0
    scaled = rope(draw, int(dim * share) // 2)
    table = scaled.pop("rope_parameters") | {"partial_rotary_factor": share}
    config = config | {"max_position_embeddings": LONGEST + config["num_hidden_layers"]}
    return config | scaled | {"rope_parameters": table}


def _gemma(draw: Draw) -> Config:
    return usual(draw, attention_bias=FLAGS)


def _olmo(draw: Draw) -> Config:
    bounds = st.one_of(st.none(), st.floats(0.3, 3.0))
    config = usual(draw, explicit=False, attention_bias=FLAGS, clip_qkv=bounds)
    return without(config, "rms_norm_eps", "head_dim")


def _olmo3(draw: Draw) -> Config:
    config = usual(draw, explicit=False, attention_bias=FLAGS, sliding_window=WINDOW)
    scaled = config["rope_parameters"]
    # Transformers gives the length of the latest kind of layer to both.
    if scaled["rope_type"] == "dynamic":
        scaled = {"rope_type": "linear", "rope_theta": scaled["rope_theta"], "factor": 2.0}
        config["max_position_embeddings"] = LONGEST
    if scaled["rope_type"] == "yarn":
        scaled.pop("truncate", None)
    local = {"rope_type": "default", "rope_theta": draw(THETAS)}
    listed = {"layer_types": kinds(draw, config["num_hidden_layers"])} if draw(FLAGS) else {}
    tables = {"full_attention": scaled, "sliding_attention": local}
    return without(config, "head_dim") | listed | {"rope_parameters": tables}


def _arcee(draw: Draw) -> Config:
    config = usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS, hidden_act=SQUARED)
    heads = config["num_attention_heads"]
    return config | {"hidden_size": heads * draw(st.integers(2, 9))}


def _exaone4(draw: Draw) -> Config:
    config = usual(draw, sliding_window=WINDOWS, sliding_window_pattern=st.integers(2, 4))
    layers = config["num_hidden_layers"]
    if config["sliding_window"] is None:
        return config | {"layer_types": ["full_attention"] * layers}
    return config | ({"layer_types": kinds(draw, layers)} if draw(FLAGS) else {})


def _cohere(draw: Draw) -> Config:
    scales = st.floats(0.05, 2.0)
    config = usual(
        draw, explicit=False, attention_bias=FLAGS, use_qk_norm=FLAGS, logit_scale=scales
    )
    return renamed(quotient(config), LAYER_NORM)


def _cohere2(draw: Draw) -> Config:
    scales = st.floats(0.05, 2.0)
    config = usual(
        draw,
        explicit=False,
        attention_bias=FLAGS,
        sliding_window=WINDOW,
        logit_scale=scales,
    )
    listed = {"layer_types": kinds(draw, config["num_hidden_layers"])} if draw(FLAGS) else {}
    return renamed(quotient(config), LAYER_NORM) | listed


def _glm4(draw: Draw) -> Config:
    return partial(draw, usual(draw, attention_bias=FLAGS))


def _ernie4_5(draw: Draw) -> Config:
    return usual(draw, use_bias=FLAGS)


def _nemotron(draw: Draw) -> Config:
    config = usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS, hidden_act=SQUARED)
    return partial(draw, renamed(config, {"rms_norm_eps": "norm_eps"}))


def _stablelm(draw: Draw) -> Config:
    config = usual(
        draw,
        explicit=False,
        use_qkv_bias=FLAGS,
        qk_layernorm=FLAGS,
        use_parallel_residual=FLAGS,
    )
    return partial(draw, renamed(quotient(config), LAYER_NORM))


def _phi(draw: Draw) -> Config:
    config = usual(draw, explicit=False, qk_layernorm=FLAGS)
    return partial(draw, renamed(quotient(config), LAYER_NORM))


def _internlm3(draw: Draw) -> Config:
    has_biases = draw(FLAGS)
    config = usual(draw) | {"attention_bias": has_biases, "mlp_bias": has_biases}
    heads = config["num_attention_heads"]
    return config | {"hidden_size": heads * draw(st.integers(2, 9))}


def _ministral3(draw: Draw) -> Config:
    config = usual(draw, sliding_window=WINDOWS)
    table = {
        "rope_type": "yarn",
        "rope_theta": draw(THETAS),
        "factor": draw(st.floats(1.25, 8.0)),
        "original_max_position_embeddings": draw(st.integers(8, 39)),
        "llama_4_scaling_beta": draw(st.floats(0.05, 0.5)),
        "beta_fast": draw(st.floats(8.0, 40.0)),
        "beta_slow": draw(st.floats(0.5, 2.0)),
        "mscale": draw(st.floats(0.5, 2.0)),
        "mscale_all_dim": draw(st.floats(0.5, 2.0)),
    }
    return config | {"rope_parameters": table}


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


def _granitemoe(draw: Draw) -> Config:
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
    return _granitemoe(draw) | {"shared_intermediate_size": draw(st.integers(3, 21))}


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


def _helium(draw: Draw) -> Config:
    config = usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS)
    return config | {"hidden_size": config["num_attention_heads"] * config["head_dim"]}


def _cwm(draw: Draw) -> Config:
    config = usual(draw, sliding_window=WINDOW, mlp_bias=FLAGS)
    listed = {"layer_types": kinds(draw, config["num_hidden_layers"])} if draw(FLAGS) else {}
    return config | listed


def _flex_olmo(draw: Draw) -> Config:
    config = usual(draw, explicit=False, attention_bias=FLAGS, norm_topk_prob=FLAGS)
    return experts(draw, quotient(config), "num_experts")


def _hyperclovax(draw: Draw) -> Config:
    scales = st.floats(0.1, 4.0)
    config = usual(
        draw,
        attention_bias=FLAGS,
        mlp_bias=FLAGS,
        attention_multiplier=st.one_of(st.none(), scales),
        embedding_multiplier=scales,
        logits_scaling=scales,
        residual_multiplier=scales,
        use_post_norm=FLAGS,
    )
    return config | {"hidden_size": config["num_attention_heads"] * draw(st.integers(2, 9))}


def _llama_of_whole_heads(draw: Draw) -> Config:
    config = usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS)
    return config | {"hidden_size": config["num_attention_heads"] * draw(st.integers(2, 9))}


def _jais2(draw: Draw) -> Config:
    config = _llama_of_whole_heads(draw) | {"hidden_act": draw(SQUARED)}
    return renamed(config, LAYER_NORM)


def _solar_open(draw: Draw) -> Config:
    config = grouped(draw, usual(draw, attention_bias=FLAGS))
    return without(config, "first_k_dense_replace", "intermediate_size")


def stretched(draw: Draw, config: Config) -> Config:
    """A configuration whose rotary base a fixed number stretches, or none."""
    if not draw(FLAGS) or config["head_dim"] <= 2:
        return config
    table = {"rope_type": "dynamic", "rope_theta": draw(THETAS), "factor": 1.0}
    longest = {"max_position_embeddings": LONGEST + config["num_hidden_layers"]}
    return config | longest | {"rope_parameters": table | {"alpha": draw(st.floats(1.5, 1000.0))}}


def _hunyuan(draw: Draw) -> Config:
    return stretched(draw, usual(draw, attention_bias=FLAGS))


def _hunyuan_moe(draw: Draw) -> Config:
    config = experts(draw, _hunyuan(draw), "num_experts", "moe_topk")
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
    config = grouped(draw, _exaone4(draw))
    layers = config["num_hidden_layers"]
    if config["sliding_window"] is None:
        config |= {"sliding_window": draw(WINDOW)}
    listed = draw(st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers))
    names = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}
    return renamed(config, names) | ({"mlp_layer_types": listed} if draw(FLAGS) else {})


def _gpt(draw: Draw, heads: st.SearchStrategy[int], dims: st.SearchStrategy[int]) -> Config:
    """Sizes in the keys of GPT-2."""
    count = draw(heads)
    return {
        "n_embd": count * draw(dims),
        "n_head": count,
        "n_layer": draw(st.integers(1, 3)),
        "n_inner": draw(st.one_of(st.none(), st.integers(3, 37))),
        "n_positions": draw(st.integers(LONGEST, 64)),
        "vocab_size": draw(st.integers(11, 71)),
        "activation_function": draw(ACTIVATIONS),
        "layer_norm_epsilon": draw(EPS),
        "tie_word_embeddings": draw(FLAGS),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _gpt_bigcode(draw: Draw) -> Config:
    config = _gpt(draw, st.integers(2, 5), st.integers(2, 9))
    return config | {"multi_query": draw(FLAGS), "scale_attn_weights": draw(FLAGS)}


def _gptj(draw: Draw) -> Config:
    config = _gpt(draw, st.integers(1, 4), st.sampled_from([4, 6, 10]))
    dim = config["n_embd"] // config["n_head"]
    return config | {"rotary_dim": 2 * draw(st.integers(1, dim // 2))}


def _codegen(draw: Draw) -> Config:
    config = _gpt(draw, st.sampled_from([4, 8]), st.sampled_from([4, 6]))
    dim = config["n_embd"] // config["n_head"]
    return config | {"rotary_dim": 2 * draw(st.integers(1, dim // 2))}


def _gpt_neo(draw: Draw) -> Config:
    names = {
        "n_embd": "hidden_size",
        "n_head": "num_heads",
        "n_layer": "num_layers",
        "n_inner": "intermediate_size",
        "n_positions": "max_position_embeddings",
    }
    config = renamed(_gpt(draw, st.integers(1, 5), st.integers(2, 9)), names)
    run = draw(st.lists(st.sampled_from(["global", "local"]), min_size=1, max_size=2))
    times = draw(st.integers(1, 2))
    types = {"attention_types": [[run, times]], "num_layers": len(run) * times}
    return config | types | {"window_size": draw(WINDOW)}


def _persimmon(draw: Draw) -> Config:
    config = usual(draw, explicit=False, qk_layernorm=FLAGS, hidden_act=SQUARED)
    return without(partial(draw, renamed(quotient(config), LAYER_NORM)), "num_key_value_heads")


def _opt(draw: Draw) -> Config:
    names = {
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "n_inner": "ffn_dim",
        "n_positions": "max_position_embeddings",
    }
    config = renamed(_gpt(draw, st.integers(1, 4), st.integers(2, 7)), names)
    return without(config, "layer_norm_epsilon") | {
        "ffn_dim": draw(st.integers(3, 37)),
        "do_layer_norm_before": draw(FLAGS),
        "_remove_final_layer_norm": draw(FLAGS),
        "word_embed_proj_dim": draw(st.one_of(st.none(), st.integers(3, 19))),
        "enable_bias": draw(FLAGS),
        "layer_norm_elementwise_affine": draw(FLAGS),
        "pad_token_id": 0,
    }


def _bloom(draw: Draw) -> Config:
    config = _gpt(draw, st.integers(1, 7), st.integers(2, 6))
    kept = without(config, "n_embd", "n_inner", "n_positions", "activation_function")
    return kept | {"hidden_size": config["n_embd"]}


def _mpt(draw: Draw) -> Config:
    names = {"n_head": "n_heads", "n_layer": "n_layers", "n_positions": "max_seq_len"}
    config = renamed(_gpt(draw, st.integers(1, 7), st.integers(2, 6)), names)
    table = {
        "clip_qkv": draw(st.one_of(st.none(), st.floats(0.3, 3.0))),
        "softmax_scale": draw(st.one_of(st.none(), st.floats(0.1, 1.0))),
    }
    kept = without(config, "n_embd", "n_inner", "activation_function")
    return kept | {"d_model": config["n_embd"], "attn_config": table}


def _vaultgemma(draw: Draw) -> Config:
    caps = st.one_of(st.none(), st.floats(1.0, 50.0))
    config = usual(
        draw,
        attention_bias=FLAGS,
        sliding_window=WINDOW,
        query_pre_attn_scalar=st.integers(1, 64),
        attn_logit_softcapping=caps,
        final_logit_softcapping=caps,
    )
    listed = {"layer_types": kinds(draw, config["num_hidden_layers"])} if draw(FLAGS) else {}
    whole = {"hidden_size": config["num_attention_heads"] * draw(st.integers(2, 9))}
    return renamed(config, {"hidden_act": "hidden_activation"}) | listed | whole


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


def _mamba(draw: Draw, config: Config) -> Config:
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
    config = _mamba(draw, _granitemoe(draw))
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
    config = _mamba(draw, common(draw) | {"hidden_size": draw(st.integers(3, 24))})
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


def _mamba1(draw: Draw) -> Config:
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
    return _mamba1(draw) | {"mixer_rms_eps": draw(EPS)}


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
    config = _mamba(draw, usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS))
    config |= {
        "mamba_d_ssm": config["mamba_n_heads"] * config["mamba_d_head"],
        "projectors_bias": config["mamba_proj_bias"],
        "mamba_rms_norm": draw(FLAGS),
        "mamba_norm_before_gate": draw(FLAGS),
        "mlp_multipliers": draw(st.lists(scales, min_size=2, max_size=2)),
        "ssm_multipliers": draw(st.lists(scales, min_size=5, max_size=5)),
    }
    return config | {f"{name}_multiplier": draw(scales) for name in names}


def _bamba(draw: Draw) -> Config:
    config = usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS)
    config = quotient(config | {"head_dim": 2 * config["head_dim"]})  # half of it is even
    config = _mamba(draw, partial(draw, config))
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
    config = _mamba(draw, usual(draw, mlp_bias=FLAGS, hidden_act=SQUARED))
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


FURTHER: Mapping[str, Callable[[Draw], Config]] = {
    "gemma": _gemma,
    "olmo": _olmo,
    "olmo3": _olmo3,
    "arcee": _arcee,
    "exaone4": _exaone4,
    "cohere": _cohere,
    "cohere2": _cohere2,
    "glm": _glm4,
    "glm4": _glm4,
    "ernie4_5": _ernie4_5,
    "nemotron": _nemotron,
    "stablelm": _stablelm,
    "phi": _phi,
    "internlm3": _internlm3,
    "ministral3": _ministral3,
    "olmoe": _olmoe,
    "qwen2_moe": _qwen2_moe,
    "granitemoe": _granitemoe,
    "granitemoeshared": _granitemoeshared,
    "glm4_moe": _glm4_moe,
    "dots1": _dots1,
    "minimax_m2": _minimax_m2,
    "afmoe": _afmoe,
    "gpt_oss": _gpt_oss,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2_moe,
    "helium": _helium,
    "cwm": _cwm,
    "flex_olmo": _flex_olmo,
    "hyperclovax": _hyperclovax,
    "iquestcoder": _llama_of_whole_heads,
    "jais2": _jais2,
    "solar_open": _solar_open,
    "hunyuan_v1_dense": _hunyuan,
    "hunyuan_v1_moe": _hunyuan_moe,
    "ernie4_5_moe": _ernie4_5_moe,
    "exaone_moe": _exaone_moe,
    "gpt_bigcode": _gpt_bigcode,
    "gptj": _gptj,
    "codegen": _codegen,
    "gpt_neo": _gpt_neo,
    "persimmon": _persimmon,
    "opt": _opt,
    "bloom": _bloom,
    "mpt": _mpt,
    "vaultgemma": _vaultgemma,
    "qwen3_next": _qwen3_next,
    "qwen3_5_text": _qwen3_5,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "granitemoehybrid": _granitemoehybrid,
    "granitehybrid": _granitehybrid,
    "mamba": _mamba1,
    "falcon_mamba": _falcon_mamba,
    "jamba": _jamba,
    "mamba2": _mamba2,
    "falcon_h1": _falcon_h1,
    "bamba": _bamba,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h_moe,
}
# Families that are one model type.
MODEL_TYPES = {"granitehybrid": "granitemoehybrid", "nemotron_h_moe": "nemotron_h"}
# Their recipes are told by tensors, and not by configurations alone.
BY_TENSORS = ("granitehybrid", "granitemoehybrid", "nemotron_h_moe")


def type_of(family: str) -> str:
    """The model type of a family's configurations."""
    return MODEL_TYPES.get(family, family)


# Those that GGUF has no form of.
WITHOUT_GGUF = (
    "codegen",
    "cwm",
    "electra",
    "flex_olmo",
    "gpt_neo",
    "gptj",
    "helium",
    "hyperclovax",
    "opt",
    "persimmon",
    "vaultgemma",
)

SILU = {"hidden_act": "silu"}
STATES_GRANTED = {"use_conv_bias": True, "use_bias": False}
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
    "nemotron": {"hidden_act": "relu2"},
    "olmoe": SILU
    | {"attention_bias": False, "clip_qkv": None, "norm_topk_prob": False, "rms_norm_eps": 1e-5},
    "qwen2_moe": SILU | {"norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "afmoe": SILU | {"attention_bias": False, "mup_enabled": True, "global_attn_every_n_layers": 4},
    "gpt_oss": SILU | {"swiglu_limit": 7.0, "swiglu_alpha": 1.702},
    "lfm2": {"conv_bias": False},
    "lfm2_moe": {"conv_bias": False, "use_expert_bias": True, "norm_topk_prob": True}
    | {"routed_scaling_factor": 1.0, "tie_word_embeddings": True},
    "ernie4_5_moe": SILU | {"moe_layer_end_index": -1},
    "bloom": {"tie_word_embeddings": True},
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
        SILU
        | {"mamba_conv_bias": True, "mamba_proj_bias": False, "position_embedding_type": "nope"},
    ),
    **dict.fromkeys(("mamba", "mamba2"), SILU | STATES_GRANTED),
    "jamba": SILU | {"mamba_conv_bias": True, "mamba_proj_bias": False},
    "falcon_mamba": SILU | STATES_GRANTED | {"mixer_rms_eps": 1e-6, "layer_norm_epsilon": 1e-6},
    "nemotron_h": {"mlp_hidden_act": "relu2", "mamba_hidden_act": "silu"}
    | {"use_bias": False, "use_conv_bias": True},
    "nemotron_h_moe": {"mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "mlp_bias": False}
    | {"use_bias": False, "use_conv_bias": True},
    "bamba": SILU | {"mamba_conv_bias": True, "mamba_proj_bias": False},
    "falcon_h1": SILU
    | {"mamba_conv_bias": True, "mamba_proj_bias": False, "projectors_bias": False}
    | {"attention_bias": False, "mlp_bias": False, "mamba_norm_before_gate": False}
    | {"tie_word_embeddings": False},
    "phi": {"hidden_act": "gelu_new", "qk_layernorm": False, "tie_word_embeddings": False},
}
# Architectures of llama.cpp that keep the factors of rotary frequencies, and those whose converter
# writes no scaling, or one in the place of others.
FURTHER_FACTORS_KEPT = ("arcee", "internlm3", "iquestcoder")
# Those whose converter writes each layer's kind of attention.
LISTED = ("exaone4", "exaone_moe", "lfm2", "lfm2_moe", "olmo3", "qwen3_next")
LISTED += ("qwen3_5_text", "qwen3_5_moe_text", "granitemoehybrid", "granitehybrid")
UNSCALED = ("cohere", "cohere2", "exaone_moe", "falcon_h1", "gemma", "nemotron", "phi", "stablelm")
# Families that say something else, or nothing, in the keys of transformers 4.
NEWER_ALONE = ("cwm", "gpt_oss", "olmo3", "qwen3_5_text", "qwen3_5_moe_text")
