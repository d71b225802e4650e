"""The examples of the document on weights, each with the results it states."""

# The code is kept as the document prints it, so that the two can be compared.
# ruff: noqa: B007, F841, I001, PERF102, T201
# fmt: off

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.dtype import DType
from maxtool.graph import DeviceRef, Graph
from maxtool.graph.weights import load_weights
from tests.api.examples import example

SHAPES = {
    "transformer.layers.0.attention.weight": (768, 768),
    "transformer.layers.0.mlp.weight": (768, 3072),
    "transformer.layers.1.mlp.weight": (2, 2),
    "transformer.layers.10.mlp.weight": (2, 2),
    "model.layers.0.weight": (768, 768),
    "model.embeddings.weight": (4, 8),
    "model.classifier.weight": (3, 8),
}


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray[Any, Any]]:
    rows = np.random.default_rng(0)
    return {name: rows.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.fixture
def weights(tmp_path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    save_file(arrays, tmp_path / "model.safetensors")
    return load_weights([tmp_path / "model.safetensors"])


@example("weights", 9, 24)
def test_weights() -> None:
    from maxtool.graph import Graph
    from maxtool.dtype import DType
    graph = Graph("my_model")
    weights = graph.weights()
    # Allocate weights with hierarchical naming
    attn_weight = weights.transformer.layers[0].attention.weight.allocate(
        dtype=DType.float32,
        shape=(768, 768)
    )
    # Creates weight named "transformer.layers.0.attention.weight"
    # Check if a weight exists before allocating
    if weights.transformer.layers[0].mlp.weight.exists():
        mlp_weight = weights.transformer.layers[0].mlp.weight.allocate(
            dtype=DType.float16,
            shape=(768, 3072)
        )

    assert attn_weight.name == "transformer.layers.0.attention.weight"
    assert attn_weight.dtype == DType.float32
    assert attn_weight.shape == [768, 768]
    # Nothing has been loaded, so there is no other weight.
    assert not weights.transformer.layers[0].mlp.weight.exists()
    assert weights.transformer.layers[0].attention.weight.exists()


@example("weights", 20, 24)
def test_exists_before_allocating(weights: Any) -> None:
    if weights.transformer.layers[0].mlp.weight.exists():
        mlp_weight = weights.transformer.layers[0].mlp.weight.allocate(
            dtype=DType.float16,
            shape=(768, 3072)
        )

    assert mlp_weight.dtype == DType.float16
    assert mlp_weight.shape == [768, 3072]


@example("weights", 27, 35)
def test_allocate(weights: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    graph = Graph("my_model")

    # Allocate a weight with specific configuration
    weight = weights.model.layers[0].weight.allocate(
        dtype=DType.float16, # Convert to half precision
        shape=(768, 768),
        device=DeviceRef.GPU(0) # Place on first GPU
    )
    # Add to graph
    with graph:
        weight_tensor = graph.add_weight(weight)

    assert weight.name == "model.layers.0.weight"
    assert weight.device == DeviceRef.GPU(0)
    assert weight_tensor.dtype == DType.float16
    assert weight_tensor.shape == [768, 768]
    assert list(weights.allocated_weights) == ["model.layers.0.weight"]
    half = np.asarray(weights.allocated_weights["model.layers.0.weight"])
    np.testing.assert_array_equal(half, arrays["model.layers.0.weight"].astype(np.float16))


@example("weights", 61, 65)
def test_data(weights: Any, arrays: dict[str, np.ndarray[Any, Any]],
              capsys: pytest.CaptureFixture[str]) -> None:
    weight_data = weights.model.embeddings.weight.data()
    print(f"Shape: {weight_data.shape}")
    print(f"Dtype: {weight_data.dtype}")
    # Convert to different dtype
    fp16_data = weight_data.astype(DType.float16)

    shape, dtype = capsys.readouterr().out.splitlines()
    assert "4, 8" in shape
    assert "float32" in dtype
    assert weight_data.name == "model.embeddings.weight"
    assert weight_data.quantization_encoding is None
    assert fp16_data.dtype == DType.float16
    expected = arrays["model.embeddings.weight"].astype(np.float16)
    np.testing.assert_array_equal(np.asarray(fp16_data.data), expected)
    # "KeyError - If no weight exists at the current hierarchical name."
    with pytest.raises(KeyError):
        weights.model.embeddings.data()


@example("weights", 78, 81)
def test_exists(weights: Any, capsys: pytest.CaptureFixture[str]) -> None:
    if weights.model.classifier.weight.exists():
        classifier = weights.model.classifier.weight.allocate()
    else:
        print("Classifier weight not found")

    assert classifier.shape == [3, 8]
    assert not capsys.readouterr().out
    assert not weights.model.classifier.exists()  # "with this exact name"


@example("weights", 89, 91)
def test_items(weights: Any, capsys: pytest.CaptureFixture[str]) -> None:
    # Iterate through all weights in a specific layer
    for name, weight in weights.transformer.layers[0].items():
        print(f"Found weight: {name}")

    assert capsys.readouterr().out.splitlines() == [
        "Found weight: transformer.layers.0.attention.weight",
        "Found weight: transformer.layers.0.mlp.weight",
    ]
    # layers.1 is not the beginning of layers.10
    names = [name for name, _ in weights.transformer.layers[1].items()]
    assert names == ["transformer.layers.1.mlp.weight"]


def test_name(weights: Any) -> None:
    # "if accessed as weights.model.layers[0], returns model.layers.0"
    assert weights.model.layers[0].name == "model.layers.0"
