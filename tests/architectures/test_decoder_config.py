"""The options of the decoder: what is wrong with them, and the parameters each of them makes."""

from __future__ import annotations

from typing import Any

import pytest

from maxtool.architectures import Decoder, DecoderConfig, build, decoder_checks
from maxtool.architectures.config import typed
from maxtool.architectures.decoder_checks import CHOICES
from maxtool.architectures.decoder_layer import NORMS
from maxtool.architectures.mlp import ACTIVATIONS, MLPS
from maxtool.errors import ConfigurationError
from tests.architectures.decoders import CONFIG

LATENT: dict[str, Any] = {"latent_size": 6, "query_latent_size": 5, "n_kv_heads": 4}
LATENT |= {"plain_dim": 2, "rotary_dim": 2}
INDEX = LATENT | {"index_topk": 3, "index_heads": 2, "index_dim": 4}


def problems(**changes: Any) -> list[str]:
    return decoder_checks.problems(DecoderConfig(**CONFIG | changes))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"norm": "batch"}, ["norm 'batch': supported are rms, layer"]),
        ({"block": "x", "mlp": "y"}, ["block 'x': supported are", "mlp 'y': supported are"]),
        ({"norm_bias": True}, ["norm_bias with rms norms, which have none"]),
        ({"qk_norm_bias": True}, ["qk_norm_bias with rms norms, which have none"]),
        (
            {"plain_norms": True, "norm": "layer", "norm_bias": True},
            ["norm_bias with norms that have no weights"],
        ),
        (
            {"qk_norm": "full", "qk_norm_after_rope": True},
            ["qk_norm_after_rope with qk_norm 'full', which is not of heads"],
        ),
        ({"kv_shared_layers": 3}, ["kv_shared_layers 3 of 3 layers: the first needs keys"]),
        (
            {
                "kv_shared_layers": 2,
                "sliding_window": 3,
                "sliding_layers": (True, False, True),
            },
            ["kv_shared_layers 2: no layer before them is of the same kind as one of them"],
        ),
        ({"local_head_dim": 6}, ["local_head_dim 6 needs rope_local_theta"]),
        (INDEX, []),
        (INDEX | {"index_heads": None}, ["index_topk 3 needs index_heads"]),
        (INDEX | {"index_dim": 0}, ["index_dim", "rotary_dim 2 and index_dim 0: more is rotated"]),
        (INDEX | {"query_latent_size": None}, ["index_topk needs query_latent_size"]),
        (
            INDEX | {"index_layers": (False, True, True)},
            ["index_layers: the first layer needs an index of its own"],
        ),
        (
            INDEX | {"index_layers": (True, False, True), "block": "after"},
            ["index_layers with block 'after'"],
        ),
        (INDEX | {"sliding_window": 4}, ["sliding_window 4 with index_topk"]),
        (INDEX | {"attention_softcap": 4.0}, ["attention_softcap 4.0 with index_topk"]),
        ({"layer_widths": (1, 2, 0)}, ["layer_widths has a width that is not above 0"]),
        ({"active_stream": 1}, ["active_stream 1 needs streams"]),
        ({"streams": 2, "active_stream": 2}, ["active_stream 2 of 2 streams"]),
        ({"streams": 2, "stream_scale": True}, ["stream_scale needs layer_embed_size"]),
        ({"streams": 2, "layer_scale": True}, ["layer_scale with streams"]),
        ({"streams": 2, "block": "parallel"}, ["streams with block 'parallel'"]),
        ({"laurel_rank": 2, "block": "post"}, ["laurel_rank with block 'post'"]),
        ({"gate_sparsity": (0.5, 1.0, 0.0)}, ["gate_sparsity has a number that is neither"]),
        ({"gate_sparsity": (1e-9, 0.0, 0.0)}, ["gate_sparsity has a number that is neither"]),
        ({"gate_sparsity": (0.5,) * 3, "mlp": "plain"}, ["gate_sparsity is for gated MLPs"]),
        (
            {"rope_reversed": True, "position": "none"},
            ["rope_reversed is for rotary positions of one base alone"],
        ),
        ({"rope_pairs": 2}, ["rope_pairs 2 with rope_scaling 'none'"]),
        ({"rope_scaling": "proportional", "rope_pairs": 3}, ["rope_pairs 3 of 2"]),
        ({"block": "after", "layer_scale": True}, ["layer_scale with block 'after'"]),
        ({"temperature": 0.1}, ["temperature 0.1 needs temperature_context"]),
        ({"qkv_clip": 0.0}, ["qkv_clip is 0.0"]),
        ({"rotary_dim": 6}, ["rotary_dim 6 is more than head_dim 4"]),
        ({"rotary_dim": 3}, ["rotary_dim 3 is odd"]),
        ({"rotary_dim": 0}, ["rotary_dim is 0"]),
        ({"head_dim": 5}, ["head_dim 5 is odd"]),
        ({"rope_scaling": "linear"}, ["rope_scaling 'linear' needs rope_factor"]),
        ({"sliding_layers": (True, False, False)}, ["sliding_layers without a sliding_window"]),
        ({"rotary_dim": 6, "head_dim": 5}, ["rotary_dim 6 is more than head_dim 5"]),
        ({"rope_local_theta": 1e4}, ["rope_local_theta 10000.0 needs sliding_window"]),
        (
            {"rope_layers": (True,), "sliding_window": 3, "sliding_layers": (True,) * 4},
            ["rope_layers has 1 values, not 3", "sliding_layers has 4 values, not 3"],
        ),
        ({"n_experts_used": 2}, ["n_experts_used 2 needs n_experts"]),
        ({"expert_layers": (True,) * 3}, ["expert_layers (True, True, True) needs n_experts"]),
        ({"attention_scale": 0.0}, ["attention_scale is 0.0"]),
        ({"logits_softcap": float("inf")}, ["logits_softcap is inf"]),
        ({"context_length": 2**31}, ["context_length is 2147483648, above 2147483647"]),
        ({"source_positions": 0}, ["source_positions is 0"]),
        ({"source_positions": 9, "block": "post"}, ["source_positions with block 'post'"]),
        ({"n_layers": 10**9}, ["n_layers is 1000000000, above 10000"]),
    ],
)
def test_problems(changes: dict[str, Any], found: list[str]) -> None:
    lines = problems(**changes)
    assert len(lines) == len(found)
    assert all(line.startswith(start) for line, start in zip(lines, found, strict=True))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"rope_scaling": "llama3"}, ["rope_factor"]),
        ({"rope_scaling": "yarn"}, []),
        ({"rope_scaling": "longrope"}, ["rope_short_factors", "rope_long_factors"]),
        ({"rope_scaling": "dynamic"}, ["rope_factor"]),
    ],
)
def test_what_a_scaling_needs(changes: dict[str, Any], found: list[str]) -> None:
    needed = [line for line in problems(**changes) if " needs " in line]
    kind = changes["rope_scaling"]
    assert needed == [f"rope_scaling {kind!r} needs {name}" for name in found]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"rope_scaling": "llama3", "rope_low_freq_factor": 5.0},
            "rope_low_freq_factor 5.0 is more than rope_high_freq_factor 4.0",
        ),
        (
            {"rope_scaling": "dynamic", "rotary_dim": 2},
            "rope_scaling 'dynamic' needs more than 2 rotated elements",
        ),
        (
            {"rope_scaling": "yarn", "rope_theta": 1.0},
            "rope_scaling 'yarn' needs a rope_theta above 1, not 1.0",
        ),
        (
            {"rope_scaling": "longrope", "rope_original_context": 1},
            "rope_scaling 'longrope' needs an original context of more than one position",
        ),
        (
            {"rope_long_attention_factor": 1.2},
            "rope_long_attention_factor with rope_scaling 'none'",
        ),
        (
            {"n_experts": 2, "n_experts_used": 1, "expert_jitter": 0.1},
            "expert_jitter with expert_scores 'softmax'",
        ),
        ({"rope_short_factors": (1.0, -1.0)}, "rope_short_factors has -1.0"),
        ({"rope_long_factors": (1.0,) * 3}, "rope_long_factors has 3 values, not 2"),
        (
            {"position": "learned", "rope_scaling": "linear"},
            "rope_scaling 'linear' with learned positions",
        ),
        ({"position": "learned", "rotary_dim": 2}, "rotary_dim with learned positions"),
        (
            {"position": "alibi", "attention_softcap": 3.0},
            "attention_softcap with linear biases of positions",
        ),
        (
            {"position": "alibi", "attention_sinks": True},
            "attention_sinks with linear biases of positions",
        ),
        (
            {"n_experts": 2, "n_experts_used": 3},
            "n_experts_used 3 is more than n_experts 2",
        ),
        (
            {"n_experts": 2, "n_experts_used": 1, "mlp": "plain", "swiglu_limit": 7.0},
            "swiglu_limit with mlp 'plain': it is for gated experts alone",
        ),
    ],
)
def test_a_problem_among_others(changes: dict[str, Any], line: str) -> None:
    assert line in problems(**changes)


