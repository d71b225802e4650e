"""The encoder: its configuration, its parameters, and that padding changes no number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.architectures import build, graph_of
from maxtool.architectures.distance_vectors import rows_of
from maxtool.architectures.encoder import Encoder
from maxtool.architectures.pooling import POOLINGS, pooled
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import Tensor, executor
from maxtool.graph.limits import least_sizes
from maxtool.nn.tracing import trace
from tests.effort import examples

CONFIG: dict[str, Any] = {
    "vocab_size": 11,
    "hidden_size": 6,
    "intermediate_size": 10,
    "n_layers": 3,
    "n_heads": 3,
    "head_dim": 2,
    "context_length": 9,
    "norm_eps": 1e-5,
}
FAR: dict[str, Any] = {"relative_buckets": 8, "relative_distance": 6}
NEAR: dict[str, Any] = {
    "blank_padding": True,
    "distance_terms": ("c2p", "p2c"),
    "distance_limit": 5,
    "distance_buckets": 4,
}


def made(dtype: DType = DType.float32, **changes: Any) -> Encoder:
    encoder = build("encoder", CONFIG | changes, dtype)
    assert isinstance(encoder, Encoder)
    return encoder


def filled(encoder: Encoder, seed: int = 0) -> Encoder:
    rng = np.random.default_rng(seed)
    state = {n: rng.standard_normal(a.shape) for n, a in encoder.state_dict().items()}
    encoder.load_state_dict({n: a.astype(np.float32) for n, a in state.items()})
    return encoder


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"n_heads": 0}, "n_heads is 0"),
        ({"norm_eps": -1.0}, "norm_eps is -1.0"),
        ({"position": "rope", "head_dim": 3}, "head_dim 3 is odd"),
        ({"position": "sinus"}, "position 'sinus': supported are learned, rope, none"),
        (
            {"hidden_act": "prelu"},
            "hidden_act 'prelu': supported are silu, gelu, gelu_tanh, relu, ",
        ),
        ({"mlp": "wide"}, "mlp 'wide': supported are gated, plain"),
        ({"pooling": "sum"}, "pooling 'sum': supported are mean, cls, max, last"),
        ({"classifier_pooling": "max"}, "classifier_pooling 'max': supported are mean, cls"),
        ({"max_length": 0}, "max_length is 0"),
        ({"pad_token_id": 11}, "pad_token_id is 11, of 11 tokens"),
        ({"context_length": 2**31, "position_offset": 2}, "context_length is 2147483648, above"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"token_types": -1}, "token_types is -1"),
        ({"block": "post"}, "block 'post': supported are after, pre"),
        ({"rope_local_theta": 0.0}, "rope_local_theta is 0.0"),
        ({"sliding_layers": (True,), "sliding_window": 4}, "sliding_layers has 1 values, not 3"),
        ({"relative_buckets": 8}, "relative_buckets needs relative_distance"),
        ({"relative_buckets": 3, "relative_distance": 9}, "relative_buckets 3 with relative_dist"),
        (FAR | {"relative_rows": 7}, "relative_rows is 7: fewer than the 8 buckets"),
        (NEAR | {"distance_terms": ("p2p",)}, "distance_terms p2p: each is one of c2p, p2c"),
        (NEAR | {"distance_buckets": 6, "distance_limit": 4}, "distance_buckets 6 with distance"),
        (NEAR | {"blank_padding": False}, "distance_limit goes with blank_padding and block"),
        (NEAR | {"position": "rope"}, "distance_limit goes with blank_padding and block"),
        ({"blank_padding": True} | FAR, "blank_padding goes neither with relative_buckets nor"),
        ({"blank_padding": True, "conv_taps": 2}, "conv_taps is 2, which is even"),
        ({"conv_taps": 3}, "conv_taps needs blank_padding"),
        ({"blank_padding": True, "conv_taps": 3, "conv_groups": 4}, "conv_groups is 4, which do"),
        ({"sliding_layers": (True,) * 3}, "there are layers with a window, and no sliding_window"),
    ],
)
def test_problems_of_a_configuration(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        made(**changes)
    assert [result[: len(problem)] for result in error.value.problems] == [problem]


@pytest.mark.parametrize("context", [0, -5])
def test_a_context_of_no_positions(context: int) -> None:
    with pytest.raises(ConfigurationError, match="context"):
        build("encoder", CONFIG, context=context)


def test_the_context_is_where_texts_are_cut() -> None:
    assert made().context == 9
    assert made(max_length=4).context == 4
    assert made(max_length=12).context == 9
    assert build("encoder", CONFIG | {"max_length": 4}, context=7).context == 7


def test_parameters_have_the_names_and_shapes_that_recipes_know() -> None:
    model = made(DType.bfloat16, token_types=2, position_offset=2, pooler=True)
    weights = model.raw_state_dict()
    shapes = {name: tuple(map(int, weight.shape)) for name, weight in weights.items()}
    layer = {n.removeprefix("layers.1."): s for n, s in shapes.items() if n.startswith("layers.1.")}
    assert layer == {
        **{f"attn.{part}.weight": (6, 6) for part in "qkvo"},
        **{f"attn.{part}.bias": (6,) for part in "qkvo"},
        **{f"{norm}.{part}": (6,) for norm in ("attn_norm", "mlp_norm") for part in PARTS},
        "mlp.up.weight": (10, 6),
        "mlp.up.bias": (10,),
        "mlp.down.weight": (6, 10),
        "mlp.down.bias": (6,),
    }
    outer = {name: shape for name, shape in shapes.items() if not name.startswith("layers.")}
    assert outer == {
        "embed.weight": (11, 6),
        "position.weight": (11, 6),
        "token_type.weight": (2, 6),
        "embed_norm.weight": (6,),
        "embed_norm.bias": (6,),
        "pooler.weight": (6, 6),
        "pooler.bias": (6,),
    }
    matrices = {name for name, weight in weights.items() if weight.shape.rank == 2}
    assert {weights[name].dtype for name in matrices} == {DType.bfloat16}


PARTS = ("weight", "bias")
NOMIC = {"position": "rope", "mlp": "gated", "qkv_bias": False, "o_bias": False, "mlp_bias": False}


def test_parameters_of_a_rotary_encoder() -> None:
    names = set(made(**NOMIC).raw_state_dict())
    assert "position.weight" not in names
    assert "layers.0.mlp.gate.weight" in names
    assert not {name for name in names if name.endswith("bias") and "norm" not in name}


def test_tables_that_are_narrower_than_the_layers() -> None:
    shapes = {
        name: tuple(map(int, weight.shape))
        for name, weight in made(embedding_size=4, token_types=2).raw_state_dict().items()
        if not name.startswith("layers.")
    }
    assert shapes == {
        "embed.weight": (11, 4),
        "position.weight": (9, 4),
        "token_type.weight": (2, 4),
        "embed_norm.weight": (4,),
        "embed_norm.bias": (4,),
        "widened.weight": (6, 4),
        "widened.bias": (6,),
    }


MODERN: dict[str, Any] = NOMIC | {
    "block": "pre",
    "norm_bias": False,
    "rope_local_theta": 100.0,
    "sliding_layers": (False, True, False),
    "sliding_window": 5,
}


def test_parameters_where_norms_come_first() -> None:
    names = set(made(**MODERN).raw_state_dict())
    assert "layers.0.attn_norm.weight" not in names
    assert {"layers.1.attn_norm.weight", "layers.0.mlp_norm.weight", "norm.weight"} <= names
    assert not {name for name in names if name.endswith("bias")}


@pytest.mark.parametrize("layers", [(True,), None], ids=["flags", "all"])
def test_a_window_hides_what_is_far(layers: tuple[bool, ...] | None) -> None:
    """Change the last token: through one layer no vector farther than half the window changes."""
    model = filled(made(**MODERN | {"n_layers": 1, "sliding_layers": layers}))
    ids = np.array([[2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 8]])
    first, second = model.forward(Tensor(ids), Tensor(np.ones_like(ids)))[0].to_numpy()
    changed = np.abs(first - second).max(-1) > 1e-6
    assert changed.tolist() == [False, False, False, True, True, True]


def test_rows_of_distances() -> None:
    """Rows by hand, ``ceil(log(d / 2) / log(8 / 2)) + 2`` beyond half of the buckets."""
    distances = np.arange(-9, 10)
    found = rows_of(distances, limit=9, buckets=4) - 4
    assert found.tolist() == [-4, *[-3] * 6, -2, -1, 0, 1, 2, *[3] * 7]
    assert rows_of(distances, limit=3, buckets=None).tolist() == [0] * 7 + [1, 2, 3, 4] + [5] * 8


def test_a_context_with_too_many_places() -> None:
    with pytest.raises(ConfigurationError, match="positions with 8 vectors of distances"):
        made(**NEAR | {"context_length": 1 << 28})


@pytest.mark.long
def test_a_head_with_a_layer_of_its_own_takes_no_pooler() -> None:
    """Heads as RoBERTa's and ELECTRA's, beside which old files have BERT's pooler."""
    ids = Tensor(np.arange(2, 8)[None])
    mask = Tensor(np.ones((1, 6), np.int64))
    options = {"n_labels": 2, "classifier_act": "tanh"}
    beside = filled(made(pooler=True, **options))
    plain = made(**options)
    state = beside.state_dict()
    plain.load_state_dict({name: state[name] for name in plain.state_dict()})
    expected = plain.classify(ids, mask).to_numpy()
    np.testing.assert_array_equal(beside.classify(ids, mask).to_numpy(), expected)


