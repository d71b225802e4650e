"""Convolutions, attention, rotary embedding and activations of both styles, beside PyTorch.

What PyTorch computes is in ``tests/data/layers.npz``; ``record_layers.py`` there says from what.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import nn
from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType
from maxtool.nn import eager
from tests.effort import thinned

Array = np.ndarray[Any, Any]

RECORDED = np.load(Path(__file__).parents[1] / "data" / "layers.npz")
BF16, F16, F32 = DType.bfloat16, DType.float16, DType.float32
TOLERANCE = {F16: 1e-2, BF16: 8e-2, F32: 2e-5}
STYLES = pytest.mark.parametrize("style", [nn, eager], ids=["graph", "eager"])


def recorded(case: str) -> dict[str, Array]:
    prefix = f"{case}/"
    return {key.removeprefix(prefix): RECORDED[key] for key in RECORDED if key.startswith(prefix)}


def check(
    layer: Any,
    state: Mapping[str, Array],
    x: Array,
    expected: Array,
    dims: list[int | str],
) -> None:
    """Loaded with ``state``, at once and compiled for symbolic dimensions, in x's type."""
    dtype = DType.from_numpy(x.dtype)
    layer.load_state_dict({name: np.ascontiguousarray(value) for name, value in state.items()})
    run = layer.compile(TensorType(dtype, dims))
    for result in (layer(Tensor(x)), run(x)):
        assert result.dtype is dtype
        got, bound = result.to_numpy().astype(np.float64), TOLERANCE[dtype]
        np.testing.assert_allclose(got, expected, rtol=bound, atol=bound)


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "line": {"kernel_size": 3},
    "line_strided": {"kernel_size": 3, "stride": 2, "padding": 1, "num_groups": 2},
    "line_dilated": {"kernel_size": 2, "dilation": 3},
    "image": {"kernel_size": (3, 2)},
    "image_strided": {"kernel_size": 3, "stride": (2, 1), "padding": (1, 2)},
    "image_dilated": {"kernel_size": 2, "dilation": (3, 2), "num_groups": 2},
    "image_depthwise": {"kernel_size": 3, "padding": (1, 1, 1, 1), "num_groups": 6},
}


def convolution(
    style: Any, case: str, dtype: DType, *, permute: bool
) -> tuple[Any, dict[str, Array]]:
    """The layer, and its state as it wants it."""
    result = recorded(case)
    inner, outer = result["x"].shape[1], result["y"].shape[1]
    kind = style.Conv1d if result["x"].ndim == 3 else style.Conv2d
    options = {**CONVOLUTIONS[case], "has_bias": "bias" in result, "permute": permute}
    filter_ = result["weight"] if permute else np.moveaxis(result["weight"], (0, 1), (-1, -2))
    state = {"weight": filter_, **({"bias": result["bias"]} if "bias" in result else {})}
    numbers = dtype.to_numpy()
    layer = kind(in_channels=inner, out_channels=outer, dtype=dtype, **options)
    return layer, {name: value.astype(numbers) for name, value in state.items()}


@STYLES
@pytest.mark.parametrize("permute", [False, True])
@pytest.mark.parametrize("case", thinned(CONVOLUTIONS, "line_strided", "image_dilated"))
def test_convolutions(style: Any, case: str, permute: bool) -> None:
    result = recorded(case)
    x, y = (one if permute else np.moveaxis(one, 1, -1) for one in (result["x"], result["y"]))
    layer, state = convolution(style, case, F32, permute=permute)
    check(layer, state, np.ascontiguousarray(x), y, ["batch", *x.shape[1:]])


@STYLES
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_convolutions_of_short_floats(style: Any, dtype: DType) -> None:
    result = recorded("image_strided")
    layer, state = convolution(style, "image_strided", dtype, permute=True)
    x = result["x"].astype(dtype.to_numpy())
    check(layer, state, x, result["y"], ["batch", *x.shape[1:]])


