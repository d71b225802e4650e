"""Strategies of options that most families of models have, for random configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

LONGEST = 40
"""Tokens of the longest sequence that is tried."""
# A window of one is what transformers' cache gets wrong: it keeps all keys then.
WINDOW = st.integers(2, LONGEST + 5)
WINDOWS = st.one_of(st.none(), WINDOW)
THETAS = st.sampled_from([100.0, 1e4, 5e5, 1e6])
EPS = st.sampled_from([1e-6, 1e-5, 1e-3])
ACTIVATIONS = st.sampled_from(["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
FACTORS = st.floats(1.25, 8.0).map(lambda x: round(x, 2))
FLAGS = st.booleans()
SQUARED = st.sampled_from(["relu2", "silu", "gelu", "gelu_pytorch_tanh", "relu"])
SHARES = st.sampled_from([1.0, 0.75, 0.5, 0.25])
SHARES_OF_PAIRS = SHARES | st.just(0.3)
LAYER_NORM = {"rms_norm_eps": "layer_norm_eps"}


def heads(draw: Draw, *, explicit: bool = True, shared: bool = True) -> Config:
    """Head counts and the hidden size; with a head's own size where the family knows one."""
    kv_heads = draw(st.integers(1, 3))
    count = kv_heads * (draw(st.integers(1, 3)) if shared else 1)
    even = draw(st.integers(2, 6)) * 2
    config = {"num_attention_heads": count, "num_key_value_heads": kv_heads}
    if explicit and draw(FLAGS):
        return config | {"head_dim": even, "hidden_size": count * draw(st.integers(2, 6))}
    return config | {"head_dim": even, "hidden_size": count * even}


def common(draw: Draw) -> Config:
    """Sizes and options that nearly all have."""
    return {
        "vocab_size": draw(st.integers(11, 71)),
        "intermediate_size": draw(st.integers(3, 37)),
        "num_hidden_layers": draw(st.integers(1, 4)),
        "max_position_embeddings": draw(st.integers(LONGEST, 128)),
        "hidden_act": draw(ACTIVATIONS),
        "rms_norm_eps": draw(EPS),
        "tie_word_embeddings": draw(FLAGS),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def rope(draw: Draw, planes: int) -> Config:
    """A base, and one of the scalings with its parameters."""
    kind = draw(st.sampled_from(["default", "linear", "dynamic", "llama3", "yarn", "longrope"]))
    if kind == "dynamic" and planes < 2:
        kind = "default"
    table = {"rope_type": kind, "rope_theta": draw(THETAS)} | SCALINGS[kind](draw, planes)
    outside = {"max_position_embeddings": draw(st.integers(8, 32))} if kind == "dynamic" else {}
    return {"rope_parameters": table, **outside}


def _factor(draw: Draw, _: int) -> Config:
    return {"factor": draw(FACTORS)}


def _llama3(draw: Draw, planes: int) -> Config:
    low = draw(st.floats(0.5, 2.0))
    return _factor(draw, planes) | {
        "low_freq_factor": low,
        "high_freq_factor": low + draw(st.floats(0.5, 4.0)),
        "original_max_position_embeddings": draw(st.integers(8, 39)),
    }


def _yarn(draw: Draw, planes: int) -> Config:
    slow = draw(st.floats(0.1, 2.0))
    table = {
        "beta_slow": slow,
        "beta_fast": slow + draw(st.floats(0.5, 32.0)),
        "attention_factor": draw(st.floats(0.5, 2.0)),
        "truncate": draw(FLAGS),
        "mscale": draw(st.floats(0.5, 2.0)),
    }
    kept = draw(st.sets(st.sampled_from(sorted(table))))
    if "mscale" in kept:
        table["mscale_all_dim"] = draw(st.floats(0.5, 2.0))
        kept = kept | {"mscale_all_dim"}
    chosen = {key: table[key] for key in sorted(kept)}
    original = {"original_max_position_embeddings": draw(st.integers(8, 39))}
    return _factor(draw, planes) | original | chosen


def longrope(draw: Draw, planes: int) -> Config:
    divisors = st.lists(st.floats(1.0, 8.0), min_size=planes, max_size=planes)
    table = {
        "short_factor": draw(divisors),
        "long_factor": draw(divisors),
        "original_max_position_embeddings": draw(st.integers(8, 39)),
    }
    if draw(FLAGS):
        table["factor"] = draw(FACTORS)
    if draw(FLAGS):
        table["attention_factor"] = draw(st.floats(0.5, 2.0))
    return table


SCALINGS: Mapping[str, Callable[[Draw, int], Config]] = {
    "default": lambda _, __: {},
    "linear": _factor,
    "dynamic": _factor,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": longrope,
}


def two_bases(draw: Draw, config: Config) -> Config:
    """A configuration whose layers with a window have a rotary base of their own, unscaled."""
    scaled = config["rope_parameters"]
    # Transformers gives the length of the latest kind of layer to both.
    if scaled["rope_type"] == "dynamic":
        scaled = {"rope_type": "linear", "rope_theta": scaled["rope_theta"], "factor": 2.0}
        config = config | {"max_position_embeddings": LONGEST}
    if scaled["rope_type"] == "yarn":
        scaled = without(scaled, "truncate")
    local = {"rope_type": "default", "rope_theta": draw(THETAS)}
    tables = {"full_attention": scaled, "sliding_attention": local}
    return config | {"rope_parameters": tables}


def usual(draw: Draw, *, explicit: bool = True, **options: st.SearchStrategy[Any]) -> Config:
    """A Llama-like configuration with further options."""
    config = common(draw) | heads(draw, explicit=explicit)
    chosen = {key: draw(strategy) for key, strategy in options.items()}
    return config | rope(draw, config["head_dim"] // 2) | chosen


def rotated_by_kind(draw: Draw) -> Config:
    """Rotary settings of layers without a window, part of whose pairs may turn, and with one."""
    whole: Config = {"rope_type": draw(st.sampled_from(["proportional", "default", "linear"]))}
    if whole["rope_type"] != "default":
        whole |= {"factor": draw(FACTORS)}
    if whole["rope_type"] == "proportional":
        whole |= {"partial_rotary_factor": draw(SHARES_OF_PAIRS)}
    return {
        "full_attention": whole | {"rope_theta": draw(THETAS)},
        "sliding_attention": {"rope_type": "default", "rope_theta": draw(THETAS)},
    }


def kinds(draw: Draw, layers: int) -> list[str]:
    kind = st.sampled_from(["sliding_attention", "full_attention"])
    return draw(st.lists(kind, min_size=layers, max_size=layers))


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


def stretched(draw: Draw, config: Config) -> Config:
    """A configuration whose rotary base a fixed number stretches, or none."""
    if not draw(FLAGS) or config["head_dim"] <= 2:
        return config
    table = {"rope_type": "dynamic", "rope_theta": draw(THETAS), "factor": 1.0}
    longest = {"max_position_embeddings": LONGEST + config["num_hidden_layers"]}
    return config | longest | {"rope_parameters": table | {"alpha": draw(st.floats(1.5, 1000.0))}}
