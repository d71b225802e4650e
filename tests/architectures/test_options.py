"""Every option of the decoder against NumPy, with a cache and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.architectures import Decoder, DecoderConfig
from maxtool.architectures.decoder_checks import CHOICES, problems
from maxtool.architectures.xielu import OPTIONS
from maxtool.dtype import DType
from tests.architectures.decoders import CONFIG, Steps, fill
from tests.architectures.oracle import Oracle
from tests.effort import thinned

# Sizes that no tile divides, an odd number of groups.
SIZES = {
    "vocab_size": 37,
    "hidden_size": 21,
    "intermediate_size": 29,
    "n_heads": 3,
    "n_kv_heads": 1,
    "head_dim": 10,
}
LAYERS = (True, False, True)

CASES: dict[str, dict[str, Any]] = {
    "layer norms": {"norm": "layer", "norm_bias": True, "block": "parallel"},
    "layer norms without biases": {"norm": "layer", "block": "parallel_shared", "mlp": "plain"},
    "normed before": {"block": "normed", "norm": "layer", "residual_scale": 0.7},
    "norms after": {"block": "post", "qk_norm": "full", "hidden_act": "relu"},
    "norms around": {
        "block": "sandwich",
        "qk_norm": "head",
        "hidden_act": "gelu_tanh",
        "embed_scale": 4.5,
        "logits_softcap": 2.0,
        "attention_scale": 0.7,
        "attention_softcap": 0.8,
    },
    "biases, learned positions": {
        "position": "learned",
        "norm": "layer",
        "norm_bias": True,
        "mlp": "plain",
        "hidden_act": "gelu",
        "qkv_bias": True,
        "o_bias": True,
        "mlp_bias": True,
        "head_dim": 7,
        "tie_word_embeddings": True,
    },
    "linear biases": {
        "position": "alibi",
        "n_heads": 6,
        "n_kv_heads": 3,
        "embed_norm": True,
        "attention_scale": 0.4,
    },
    "relative positions": {
        "position": "relative",
        "relative_buckets": 7,
        "relative_distance": 12,
        "attention_scale": 1.0,
        "n_kv_heads": 3,
    },
    "relative positions of each layer": {
        "position": "relative",
        "relative_buckets": 6,
        "relative_distance": 9,
        "relative_each": True,
        "n_heads": 6,
        "n_kv_heads": 3,
    },
    "norms behind each sum, narrow embeddings": {
        "block": "after",
        "final_norm": False,
        "embed_size": 13,
        "position_offset": 2,
        "norm": "layer",
        "norm_bias": True,
        "position": "learned",
        "tie_word_embeddings": True,
    },
    "a norm for each head": {
        "qk_norm": "each_head",
        "qk_norm_type": "layer",
        "qk_norm_bias": True,
        "qk_norm_after_rope": True,
        "n_kv_heads": 3,
        "lm_head_bias": True,
        "hidden_act": "relu2",
    },
    "bounds": {"plain_norms": True, "norm": "layer", "qkv_clip": 0.7, "mlp": "plain"},
    "turned back": {"plain_norms": True, "rope_reversed": True, "rotary_dim": 4},
    "norms inside": {"plain_norms": True, "sub_norms": True, "qk_norm": "head"},
    "temperature": {
        "temperature": 0.8,
        "temperature_context": 3,
        "mlp": "plain",
        "sub_norms": True,
    },
    "chunks": {
        "sliding_window": 4,
        "sliding_layers": LAYERS,
        "chunked_window": True,
        "rope_layers": LAYERS,
        "qk_norm": "plain",
        "qk_norm_type": "layer",
        "qk_norm_after_rope": True,
        "qk_norm_rotated_only": True,
        "temperature": 0.8,
        "temperature_context": 3,
        "temperature_offset": 1,
        "temperature_unrotated_only": True,
    },
    "experts of scaled tokens": {
        "n_experts": 4,
        "n_experts_used": 2,
        "expert_scores": "sigmoid_of_chosen",
        "expert_input_scaled": True,
        "norm_topk": False,
        "expert_scale": 1.7,
        "shared_expert_size": 5,
    },
    "scales": {"residual_scale": 0.4, "logits_scale": 0.25, "qkv_bias": True},
    "some rotated": {"rotary_dim": 4, "rope_layers": LAYERS},
    "two bases": {
        "rope_theta": 1000.0,
        "rope_scaling": "linear",
        "rope_factor": 4.0,
        "rope_local_theta": 50.0,
        "sliding_window": 3,
        "sliding_layers": LAYERS,
    },
    "experts": {
        "n_experts": 5,
        "n_experts_used": 2,
        "expert_size": 13,
        "expert_layers": LAYERS,
        "hidden_act": "gelu_tanh",
    },
    "shares of length 1": {"n_experts": 5, "n_experts_used": 3, "topk_norm_order": 2.0},
    "sparsemixer": {
        "n_experts": 6,
        "n_experts_used": 3,
        "expert_scores": "sparsemixer",
        "expert_jitter": 0.4,
        "norm_topk": False,
    },
    "shares as they are": {
        "n_experts": 3,
        "n_experts_used": 2,
        "norm_topk": False,
    },
    "grouped experts": {
        "n_experts": 6,
        "n_experts_used": 3,
        "expert_size": 9,
        "expert_scores": "sigmoid",
        "expert_correction": True,
        "expert_groups": 3,
        "expert_groups_used": 2,
        "expert_scale": 1.7,
        "expert_sum_eps": 0.3,
        "shared_expert_size": 11,
        "attention_gate": True,
    },
    "heads by layer, gates of heads": {
        "layer_heads": (3, 6, 9),
        "n_kv_heads": 3,
        "attention_gate": True,
        "attention_gate_act": "softplus",
        "attention_gate_by_head": True,
        "n_experts": 4,
        "n_experts_used": 2,
        "expert_scores": "sigmoid",
        "router_softcap": 0.4,
        "rotary_dim": 4,
        "rope_local_theta": 50.0,
        "rotary_local_dim": 8,
        "sliding_window": 3,
        "sliding_layers": LAYERS,
    },
    "clipped experts, sinks": {
        "n_experts": 4,
        "n_experts_used": 2,
        "router_bias": True,
        "expert_bias": True,
        "swiglu_limit": 0.6,
        "swiglu_alpha": 1.7,
        "shared_expert_size": 5,
        "shared_expert_gate": True,
        "shared_expert_mean": True,
        "attention_sinks": True,
        "sliding_window": 3,
        "sliding_layers": LAYERS,
    },
    "values narrower than keys, sinks of windows": {
        "n_heads": 6,
        "n_kv_heads": 1,
        "local_kv_heads": 2,
        "value_dim": 6,
        "value_scale": 0.7,
        "attention_sinks": True,
        "sink_layers": LAYERS,
        "sliding_window": 3,
        "sliding_layers": LAYERS,
        "qkv_bias": True,
    },
    "values of more elements than keys": {
        "value_dim": 14,
        "attention_gate": True,
        "sub_norms": True,
        "position": "alibi",
        "value_norm": True,
        "qkv_clip": 0.9,
        "value_scale": 1.3,
    },
    "layers of two shapes": {
        "n_heads": 6,
        "n_kv_heads": 1,
        "local_kv_heads": 3,
        "local_head_dim": 6,
        "rope_local_theta": 50.0,
        "rope_scaling": "proportional",
        "rope_pairs": 2,
        "rope_factor": 3.0,
        "value_norm": True,
        "value_layers": (True, False, True),
        "sliding_window": 3,
        "sliding_layers": LAYERS,
        "qk_norm": "head",
        "kv_shared_layers": 1,
        "layer_widths": (11, 12, 25),
    },
    "vectors for each layer": {
        "block": "sandwich",
        "layer_embed_size": 5,
        "layer_embed_rows": 6,
        "layer_scale": True,
        "hidden_act": "gelu_tanh",
    },
    "streams": {
        "block": "sandwich",
        "streams": 3,
        "active_stream": 1,
        "stream_scale": True,
        "laurel_rank": 5,
        "gate_sparsity": (0.7, 0.0, 0.3),
        "layer_embed_size": 5,
        "kv_shared_layers": 1,
    },
    "streams without vectors": {"streams": 2, "laurel_rank": 3, "tie_word_embeddings": True},
    "one stream": {"streams": 1, "gate_sparsity": (0.5,) * 3},
    "experts beside": {
        "block": "sandwich",
        "n_experts": 5,
        "n_experts_used": 2,
        "expert_size": 7,
        "expert_layers": LAYERS,
        "experts_beside": True,
        "router_norm": True,
        "router_scale": 0.6,
        "expert_factors": True,
    },
    "latents": {
        "latent_size": 17,
        "query_latent_size": 11,
        "value_dim": 6,
        "latent_eps": 0.3,
        "rotary_dim": 4,
        "plain_dim": 6,
        "rope_layers": LAYERS,
        "n_kv_heads": 3,
        "qkv_bias": True,
        "attention_softcap": 0.8,
        "sliding_window": 3,
        "sliding_layers": LAYERS,
    },
    "latents, queries that are none": {
        "latent_size": 9,
        "plain_dim": 4,
        "rotary_dim": 6,
        "n_kv_heads": 3,
        "temperature": 0.8,
        "temperature_context": 3,
    },
    "latents without positions": {
        "position": "none",
        "latent_size": 9,
        "plain_dim": 5,
        "rotary_dim": 5,
        "n_kv_heads": 3,
    },
    "groups by their best": {
        "n_experts": 6,
        "n_experts_used": 3,
        "expert_groups": 3,
        "expert_groups_used": 2,
        "expert_group_best": 1,
    },
    "one expert": {"n_experts": 1, "n_experts_used": 1},
    "an activation with numbers for each layer": {
        "hidden_act": "xielu",
        "mlp": "plain",
        "xielu_alpha_p": (0.2, -1.0, 1.5),
        "xielu_alpha_n": (-0.8, 0.5, 2.0),
        "xielu_beta": (0.5, 0.7, 0.1),
        "xielu_eps": (-1e-6, -0.3, 0.2),
    },
    "waves of positions": {
        "position": "sinusoidal",
        "position_offset": 2,
        "position_padding": 5,
        "embed_scale": 4.5,
    },
    "one window": {"sliding_window": 3, "n_kv_heads": 3},
    "a window wider than the context": {"sliding_window": 100},
}


def error(array: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    return float(np.abs(array - expected).max() / np.abs(expected).max())


# So many times what one rounding of the weights does, roundings of all steps may do: norms of three
# values that hardly differ, which property tests draw, enlarge each of them.
ROUNDINGS = 32


def rounded_once(weights: dict[str, Any]) -> dict[str, Any]:
    """Weights that differ from these as float32 numbers differ from what they round."""
    rng = np.random.default_rng(0)
    return {
        name: value * (1 + rng.uniform(-1, 1, value.shape) * 2.0**-24)
        for name, value in weights.items()
    }


# What is compiled without a cache too; the two differ in how keys come to the attention only.
WITHOUT_CACHE = ("norms around", "experts")


def check(config: DecoderConfig, seed: int = 1, *, without_cache: bool) -> None:
    """Compare with NumPy: the last logits of a sequence read in parts, and all without a cache."""
    assert problems(config) == []
    model = Decoder(config)
    weights = fill(model, seed)
    ids = np.random.default_rng(seed).integers(0, config.vocab_size, (2, 9))
    expected = Oracle(config, weights).logits(ids)
    moved = error(Oracle(config, rounded_once(weights)).logits(ids), expected)
    allowed = min(max(1e-5, ROUNDINGS * moved), 1e-4)
    if without_cache:
        forward = model.entries()[0]
        actual = model.compile(*forward.inputs.values())(ids).to_numpy()
        assert error(actual, expected) < allowed
    steps, at = Steps(model, batch=2), 0
    for length in (4, 3, 1, 1):
        at += length
        logits = steps(ids[:, at - length : at])
        assert error(logits, expected[:, at - 1]) < allowed


# Edges of options that others of the cases have.
EDGES = (
    *("shares as they are", "one expert", "one window", "a window wider than the context"),
    *("layer norms", "layer norms without biases", "norms after", "some rotated", "two bases"),
)


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",
    thinned(CASES, *(name for name in CASES if name not in EDGES)),
)
def test_an_option(name: str) -> None:
    config = DecoderConfig(**CONFIG | SIZES | CASES[name])
    check(config, without_cache=name in WITHOUT_CACHE)


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw any options that fit together, on small and odd sizes."""
    kv_heads, dim = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    layers = st.one_of(st.none(), st.tuples(*[st.booleans()] * 3))
    chosen = {name: draw(st.sampled_from(known)) for name, known in CHOICES.items()}
    chosen |= {
        "rope_scaling": "none",
        "state_norm": "gated",
        "state_decay": "head",
        "state_gate": "silu",
        "scan_norm": "none",
        "state_act": None,
        "pooling": None,
        "scored_by": None,
        "scores": None,
    }
    if (
        chosen["block"] == "single"
    ):  # tests/architectures/test_layer_state.py has layers of one part
        chosen["block"] = "pre"
    if chosen["hidden_act"] == "xielu":
        chosen |= {name: draw(st.tuples(*[st.floats(-2, 2)] * 3)) for name in OPTIONS}
    result = chosen | {
        "vocab_size": draw(st.integers(2, 70)),
        "hidden_size": draw(st.integers(3, 40)),
        "intermediate_size": draw(st.integers(1, 40)),
        "n_kv_heads": kv_heads,
        "n_heads": kv_heads * draw(st.integers(1, 3)),
        "head_dim": 2 * dim + draw(st.integers(0, 3)),
        "norm_bias": chosen["norm"] == "layer" and draw(st.booleans()),
        **{name: draw(st.booleans()) for name in ("qkv_bias", "o_bias", "mlp_bias")},
        **{name: draw(st.booleans()) for name in ("sub_norms", "lm_head_bias")},
        "qkv_clip": draw(st.none() | st.floats(0.5, 3)),
        "plain_norms": chosen["norm"] == "rms" and draw(st.booleans()),
        "qk_norm_bias": chosen["qk_norm_type"] == "layer"
        and chosen["qk_norm"] != "plain"
        and draw(st.booleans()),
        "qk_norm_after_rope": chosen["qk_norm"] != "full" and draw(st.booleans()),
        "qk_norm_rotated_only": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
        "sliding_window": draw(st.none() | st.integers(1, 12)),
        "attention_softcap": draw(st.none() | st.floats(0.5, 30)),
        "logits_softcap": draw(st.none() | st.floats(0.5, 30)),
        "embed_scale": draw(st.floats(0.5, 6)),
        "residual_scale": draw(st.floats(0.2, 1)),
    }
    if chosen["position"] == "sinusoidal":
        result["hidden_size"] = max(4, result["hidden_size"])
    if chosen["position"] == "relative":
        buckets = draw(st.integers(4, 9))
        result |= {"attention_softcap": None, "sliding_window": None, "relative_buckets": buckets}
        result |= {"relative_distance": draw(st.integers(buckets // 2 + 1, 16))}
        result |= {"relative_each": draw(st.booleans())}
    if result["sliding_window"] is not None:
        result |= {"sliding_layers": draw(layers), "chunked_window": draw(st.booleans())}
        if chosen["position"] == "rope":
            result["rope_local_theta"] = draw(st.none() | st.floats(10, 1000))
    if chosen["position"] == "alibi":
        result["attention_softcap"] = None
    if chosen["position"] == "rope":
        result |= {"rotary_dim": 2 * dim, "rope_layers": draw(layers)}
    if chosen["position"] == "rope" and draw(st.booleans()):
        sizes = st.integers(1, 9)
        result |= {"latent_size": draw(sizes), "query_latent_size": draw(st.none() | sizes)}
        result |= {"value_dim": draw(st.none() | sizes), "plain_dim": (plain := draw(sizes))}
        result |= {"head_dim": plain + 2 * dim}
        result |= {"qk_norm": "none", "qk_norm_after_rope": False, "qkv_clip": None}
        result |= {"sub_norms": False, "n_kv_heads": result["n_heads"]}
    if draw(st.booleans()):
        result |= {"temperature": 0.5, "temperature_context": draw(st.integers(1, 9))}
        result |= {"temperature_offset": draw(st.integers(0, 2))}
        result |= {"temperature_unrotated_only": draw(st.booleans())}
    has_experts = chosen["mlp"] == "gated" and chosen["hidden_act"] != "xielu"
    if has_experts and draw(st.booleans()):
        experts = draw(st.integers(1, 6))
        used = draw(st.integers(1, experts))
        result |= {"n_experts": experts, "n_experts_used": used, "expert_layers": draw(layers)}
        result |= {"topk_norm_order": draw(st.sampled_from([1.0, 2.0, 1.5]))}
        result |= {"norm_topk": draw(st.booleans()), "expert_size": draw(st.integers(1, 30))}
        result |= {"expert_input_scaled": draw(st.booleans())}
        if chosen["expert_scores"] == "sparsemixer":
            result |= {"expert_jitter": draw(st.floats(0, 0.5))}
    return result


@pytest.mark.slow
@given(options(), st.integers(0, 9))
@settings(max_examples=6)
def test_any_options_that_go_together(found: dict[str, Any], seed: int) -> None:
    config = DecoderConfig(**CONFIG | found)
    assert problems(config) == []
    check(config, seed, without_cache=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "dtype",
    [pytest.param(DType.float16, marks=pytest.mark.slow), DType.bfloat16],
    ids=lambda dtype: dtype.value,
)
def test_matrices_of_other_types(dtype: DType) -> None:
    """Read them as they are stored, tables of positions and experts too."""
    changes = {"position": "learned", "n_experts": 3, "n_experts_used": 2}
    config = DecoderConfig(**CONFIG | SIZES | changes | {"expert_layers": LAYERS})
    model = Decoder(config, dtype)
    expected = Oracle(config, fill(model)).logits(ids := np.arange(9)[None] % 5)
    # Products of pairs of bfloat16, which some CPUs have, round what they multiply.
    bound = 2e-2 if dtype is DType.bfloat16 else 1e-5
    assert error(Steps(model, batch=1)(ids), expected[:, -1]) < bound


# These have parameters of their own, or change nothing that a test could see.
UNSEEN = {*SIZES, "norm_bias", "qkv_bias", "o_bias", "mlp_bias", "qk_norm", "mlp", "norm", "block"}
UNSEEN |= {"qk_norm_bias", "plain_norms", "sub_norms", "lm_head_bias", "temperature_context"}
UNSEEN |= {"n_experts", "n_experts_used", "expert_size", "expert_layers"}
UNSEEN |= {"expert_correction", "router_bias", "expert_bias", "shared_expert_size", "swiglu_alpha"}
UNSEEN |= {"shared_expert_gate", "attention_gate", "attention_sinks", "expert_groups_used"}
UNSEEN |= {*OPTIONS, "latent_size", "query_latent_size", "plain_dim", "value_dim"}
UNSEEN |= {"local_head_dim", "local_kv_heads", "value_layers", "kv_shared_layers", "layer_widths"}
UNSEEN |= {"layer_embed_size", "layer_embed_rows", "layer_scale", "experts_beside", "router_norm"}
UNSEEN |= {"expert_factors", "layer_heads", "attention_gate_by_head", "sink_layers"}
UNSEEN |= {"tie_word_embeddings", "position", "rope_scaling", "sliding_layers", "embed_size"}


@pytest.mark.parametrize("name", CASES)
def test_an_option_that_is_ignored_would_show(name: str) -> None:
    changes = CASES[name] if "wider" not in name else {}
    plain = CONFIG | SIZES
    config = DecoderConfig(**plain | changes)
    weights, ids = fill(Decoder(config)), np.arange(9)[None]
    expected = Oracle(config, weights).logits(ids)
    sizes = {"rotary_dim"} if "latent_size" in changes else set()
    sizes |= {"sliding_window"} if "local_head_dim" in changes else set()
    for option in changes.keys() - UNSEEN - sizes:
        ignored = {key: value for key, value in changes.items() if key != option}
        other = Oracle(DecoderConfig(**plain | ignored), weights).logits(ids)
        assert error(other, expected) > 1e-3, option
