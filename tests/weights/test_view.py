"""The hierarchical view, as the reference document describes it."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, MissingWeight, ModelMismatch
from maxtool.quantization import QuantizationEncoding, dequantize, quantize
from maxtool.weights import Weights, open_checkpoint

Q8_0 = QuantizationEncoding.Q8_0


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    arrays = {
        f"model.layers.{layer}.mlp.up.weight": np.full((2, 32), layer, np.float32)
        for layer in (0, 1, 2, 10)
    }
    arrays["model.layers.1"] = np.zeros(1, np.float32)
    arrays["model.class.4bit.data"] = np.ones(3, np.float16)
    safetensors.numpy.save_file(arrays, tmp_path / "x.safetensors")
    return open_checkpoint(tmp_path / "x.safetensors").weights


def test_names_grow_by_attribute_and_index(weights: Weights) -> None:
    assert weights.name == ""
    assert weights.model.layers[0].mlp.up.weight.name == "model.layers.0.mlp.up.weight"
    assert weights["model"]["layers"][np.int64(10)].name == "model.layers.10"
    assert weights["model.layers"][0].mlp.up.weight.exists()
    assert repr(weights.model) == "Weights('model')"


def test_keywords_digits_and_method_names_are_reachable(weights: Weights) -> None:
    assert weights.model["class"]["4bit"]["data"].data().shape == (3,)


def test_exists_is_exact(weights: Weights) -> None:
    assert weights.model.layers[0].mlp.up.weight.exists()
    assert not weights.model.layers[0].mlp.exists()
    assert not weights.model.nothing.exists()


def test_data(weights: Weights) -> None:
    data = weights.model.layers[2].mlp.up.weight.data()
    assert (data.name, data.dtype, data.shape) == (
        "model.layers.2.mlp.up.weight",
        DType.float32,
        (2, 32),
    )
    assert data.quantization_encoding is None
    assert (data.data == 2).all()


def test_a_missing_name_is_a_key_error_with_a_hint(weights: Weights) -> None:
    with pytest.raises(KeyError) as caught:
        weights.model.layers[0].mlp.upp.weight.data()
    assert isinstance(caught.value, MissingWeight)
    assert "did you mean 'model.layers.0.mlp.up.weight'" in str(caught.value)


def test_a_prefix_has_no_data(weights: Weights) -> None:
    with pytest.raises(KeyError):
        weights.model.layers[0].data()


def test_items_cover_whole_segments_in_natural_order(weights: Weights) -> None:
    names = [name for name, _ in weights.model.layers.items()]
    ups = [f"model.layers.{layer}.mlp.up.weight" for layer in (0, 1, 2, 10)]
    assert names == [ups[0], "model.layers.1", *ups[1:]]
    below = dict(weights.model.layers[1].items())
    assert list(below) == ["model.layers.1", "model.layers.1.mlp.up.weight"]
    assert below["model.layers.1"].data().shape == (1,)
    assert not list(weights.model.layers[5].items())
    assert len(list(weights.items())) == 6


def test_it_is_not_iterable_and_survives_copying(weights: Weights) -> None:
    with pytest.raises(TypeError, match="not iterable"):
        iter(weights)  # type: ignore[call-overload]
    assert copy.copy(weights.model).name == "model"


def test_allocate_as_stored(weights: Weights) -> None:
    weight = weights.model.layers[1].mlp.up.weight.allocate(shape=[2, 32])
    assert (weight.name, weight.dtype, weight.shape) == (
        "model.layers.1.mlp.up.weight",
        DType.float32,
        (2, 32),
    )
    assert list(weights.allocated_weights) == [weight.name]
    assert list(weights.model.allocated_weights) == [weight.name]
    assert (weights.allocated_weights[weight.name] == 1).all()


def test_allocate_converts(weights: Weights) -> None:
    up = weights.model.layers[1].mlp.up.weight
    assert up.allocate(DType.float16, (2, 32)).dtype is DType.float16
    assert weights.allocated_weights[up.name].dtype == np.float16
    weight = up.allocate(quantization_encoding=Q8_0, device="gpu:0")
    assert (weight.quantization_encoding, weight.device) == (Q8_0, "gpu:0")
    expected = quantize(np.ones((2, 32), np.float32), Q8_0)
    np.testing.assert_array_equal(weights.allocated_weights[up.name], expected)


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"])
def test_allocate_quantizes(tmp_path: Path, name: str) -> None:
    encoding = QuantizationEncoding[name]
    numbers = np.random.default_rng(0).standard_normal((3, 512), np.float32)
    safetensors.numpy.save_file({"weight": numbers}, tmp_path / "a.safetensors")
    weights = open_checkpoint(tmp_path / "a.safetensors").weights
    allocated = weights.weight.allocate(quantization_encoding=encoding)
    assert (allocated.quantization_encoding, allocated.shape) == (encoding, (3, 512))
    np.testing.assert_array_equal(weights.allocated_weights["weight"], quantize(numbers, encoding))


def test_allocate_refuses_rows_of_no_whole_blocks(weights: Weights) -> None:
    up = weights.model.layers[1].mlp.up.weight
    with pytest.raises(MisshapenWeight, match="Q4_K needs rows divisible by 256, not 32"):
        up.allocate(quantization_encoding=QuantizationEncoding.Q4_K)


def test_items_share_allocations(weights: Weights) -> None:
    for name, weight in weights.items():
        assert weight.allocate().name == name
    assert len(weights.allocated_weights) == 6


def test_allocate_refuses_what_does_not_fit(weights: Weights) -> None:
    up = weights.model.layers[1].mlp.up.weight
    with pytest.raises(MisshapenWeight, match=r"the shape is \[2, 32\]"):
        up.allocate(shape=(32, 2))
    with pytest.raises(ModelMismatch, match="Q8_0 blocks hold float32 elements, not float16"):
        up.allocate(DType.float16, quantization_encoding=Q8_0)
    with pytest.raises(KeyError):
        weights.model.none.allocate()
    assert not weights.allocated_weights


@pytest.mark.reference
def test_quantized_weights(reference: Path) -> None:
    weights = open_checkpoint(reference / "llama" / "llama-Q8_0.gguf").weights
    view = weights.blk[0].attn_q.weight
    stored = view.data()
    assert (stored.dtype, stored.shape) == (DType.float32, (256, 256))
    assert (stored.quantization_encoding, stored.data.shape) == (Q8_0, (256, 272))
    assert view.allocate(quantization_encoding=Q8_0).quantization_encoding is Q8_0
    assert view.allocate(DType.float32).quantization_encoding is None
    decoded = weights.allocated_weights[view.name]
    np.testing.assert_array_equal(decoded, dequantize(stored.data, Q8_0))