@STYLES
def test_what_does_not_fit_a_convolution(style: Any) -> None:
    layer = style.Conv2d(3, 4, 6, permute=True)
    with pytest.raises(ValueError, match=r"Conv2d takes \[batch, 4 channels, height, width\], not"):
        layer.compile(TensorType(F32, ["batch", 5, 8, 8]))
    with pytest.raises(ValueError, match=r"Conv1d takes \[batch, length, 4 channels\], not"):
        style.Conv1d(3, 4, 6).compile(TensorType(F32, ["batch", 4, 8, 4]))
    with pytest.raises(ValueError, match="3 groups do not divide"):
        style.Conv1d(3, 4, 6, num_groups=3)
    with pytest.raises(ValueError, match="2 kernel sizes, all above 0"):
        style.Conv2d((3,), 4, 6)
    with pytest.raises(ValueError, match="above 0"):
        style.Conv2d(0, 4, 6)


def test_how_layers_print() -> None:
    assert repr(eager.Conv2d(3, 4, 6)) == (
        "Conv2d(kernel_size=(3, 3), in_channels=4, out_channels=6)"
    )
    printed = repr(eager.Conv1d(3, 4, 6, stride=2, has_bias=True, permute=True))
    assert printed.endswith("out_channels=6, stride=2, permute=True, has_bias=True)")
    assert repr(eager.Sequential(eager.SiLU(), eager.GELU("tanh"))) == (
        "Sequential(\n    0=SiLU(),\n    1=GELU(approximate='tanh'),\n)"
    )
    table = Tensor(np.zeros((6, 4, 2), np.float32))
    assert repr(eager.RotaryEmbedding(table)) == "RotaryEmbedding(dim=8, max_sequence_length=6)"


def projections(result: Mapping[str, Array], *, stacked: bool) -> dict[str, Array]:
    """PyTorch's stacked projections by our names."""
    last = {f"o_proj.{kind}": result[f"out_proj.{kind}"] for kind in ("weight", "bias")}
    if stacked:
        return {f"qkv_proj.{kind}": result[f"in_proj_{kind}"] for kind in ("weight", "bias")} | last
    parts = {kind: np.split(result[f"in_proj_{kind}"], 3) for kind in ("weight", "bias")}
    apart = {
        f"{name}_proj.{part}": parts[part][index]
        for index, name in enumerate("qkv")
        for part in parts
    }
    return apart | last


@STYLES
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("causal", thinned([False, True], True))
def test_attention(style: Any, stacked: bool, causal: bool) -> None:
    actual = recorded("attention")
    options = {"qkv_has_bias": True, "o_proj_has_bias": True, "stacked_qkv": stacked}
    layer = style.MultiheadAttention(3, 12, causal=causal, **options)
    expected = actual["causal" if causal else "y"]
    state = projections(actual, stacked=stacked)
    check(layer, state, actual["x"], expected, ["batch", "seq", 12])


@STYLES
def test_attention_with_a_mask(style: Any) -> None:
    result = recorded("attention")
    layer = style.MultiheadAttention(3, 12, qkv_has_bias=True, o_proj_has_bias=True)
    seen = np.tri(5, dtype=np.bool_)
    layer.load_state_dict(projections(result, stacked=False))
    run = layer.compile(TensorType(F32, ["b", "n", 12]), TensorType(DType.bool, ["n", "n"]))
    for built in (layer(Tensor(result["x"]), Tensor(seen)), run(result["x"], seen)):
        np.testing.assert_allclose(built.to_numpy(), result["causal"], rtol=2e-5, atol=2e-5)
    added = Tensor(np.where(seen, 0, -np.inf).astype(np.float32))
    built = layer(Tensor(result["x"]), added)
    np.testing.assert_allclose(built.to_numpy(), result["causal"], rtol=2e-5, atol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("dtype", thinned([F32, F16, BF16], BF16))
def test_grouped_queries_are_repeated_heads_of_keys(dtype: DType) -> None:
    """Agree with PyTorch with each head of keys and values written twice."""
    rng = np.random.default_rng(0)
    layer = eager.MultiheadAttention(4, 12, num_key_value_heads=2, dtype=dtype)
    full = eager.MultiheadAttention(4, 12, dtype=F32)
    numbers = dtype.to_numpy()
    state = {
        name: rng.normal(size=tensor.shape.static()).astype(numbers)
        for name, tensor in layer.parameters
    }
    assert state["k_proj.weight"].shape == (6, 12)
    wide = {name: value.astype(np.float32) for name, value in state.items()}
    for name in ("k_proj.weight", "v_proj.weight"):
        wide[name] = wide[name].reshape(2, 3, 12).repeat(2, axis=0).reshape(12, 12)
    full.load_state_dict(wide)
    x = (rng.normal(size=(2, 5, 12)) / 8).astype(numbers)
    expected = full(Tensor(x.astype(np.float32))).to_numpy()
    check(layer, state, x, expected, ["batch", "seq", 12])
    assert layer.input_types()[0].dtype is dtype


@STYLES
def test_what_does_not_fit_attention(style: Any) -> None:
    layer = style.MultiheadAttention(3, 12)
    with pytest.raises(ValueError, match=r"MultiheadAttention takes \[batch, seq, 12\], not"):
        layer.compile(TensorType(F32, ["batch", "seq", 13]))
    with pytest.raises(ValueError, match="3 heads do not share 2"):
        style.MultiheadAttention(3, 12, num_key_value_heads=2)
    for heads, hidden in ((0, 12), (3, 2)):
        with pytest.raises(ValueError, match="above 0"):
            style.MultiheadAttention(heads, hidden)


def table(positions: int, pairs: int, base: float) -> Array:
    angles = np.outer(np.arange(positions), base ** -(np.arange(pairs) / pairs))
    return np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32)