def test_entries_name_their_inputs_and_outputs() -> None:
    forward, embed = made(token_types=2, pooler=True).entries()
    assert list(forward.inputs) == ["input_ids", "attention_mask", "token_type_ids"]
    assert forward.outputs == ("last_hidden_state", "pooler_output")
    assert list(embed.inputs) == ["input_ids", "attention_mask"]
    plain = made(token_types=1).entries()[0]
    assert list(plain.inputs) == ["input_ids", "attention_mask"]
    assert plain.outputs == ("last_hidden_state",)
    limits = made(token_types=2).limits
    assert limits == {
        "seq": 9,
        "input_ids": (0, 10),
        "attention_mask": (0, 1),
        "token_type_ids": (0, 1),
    }


def test_equal_layers_are_traced_once() -> None:
    model = made(**NOMIC)
    for entry in model.entries():
        graph = graph_of(model, entry)
        assert len(graph.subgraphs) == 1
        assert set(least_sizes(graph).values()) <= {1}


# Each is compiled once, for sequences of every length.
PADDED: dict[str, dict[str, Any]] = {
    "bert": {"token_types": 2, "normalize": True},
    "roberta": {"position_offset": 2, "pad_token_id": 1, "pooling": "max", "hidden_act": "relu"},
    "nomic": NOMIC | {"hidden_act": "silu", "pooling": "cls"},
    "modern": MODERN | {"sliding_layers": (True,), "sliding_window": 3},
    "deberta": NEAR | {"position": "none", "distance_norm": True, "conv_taps": 3},
    "mpnet": FAR | {"position_offset": 2, "pad_token_id": 1, "relative_rows": 9},
}


