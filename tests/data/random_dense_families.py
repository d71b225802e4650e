"""Random configurations of families whose layers are attention and an MLP."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_options import (
    FLAGS,
    LAYER_NORM,
    LONGEST,
    SQUARED,
    THETAS,
    WINDOW,
    WINDOWS,
    Config,
    Draw,
    kinds,
    partial,
    quotient,
    renamed,
    stretched,
    usual,
    without,
)


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


def exaone4(draw: Draw) -> Config:
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


def _helium(draw: Draw) -> Config:
    config = usual(draw, attention_bias=FLAGS, mlp_bias=FLAGS)
    return config | {"hidden_size": config["num_attention_heads"] * config["head_dim"]}


def _cwm(draw: Draw) -> Config:
    config = usual(draw, sliding_window=WINDOW, mlp_bias=FLAGS)
    listed = {"layer_types": kinds(draw, config["num_hidden_layers"])} if draw(FLAGS) else {}
    return config | listed


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


def hunyuan(draw: Draw) -> Config:
    return stretched(draw, usual(draw, attention_bias=FLAGS))


def _persimmon(draw: Draw) -> Config:
    config = usual(draw, explicit=False, qk_layernorm=FLAGS, hidden_act=SQUARED)
    return without(partial(draw, renamed(quotient(config), LAYER_NORM)), "num_key_value_heads")


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


def _nanochat(draw: Draw) -> Config:
    caps = st.one_of(st.none(), st.floats(1.0, 50.0))
    config = usual(
        draw,
        explicit=False,
        attention_bias=FLAGS,
        hidden_act=SQUARED,
        final_logit_softcapping=caps,
    )
    return without(config, "head_dim")


DENSE: Mapping[str, Callable[[Draw], Config]] = {
    "gemma": _gemma,
    "olmo": _olmo,
    "olmo3": _olmo3,
    "arcee": _arcee,
    "exaone4": exaone4,
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
    "helium": _helium,
    "cwm": _cwm,
    "hyperclovax": _hyperclovax,
    "iquestcoder": _llama_of_whole_heads,
    "jais2": _jais2,
    "hunyuan_v1_dense": hunyuan,
    "persimmon": _persimmon,
    "vaultgemma": _vaultgemma,
    "nanochat": _nanochat,
}