class Shifted(eager.Module[[Tensor], Tensor]):
    """Rotary embedding from position 3 on."""

    def __init__(self, rope: Any) -> None:
        self.rope = rope

    def forward(self, x: Tensor) -> Tensor:
        turned: Tensor = self.rope(x, 3)
        return turned


@pytest.mark.parametrize(
    ("name", "layer"),
    [("interleaved", eager.RotaryEmbedding), ("halves", eager.TransposedRotaryEmbedding)],
)
@pytest.mark.parametrize("dtype", thinned([F32, F16, BF16], F32, BF16))
def test_rotary_embedding(name: str, layer: type[eager.RotaryEmbedding], dtype: DType) -> None:
    result = recorded("rotary")
    rope = layer(Tensor(table(9, 4, 100.0)))
    graph = nn.RotaryEmbedding(24, 3, 100.0, 9, interleaved=name == "interleaved")
    assert not graph.state_dict()
    x, bound = result["x"].astype(dtype.to_numpy()), TOLERANCE[dtype]
    for one in (rope, graph):
        run = Shifted(one).compile(TensorType(dtype, ["batch", "seq", 3, 8]))
        for built in (one(Tensor(x), 3), run(x)):
            assert built.dtype is dtype
            got = built.to_numpy().astype(np.float32)
            np.testing.assert_allclose(got, result[name], rtol=bound, atol=bound)


def test_positions_beyond_the_table_are_refused() -> None:
    rope = eager.RotaryEmbedding(Tensor(table(6, 4, 100.0)))
    x = Tensor(np.ones((1, 5, 2, 8), np.float32))
    assert rope(x, 1).shape == [1, 5, 2, 8]
    with pytest.raises(ValueError, match="5 tokens from position 2 on: there are 6 positions"):
        rope(x, 2)
    with pytest.raises(ValueError, match="counted from 0"):
        rope(x, -1)
    with pytest.raises(ValueError, match=r"\[batch, seq, heads, 8\], not float32\[1, 5, 2, 6\]"):
        rope(Tensor(np.ones((1, 5, 2, 6), np.float32)))
    with pytest.raises(ValueError, match="the table is"):
        eager.RotaryEmbedding(Tensor(np.zeros((4, 8))))
    with pytest.raises(ValueError, match="a head is even"):
        nn.RotaryEmbedding(15, 3, 1e4, 8)


def test_longer_sequences_than_the_table_are_refused_by_what_was_compiled() -> None:
    for rope in (
        eager.RotaryEmbedding(Tensor(table(6, 4, 9.0))),
        nn.RotaryEmbedding(24, 3, 9.0, 3),
    ):
        run = Shifted(rope).compile(TensorType(F32, ["batch", "seq", 3, 8]))
        assert run(np.ones((1, 3, 3, 8), np.float32)).shape == [1, 3, 3, 8]
        with pytest.raises(ValueError, match="seq"):
            run(np.ones((1, 4, 3, 8), np.float32))