def test_the_choices_are_those_that_are_built() -> None:
    assert CHOICES["block"] == tuple(NORMS)
    assert CHOICES["hidden_act"] == (*ACTIVATIONS, "xielu")
    assert CHOICES["mlp"] == tuple(MLPS)


def test_a_source_needs_an_encoder() -> None:
    with pytest.raises(ConfigurationError, match="is for decoders behind an encoder"):
        build("decoder", CONFIG | {"source_positions": 9})


def test_lists_become_tuples_and_their_items_are_checked() -> None:
    lists = {"rope_layers": [True, False, True], "rope_short_factors": [1, 2.5]}
    config = typed(DecoderConfig, CONFIG | lists, decoder_checks.problems)
    assert config.rope_layers == (True, False, True)
    assert config.rope_short_factors == (1, 2.5)
    wrong = {"rope_layers": [1, 0, 1], "rope_short_factors": [True], "sliding_layers": "yes"}
    with pytest.raises(ConfigurationError) as error:
        build("decoder", CONFIG | wrong)
    assert list(error.value.problems) == [
        "rope_short_factors is [True], not a list of float or null",
        "rope_layers is [1, 0, 1], not a list of bool or null",
        "sliding_layers is 'yes', not a list of bool or null",
    ]


def shapes(layer: int = 0, **changes: Any) -> dict[str, tuple[int, ...]]:
    """The parameters of one layer, and with layer -1 those outside the layers."""
    weights = Decoder(DecoderConfig(**CONFIG | changes)).raw_state_dict()
    result = {name: weight.shape.static() for name, weight in weights.items()}
    if layer < 0:
        return {name: shape for name, shape in result.items() if not name.startswith("layers.")}
    prefix = f"layers.{layer}."
    return {name.removeprefix(prefix): s for name, s in result.items() if name.startswith(prefix)}


