"""Layers that keep a state of fixed size in the place of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.architectures import CacheLayout, Decoder, build, graph_of
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.parity import evaluate
from tests.architectures.decoders import CONFIG, Steps, fill
from tests.architectures.oracle import Oracle

CONVOLVED: dict[str, Any] = {"conv_taps": 3, "attention_layers": (False, True, False)}
DELTA: dict[str, Any] = {
    "mixer": "delta",
    "conv_taps": 4,
    "state_heads": 4,
    "state_key_heads": 2,
    "state_key_dim": 3,
    "state_value_dim": 5,
    "attention_layers": (False,) * 3,
}
SELECTIVE: dict[str, Any] = {
    "mixer": "selective",
    "conv_taps": 4,
    "conv_bias": True,
    "state_key_dim": 5,
    "state_value_dim": 21,
    "step_rank": 3,
}
KINDS: dict[str, dict[str, Any]] = {
    "short convolution": CONVOLVED,
    "biases": {**CONVOLVED, "conv_taps": 4, "conv_bias": True},
    "no attention": {"conv_taps": 2, "attention_layers": (False,) * 3},
    "delta nets": {**DELTA, "attention_layers": (False, True, False)},
    "delta nets, heads of keys for each": {**DELTA, "state_key_heads": 4, "hidden_act": "relu"},
    "delta nets by channel": {
        **DELTA,
        "state_decay": "channel",
        "state_gate": "sigmoid",
        "step_rank": 2,
        "gate_rank": 3,
        "position": "none",
        "attention_layers": (False, True, False),
        "latent_size": 9,
        "plain_dim": 4,
        "rotary_dim": 5,
        "head_dim": 9,
        "n_kv_heads": CONFIG["n_heads"],
    },
    "state spaces": {**DELTA, "mixer": "mamba", "attention_layers": (False, True, False)},
    "state spaces with biases": {
        **DELTA,
        "mixer": "mamba",
        "conv_bias": True,
        "state_bias": True,
        "state_key_heads": 1,
        "position": "none",
        "attention_layers": (True, False, False),
    },
    "layers of one part": {
        **DELTA,
        "mixer": "mamba",
        "block": "single",
        "mlp": "plain",
        "hidden_act": "relu2",
        "state_act": "relu",
        "attention_layers": (True, False, False),
        "mlp_layers": (False, False, True),
    },
    "layers of one part, of experts too": {
        **DELTA,
        "mixer": "mamba",
        "block": "single",
        "mlp": "plain",
        "mlp_bias": True,
        "position": "none",
        "attention_layers": (True, False, False),
        "mlp_layers": (False, True, True),
        "n_experts": 4,
        "n_experts_used": 2,
        "expert_layers": (False, False, True),
        "expert_size": 5,
        "expert_latent_size": 6,
        "expert_scores": "sigmoid",
        "expert_correction": True,
        "expert_scale": 1.5,
        "shared_expert_size": 7,
    },
    "state spaces alone": {
        **DELTA,
        "mixer": "mamba",
        "block": "single",
        "position": "none",
        "mlp_layers": (False,) * 3,
        **dict.fromkeys(("n_heads", "n_kv_heads", "head_dim", "intermediate_size"), 0),
    },
    "state spaces beside attention": {
        **DELTA,
        "mixer": "mamba",
        "mixer_beside": True,
        "attention_layers": (True, False, True),
        "attention_in_scale": 0.75,
        "key_scale": 1.25,
        "attention_out_scale": 0.625,
        "mixer_in_scale": 1.125,
        "mixer_out_scale": 0.875,
        "state_scales": (0.5, 1.5, 0.75, 1.25, 2.0),
        "mlp_scales": (0.875, 1.125),
        "state_norm": "none",
    },
    "selective state spaces": {
        **SELECTIVE,
        "block": "single",
        "position": "none",
        "attention_layers": (False,) * 3,
        "mlp_layers": (False,) * 3,
        **dict.fromkeys(("n_heads", "n_kv_heads", "head_dim", "intermediate_size"), 0),
    },
    "selective state spaces, normed": {
        **SELECTIVE,
        "conv_bias": False,
        "state_bias": True,
        "scan_norm": "plain",
        "scan_eps": 0.125,
        "hidden_act": "relu",
        "attention_layers": (False, True, False),
    },
    "selective state spaces, norms with weights": {
        **SELECTIVE,
        "scan_norm": "rms",
        "attention_layers": (True, False, False),
    },
    "norms before gates": {**DELTA, "mixer": "mamba", "state_norm": "before"},
    "beside a window": {**CONVOLVED, "sliding_window": 3, "block": "sandwich"},
}
# Compiled as others are.
ALIKE = ("delta nets, heads of keys for each", "state spaces with biases", "state spaces alone")
ALIKE += (
    "norms before gates",
    "selective state spaces, norms with weights",
    "layers of one part, of experts too",
)
TEXTS = np.random.default_rng(1).integers(0, 11, (2, 13))


def made(kind: str, **options: Any) -> tuple[Decoder, dict[str, np.ndarray[Any, Any]]]:
    model = build("decoder", CONFIG | KINDS[kind], **options)
    assert isinstance(model, Decoder)
    return model, fill(model)


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_computes_what_numpy_does(kind: str) -> None:
    model, weights = made(kind)
    forward = graph_of(model, model.entries()[0])
    owned = {name: weight.to_numpy() for name, weight in forward.owners.items()}
    (logits,) = evaluate(forward, [TEXTS], {**weights, **owned})
    expected = Oracle(model.config, weights).logits(TEXTS)
    np.testing.assert_allclose(logits, expected, atol=1e-5)  # angles are float32


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "slides"),
    [*((kind, True) for kind in KINDS if kind not in ALIKE), ("beside a window", False)],
)
def test_texts_in_pieces(kind: str, slides: bool) -> None:
    """Read in pieces and token by token, and once more behind another text in the same memory."""
    model, weights = made(kind, form=CacheLayout(slides=slides))
    expected = Oracle(model.config, weights).logits(TEXTS)
    steps = Steps(model, batch=2, decodes=True)
    for lengths in ((5, 1, 1, 4, 1, 1), (1, 1, 9, 2)):
        steps.position = 0  # what the memory holds is of the text before
        for length in lengths:
            first = steps.position
            logits = steps(TEXTS[:, first : first + length])
            np.testing.assert_allclose(logits, expected[:, first + length - 1], atol=1e-4)


def test_what_layers_keep_is_declared_by_them() -> None:
    model, _ = made("short convolution", form=CacheLayout(DType.float16))
    kept = {name: str(kind) for name, kind in model.cache().items()}
    assert kept["cache.0.inputs"] == "buffer float32[batch, 2, 8]"
    assert list(kept) == ["cache.0.inputs", "cache.1.key", "cache.1.value", "cache.2.inputs"]
    assert model.positions == {"cache.1.key": 3, "cache.1.value": 2}
    assert model.facts["is_recurrent"] is True
    assert "is_recurrent" not in build("decoder", CONFIG).facts
    assert [state.is_fixed for state in model.states()] == [True, False, True]


def test_parts_side_by_side_keep_theirs_by_name() -> None:
    model, _ = made("state spaces beside attention")
    names = ["attn_key", "attn_value", *(f"mamba_{one}" for one in ("query", "key", "value"))]
    assert list(model.states()[0].buffers) == [*names, "mamba_sums"]
    assert list(model.states()[1].buffers) == ["query", "key", "value", "sums"]
    assert model.states()[2].positions == {"attn_key": 3, "attn_value": 2}
    single, _ = made("layers of one part")
    assert [len(state.buffers) for state in single.states()] == [2, 4, 0]


SINGLE = KINDS["layers of one part"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"attention_layers": (False, True, True)}, "needs conv_taps"),
        ({"attention_layers": (True,) * 2}, "attention_layers has 2 values, not 3"),
        ({**CONVOLVED, "conv_taps": 1}, "two tokens at least"),
        ({**DELTA, "state_key_dim": None}, "needs state_key_dim"),
        ({**DELTA, "state_key_heads": 3}, "state_heads 4 is not a multiple"),
        ({**CONVOLVED, "mixer": "rnn"}, "mixer"),
        ({**CONVOLVED, "conv_taps": 0}, "conv_taps is 0"),
        ({**SINGLE, "mlp_layers": None}, "block 'single' needs mlp_layers"),
        ({**SINGLE, "mlp_layers": (True, False, True)}, "layer 0 is both in attention_layers and"),
        ({**SINGLE, "mlp_layers": (True,)}, "mlp_layers has 1 values, not 3"),
        ({**SINGLE, "intermediate_size": 0}, "intermediate_size is 0"),
        ({**SINGLE, "position": "none", "n_heads": 0}, "n_heads is 0"),
        ({**SINGLE, "n_kv_heads": -1}, "n_kv_heads is -1"),
        ({**SINGLE, "block": "pre"}, "mlp_layers with block 'pre'"),
        ({"mixer_beside": True}, "mixer 'convolution' needs conv_taps"),
        ({"mlp_scales": (1.0,)}, "mlp_scales has 1 values, not 2"),
        ({"mlp_scales": (1.0, -1.0)}, "mlp_scales has a multiplier"),
        ({"mlp_scales": (1.0, 2.0), "mlp": "plain"}, "mlp_scales are for gated MLPs alone"),
        ({**DELTA, "state_scales": (1.0,) * 5}, "state_scales with mixer 'delta'"),
        ({"state_act": "silu"}, "state_act 'silu' with mixer 'convolution', which has no states"),
        ({**DELTA, "state_act": "prelu"}, "state_act 'prelu': supported are"),
        ({**DELTA, "state_norm": "none"}, "state_norm 'none' is for state spaces alone"),
        ({**DELTA, "scan_norm": "rms"}, "scan_norm 'rms' with mixer 'delta'"),
        ({**DELTA, "mixer": "mamba", "step_rank": 3}, "step_rank 3 with mixer 'mamba'"),
        ({**DELTA, "mixer": "mamba", "gate_rank": 3}, "gate_rank 3 with mixer 'mamba'"),
        ({"state_decay": "channel"}, "it is for 'delta' alone"),
        ({**SELECTIVE, "state_gate": "sigmoid"}, "state_gate 'sigmoid' with mixer 'selective'"),
        ({**DELTA, "state_gate": "relu"}, "state_gate 'relu': supported are"),
        ({**KINDS["selective state spaces"], "step_rank": None}, "'selective' needs step_rank"),
        ({**KINDS["selective state spaces"], "scan_eps": 1e-5}, "scan_eps 1e-05 needs scan_norm"),
    ],
)
def test_options_that_contradict_each_other(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        build("decoder", CONFIG | changes)
    assert problem in "\n".join(error.value.problems)


def test_no_device_has_a_part_of_it() -> None:
    model, _ = made("short convolution")
    with pytest.raises(ConfigurationError, match="split over 2 devices") as error:
        model.split(2)
    assert "2 layers, the first of them 0, keep a state of fixed size" in error.value.problems[0]