@STYLES
def test_attention_with_rotary_embedding(style: Any) -> None:
    """Scores depend on distances: a sequence moved by some positions gives the same."""
    rope = (
        nn.RotaryEmbedding(16, 2, 50.0, 16)
        if style is nn
        else eager.RotaryEmbedding(Tensor(table(32, 4, 50.0)))
    )
    layer = style.MultiheadAttention(2, 16, causal=True, rope=rope)
    plain = style.MultiheadAttention(2, 16, causal=True)
    rng = np.random.default_rng(1)
    parameters = plain.raw_state_dict() if style is nn else dict(plain.parameters)
    state = {
        name: rng.normal(size=tuple(map(int, tensor.shape))).astype(np.float32) / 4
        for name, tensor in parameters.items()
    }
    plain.load_state_dict(state)
    layer.load_state_dict(state if style is nn else {**state, "rope.weight": table(32, 4, 50.0)})
    x = Tensor(rng.normal(size=(1, 6, 16)).astype(np.float32))
    first, moved = (layer(x, None, start).to_numpy() for start in (0, 9))
    np.testing.assert_allclose(first, moved, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(first[:, 0], plain(x).to_numpy()[:, 0], rtol=1e-4, atol=1e-5)
    assert np.abs(first - plain(x).to_numpy()).max() > 1e-2


@STYLES
def test_activations(style: Any) -> None:
    x = np.linspace(-4, 4, 33, dtype=np.float32).reshape(3, 11)
    wide = x.astype(np.float64)
    sigmoid = 1 / (1 + np.exp(-wide))
    expected = {
        "Identity": wide,
        "ReLU": np.maximum(wide, 0),
        "SiLU": wide * sigmoid,
        "Sigmoid": sigmoid,
        "Tanh": np.tanh(wide),
    }
    for name, exact in expected.items():
        layer = style.Sequential(getattr(style, name)())
        for result in (layer(Tensor(x)), layer.compile(TensorType(F32, ["n", 11]))(x)):
            np.testing.assert_allclose(result.to_numpy(), exact, rtol=2e-6, atol=2e-6)
    cube = wide + 0.044715 * wide**3
    approximate = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * cube))
    result = style.GELU("tanh")(Tensor(x)).to_numpy()
    np.testing.assert_allclose(result, approximate, rtol=1e-5, atol=2e-6)
    with pytest.raises(ValueError, match="approximate is one of"):
        style.GELU("cosine")


def test_norms_of_the_graph_style_are_those_of_the_eager_style() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(2, 3, (3, 6, 4)).astype(np.float32)
    pairs = [
        (nn.LayerNorm(4, eps=1e-3), eager.LayerNorm(4, eps=1e-3)),
        (nn.GroupNorm(2, 6, eps=1e-3), eager.GroupNorm(2, 6, eps=1e-3)),
        (nn.GroupNorm(3, 6, affine=False), eager.GroupNorm(3, 6, affine=False)),
    ]
    for graph, plain in pairs:
        state = {
            name: rng.normal(size=tensor.shape.static()).astype(np.float32)
            for name, tensor in plain.parameters
        }
        graph.load_state_dict(state)
        plain.load_state_dict(state)
        run = graph.compile(TensorType(F32, ["n", 6, 4]))
        np.testing.assert_allclose(run(x).to_numpy(), plain(Tensor(x)).to_numpy(), atol=1e-6)
    assert nn.LayerNorm(4, use_bias=False).bias is None
    with pytest.raises(ValueError, match="4 channels do not make 3 groups"):
        nn.GroupNorm(3, 4)


@pytest.mark.parametrize("dtype", thinned([F16, BF16], BF16))
def test_short_embeddings_and_linears_keep_their_type(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    numbers = dtype.to_numpy()
    model = eager.Sequential(eager.Embedding(7, dim=6), eager.Linear(6, 5))
    state = {
        name: rng.normal(size=tensor.shape.static()).astype(numbers)
        for name, tensor in model.parameters
    }
    model.apply_to_parameters(lambda name, _: Tensor(state[name]))
    ids = np.array([[0, 6, 3]])
    table_, weight, bias = (state[name].astype(np.float64) for name in state)
    expected = table_[ids] @ weight.T + bias
    bound = TOLERANCE[dtype]
    for result in (model(Tensor(ids)), model.compile(TensorType(DType.int64, ["b", "n"]))(ids)):
        assert result.dtype is dtype
        np.testing.assert_allclose(result.to_numpy().astype("f8"), expected, rtol=bound, atol=bound)