@pytest.fixture(scope="module", params=list(PADDED))
def embed(request: pytest.FixtureRequest) -> Callable[[Any, Any], Any]:
    """A compiled entry ``embed``, as a function of arrays."""
    model = filled(made(n_layers=1, **PADDED[request.param]))
    entry = model.entries()[1]
    graph = trace(model, "embed", entry.types, entry.function)
    weights = {**model.state_dict(), **{n: w.to_numpy() for n, w in graph.owners.items()}}
    step = executor.find_executor().compile(graph, weights)
    return lambda *arrays: step(*map(Tensor, arrays))[0].to_numpy()


@pytest.mark.sampled
@settings(max_examples=examples(6, 20))
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_a_text_in_a_padded_batch_is_the_text_alone(
    embed: Callable[[Any, Any], Any], lengths: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    texts = [rng.integers(2, 11, length) for length in lengths]
    ids = np.ones((len(texts), max(lengths)), np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    alone = [embed(text[None], np.ones((1, len(text)), np.int64))[0] for text in texts]
    np.testing.assert_allclose(embed(ids, mask), np.stack(alone), rtol=1e-5, atol=1e-6)


X = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32) - 5
KEPT = (3, 1)
EXPECTED: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x.mean(0),
    "cls": lambda x: x[0],
    "max": lambda x: x.max(0),
    "last": lambda x: x[-1],
}


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", POOLINGS)
def test_pooling(kind: str, normalize: bool) -> None:
    mask = (np.arange(4) < np.array(KEPT)[:, None]).astype(np.int64)
    actual = pooled(kind, Tensor(X), Tensor(mask), normalize=normalize).to_numpy()
    expected = np.stack([EXPECTED[kind](x[:n]) for x, n in zip(X, KEPT, strict=True)])
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_nothing_to_divide_by() -> None:
    zeros = Tensor(np.zeros((1, 2, 3), np.float32))
    result = pooled("mean", zeros, Tensor(np.zeros((1, 2), np.int64)), normalize=True)
    np.testing.assert_array_equal(result.to_numpy(), np.zeros((1, 3)))