@pytest.mark.parametrize(
    ("block", "norms"),
    [
        ("pre", ["attn_norm", "mlp_norm"]),
        ("post", ["attn_post_norm", "mlp_post_norm"]),
        ("sandwich", ["attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm"]),
        ("parallel", ["attn_norm", "mlp_norm"]),
        ("parallel_shared", ["attn_norm"]),
    ],
)
def test_norms_of_a_block(block: str, norms: list[str]) -> None:
    result = shapes(block=block, norm="layer", norm_bias=True)
    named = {name: shape for name, shape in result.items() if "norm" in name}
    assert named == {f"{norm}.{part}": (8,) for norm in norms for part in ("weight", "bias")}


def test_parameters_of_the_other_options() -> None:
    assert shapes(qk_norm="head")["attn.k_norm.weight"] == (4,)
    full = shapes(qk_norm="full")
    assert (full["attn.q_norm.weight"], full["attn.k_norm.weight"]) == ((16,), (8,))
    plain = shapes(mlp="plain", mlp_bias=True)
    assert [name for name in plain if name.startswith("mlp.")] == [
        "mlp.up.weight",
        "mlp.up.bias",
        "mlp.down.weight",
        "mlp.down.bias",
    ]
    assert "attn.o.bias" not in shapes(qkv_bias=True)
    assert "attn.q.bias" not in shapes(o_bias=True)
    outside = shapes(-1, position="learned", norm="layer", norm_bias=True)
    assert outside == {
        "embed.weight": (11, 8),
        "position.weight": (16, 8),
        "norm.weight": (8,),
        "norm.bias": (8,),
        "lm_head.weight": (11, 8),
    }


def test_parameters_of_experts() -> None:
    sizes = {"n_experts": 5, "n_experts_used": 2, "expert_size": 3}
    layers = (True, False, True)
    result = shapes(2, expert_layers=layers, **sizes)
    experts = {name: shape for name, shape in result.items() if name.startswith("mlp.")}
    assert experts == {
        "mlp.router.weight": (5, 8),
        "mlp.gate.weight": (5, 3, 8),
        "mlp.up.weight": (5, 3, 8),
        "mlp.down.weight": (5, 8, 3),
    }
    assert shapes(1, expert_layers=layers, **sizes)["mlp.gate.weight"] == (12, 8)
    assert shapes(1, n_experts=5, n_experts_used=2)["mlp.up.weight"] == (5, 12, 8)


def test_which_layers_have_what() -> None:
    config = DecoderConfig(
        **CONFIG,
        rope_layers=(True, True, False),
        sliding_window=3,
        sliding_layers=(False, True, False),
        rope_local_theta=100.0,
    )
    assert [config.has_rope(layer) for layer in range(3)] == [True, True, False]
    assert [config.window(layer) for layer in range(3)] == [None, 3, None]
    assert [config.is_local(layer) for layer in range(3)] == [False, True, False]
    assert not any(map(config.has_experts, range(3)))
    assert DecoderConfig(**CONFIG).window(0) is None
