"""The decoder: its configuration, its parameters, and that a cache changes no number."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from maxtool.architectures import ARCHITECTURES, CacheLayout, Decoder, build, graph_of
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph.limits import least_sizes
from maxtool.nn.tracing import trace
from tests.architectures.decoders import CONFIG, Steps, fill
from tests.effort import thinned


def made(dtype: DType = DType.float32, **changes: Any) -> Decoder:
    return build("decoder", CONFIG | changes, dtype)


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"n_heads": 3}, ["n_heads 3 is not a multiple of n_kv_heads 2"]),
        ({"n_kv_heads": 0, "head_dim": 3}, ["n_kv_heads is 0", "head_dim 3 is odd"]),
        ({"vocab_size": -1, "norm_eps": -1.0}, ["vocab_size is -1", "norm_eps is -1.0"]),
        ({"rope_theta": float("nan")}, ["rope_theta is nan"]),
        ({"rope_factor": float("inf")}, ["rope_factor is inf"]),
        ({"sliding_window": 0}, ["sliding_window is 0"]),
        (
            {"hidden_act": "swish"},
            ["hidden_act 'swish': supported are silu, gelu, gelu_tanh, relu"],
        ),
        ({"rope_scaling": "ntk"}, ["rope_scaling 'ntk': supported are none, linear"]),
        ({"n_layers": "3"}, ["n_layers is '3', not int"]),
        (
            {"n_layers": True, "extra": 1},
            ["extra is not a field of DecoderConfig", "n_layers is True"],
        ),
        ({"sliding_window": 1.5}, ["sliding_window is 1.5, not int or null"]),
    ],
)
def test_every_problem_of_a_configuration_is_reported(
    changes: dict[str, Any], problems: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as error:
        made(**changes)
    result = error.value.problems
    assert all(one.startswith(start) for one, start in zip(result, problems, strict=True))


def test_fields_that_are_missing() -> None:
    with pytest.raises(ConfigurationError) as error:
        build("decoder", {"vocab_size": 3})
    assert "hidden_size is missing" in error.value.problems
    assert "tie_word_embeddings is missing" not in error.value.problems


def test_an_architecture_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match=r"no architecture 'coder'.*decoder"):
        build("coder", CONFIG)
    assert "decoder" in ARCHITECTURES


@pytest.mark.parametrize("context", [0, -5])
def test_a_context_of_no_positions(context: int) -> None:
    with pytest.raises(ConfigurationError, match="context"):
        build("decoder", CONFIG, context=context)


def test_parameters_have_the_names_and_shapes_that_recipes_know() -> None:
    model = made(DType.bfloat16, qkv_bias=True, o_bias=True)
    weights = model.raw_state_dict()
    layer = {n.removeprefix("layers.2."): w for n, w in weights.items() if ".2." in n}
    assert {name: tuple(map(int, weight.shape)) for name, weight in layer.items()} == {
        "attn_norm.weight": (8,),
        "attn.q.weight": (16, 8),
        "attn.q.bias": (16,),
        "attn.k.weight": (8, 8),
        "attn.k.bias": (8,),
        "attn.v.weight": (8, 8),
        "attn.v.bias": (8,),
        "attn.o.weight": (8, 16),
        "attn.o.bias": (8,),
        "mlp_norm.weight": (8,),
        "mlp.gate.weight": (12, 8),
        "mlp.up.weight": (12, 8),
        "mlp.down.weight": (8, 12),
    }
    outer = [name for name in weights if not name.startswith("layers.")]
    assert sorted(outer) == ["embed.weight", "lm_head.weight", "norm.weight"]
    matrices = {name for name, weight in weights.items() if weight.shape.rank == 2}
    assert {weights[name].dtype for name in matrices} == {DType.bfloat16}
    assert {w.dtype for n, w in weights.items() if n not in matrices} == {DType.float32}
    assert "lm_head.weight" not in made(tie_word_embeddings=True).raw_state_dict()


def test_entries_name_their_inputs_outputs_and_state() -> None:
    forward, prefill, decode = made().entries()
    assert [list(entry.inputs) for entry in (forward, prefill, decode)] == [
        ["input_ids"],
        ["input_ids", "position"],
        ["input_ids", "position"],
    ]
    assert list(prefill.state)[:3] == ["cache.0.key", "cache.0.value", "cache.1.key"]
    assert decode.inputs["input_ids"].shape == ["batch", 1]
    assert not forward.state
    assert len(prefill.types) == 2 + 2 * 3


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tie_word_embeddings": True}, marks=pytest.mark.slow),
        {"sliding_window": 3, "qkv_bias": True, "o_bias": True, "mlp_bias": True},
    ],
    ids=["tied", "window and biases"],
)
def test_a_cache_changes_no_number(changes: dict[str, Any]) -> None:
    """Logits of a whole sequence, and of the same one read in two parts and then a token a time."""
    model = made(DType.bfloat16, **changes)
    rng = np.random.default_rng(0)
    model.load_state_dict(
        {
            name: (rng.standard_normal(array.shape) / 2).astype(array.to_numpy().dtype)
            for name, array in model.state_dict().items()
        }
    )
    forward, prefill, _ = model.entries()
    graph = trace(model, "prefill", prefill.types, prefill.function)
    assert len(graph.subgraphs) == 1
    ids = rng.integers(0, 11, (2, 9))
    whole = model.compile(*forward.inputs.values())(ids).to_numpy()
    steps, at = Steps(model, batch=2), 0
    for length in (4, 3, 1, 1):
        at += length
        logits = steps(ids[:, at - length : at])
        np.testing.assert_allclose(logits, whole[:, at - 1], rtol=1e-4, atol=1e-4)


IDS = np.random.default_rng(1).integers(0, 11, (2, 9))


@pytest.fixture(scope="module")
def exact() -> Any:
    """The logits of a decoder without a cache."""
    plain = build("decoder", CONFIG)
    fill(plain)
    return plain.compile(*plain.entries()[0].inputs.values())(IDS).to_numpy()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("dtype", "transposed"),
    thinned(
        list(product([DType.float32, DType.float16, DType.bfloat16], [False, True])),
        (DType.float32, False),
        (DType.bfloat16, True),
    ),
)
def test_the_form_of_a_cache_changes_no_more_than_its_rounding(
    exact: Any, dtype: DType, transposed: bool
) -> None:
    model = build("decoder", CONFIG, form=CacheLayout(dtype, transposed))
    fill(model)
    whole = model.compile(*model.entries()[0].inputs.values())(IDS).to_numpy()
    bound = {DType.float32: 1e-5, DType.float16: 1e-2, DType.bfloat16: 8e-2}[dtype]
    np.testing.assert_allclose(whole, exact, atol=bound, rtol=0)
    steps, at = Steps(model, batch=2), 0
    for length in (4, 3, 1, 1):
        at += length
        np.testing.assert_allclose(
            steps(IDS[:, at - length : at]), whole[:, at - 1], rtol=1e-4, atol=1e-4
        )


def test_the_state_is_what_the_form_says() -> None:
    state = build("decoder", CONFIG, form=CacheLayout(DType.bfloat16, transposed=False)).cache()
    assert {kind.dtype for kind in state.values()} == {DType.bfloat16}
    assert {tuple(map(str, kind.shape)) for kind in state.values()} == {("batch", "2", "16", "4")}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, 1),
        ({"sliding_window": 3, "sliding_layers": (True, False, True)}, 2),
        ({"rope_layers": (True, True, False)}, 2),
        ({"n_experts": 4, "n_experts_used": 2, "expert_layers": (False, True, True)}, 2),
        # The tables are arguments: only the window differs.
        (
            {
                "sliding_window": 3,
                "sliding_layers": (True, False, True),
                "rope_local_theta": 10.0,
            },
            2,
        ),
        (
            {
                "sliding_window": 3,
                "sliding_layers": (True, False, True),
                "rope_layers": (True, True, False),
            },
            3,
        ),
    ],
)
def test_layers_that_are_alike_are_traced_once(changes: dict[str, Any], kinds: int) -> None:
    model = made(**changes)
    for entry in model.entries():
        graph = graph_of(model, entry)
        assert len(graph.subgraphs) == kinds


def test_its_entries_demand_no_more_than_a_loader_sees_to() -> None:
    """An artifact's loader takes no empty input, and knows no other least size."""
    decoder = made()
    for entry in decoder.entries():
        graph = graph_of(decoder, entry)
        assert set(least_sizes(graph).values()) <= {1}
        if entry.name == "prefill":
            assert least_sizes(graph)["seq"] == 1


def test_what_is_read_in_another_way_beyond_the_original_context() -> None:
    changes = {"rope_scaling": "longrope", "rope_original_context": 8}
    factors = {key: [1.0, 2.0] for key in ("rope_short_factors", "rope_long_factors")}
    longrope = CONFIG | changes | factors
    assert build("decoder", longrope).facts["reread_beyond"] == 8
    assert "reread_beyond" not in build("decoder", longrope, context=8).facts
    dynamic = CONFIG | {"rope_scaling": "dynamic", "rope_factor": 2.0}
    original = build("decoder", dynamic).config.context_length
    facts = build("decoder", dynamic, context=original + 1).facts
    assert facts["read_whole_beyond"] == original
    assert "reread_beyond" not in facts
    assert "read_whole_beyond" not in build("decoder", dynamic, context=original).facts
