"""Weights of a checkpoint and of a graph alone, allocated for graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from maxtool.driver import CPU
from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.errors import MalformedFile, MisshapenWeight, MissingFile, MissingWeight
from maxtool.graph import DeviceRef, Dim, Graph, Tensor, TensorType, Weight, executor, ops
from maxtool.graph.weights import (
    GGUFWeights,
    SafetensorWeights,
    WeightData,
    Weights,
    load_weights,
)
from maxtool.quantization import QuantizationEncoding, dequantize
from maxtool.weights import open_checkpoint

F32, Q8_0 = DType.float32, QuantizationEncoding.Q8_0
UP = np.arange(64, dtype=np.float32).reshape(2, 32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    arrays = {"layers.0.up.weight": UP, "layers.1.up.weight": UP + 1}
    safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors")
    return tmp_path / "a.safetensors"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    safetensors.numpy.save_file({"norm.weight": np.ones(3, np.float16)}, tmp_path / "b.safetensors")
    return tmp_path / "b.safetensors"


# Of a checkpoint


def test_an_allocated_weight_is_a_weight_with_data(file: Path) -> None:
    view = load_weights([file]).layers[1].up.weight
    weight = view.allocate()
    assert isinstance(view, Weights)
    assert isinstance(weight, Weight)
    assert (weight.name, weight.type) == ("layers.1.up.weight", TensorType(F32, (2, 32)))
    np.testing.assert_array_equal(weight.to_numpy(), UP + 1)


def test_it_is_converted_checked_and_placed(file: Path) -> None:
    view = load_weights([file]).layers[0].up.weight
    weight = view.allocate(DType.bfloat16, [Dim(2), 32], device=DeviceRef.GPU(0))
    assert (weight.dtype, weight.device) == (DType.bfloat16, DeviceRef.GPU(0))
    np.testing.assert_array_equal(weight.to_numpy(), UP.astype(ml_dtypes.bfloat16))
    assert view.allocate().device == CPU()
    packed = view.allocate(quantization_encoding=Q8_0)
    assert packed.quantization_encoding is Q8_0
    np.testing.assert_allclose(dequantize(packed.to_numpy(), Q8_0), UP, atol=0.26)


@pytest.mark.parametrize("encoding", [None, Q8_0])
def test_a_graph_takes_what_a_checkpoint_allocated(
    file: Path, encoding: QuantizationEncoding | None
) -> None:
    view = open_checkpoint(file).weights.layers[1].up.weight
    allocated = view.allocate(quantization_encoding=encoding, device="cpu:1")
    with Graph("g", input_types=[TensorType(F32, ["n", 32], CPU(1))]) as graph:
        weight = graph.add_weight(allocated)
        assert weight is graph.add_weight(allocated)
        graph.output(ops.linear(graph.inputs[0], weight))
    assert weight.type == TensorType(F32, (2, 32), CPU(1))
    model = InferenceSession(devices=[CPU(1)]).load(graph)
    x = np.ones((3, 32), np.float32)
    (result,) = model(Tensor(x, device=CPU(1)))
    np.testing.assert_allclose(result.to_numpy(), x @ (UP + 1).T, rtol=1e-2)


def test_devices_have_names() -> None:
    names = {"cpu": CPU(), "cpu:1": CPU(1), "gpu:2": DeviceRef.GPU(2), CPU(1): CPU(1)}
    assert {name: DeviceRef.named(name) for name in names} == names
    for wrong in ("tpu", "cpu:", "cpu:one", ""):
        with pytest.raises(ValueError, match="device is"):
            DeviceRef.named(wrong)


def test_views_share_what_was_allocated(file: Path) -> None:
    weights = load_weights([file])
    weights.layers[0].up.weight.allocate(DType.float16)
    assert list(weights.allocated_weights) == ["layers.0.up.weight"]
    assert weights.layers.allocated_weights["layers.0.up.weight"].dtype == np.float16


@pytest.mark.parametrize("shape", [(32, 2), (2, "n"), (2,)])
def test_another_shape_is_refused(file: Path, shape: Any) -> None:
    weights = load_weights([file])
    with pytest.raises(MisshapenWeight, match=r"\[2, 32\]"):
        weights.layers[0].up.weight.allocate(shape=shape)
    assert not weights.allocated_weights


def test_a_name_that_is_not_there(file: Path) -> None:
    for view in (load_weights([file]), load_weights(file).layers):
        with pytest.raises(KeyError):
            view.allocate()
        with pytest.raises(MissingWeight):
            view.layers[0].upp.weight.data()


def test_a_weight_of_a_checkpoint_in_a_graph(file: Path) -> None:
    weights = load_weights([file])
    with Graph("g", input_types=[TensorType(F32, ["n", 32])]) as graph:
        up = graph.add_weight(weights.layers[0].up.weight.allocate())
        graph.output(graph.inputs[0] @ up.T)
    run = executor.find_executor().compile(graph, weights.allocated_weights)
    x = np.ones((3, 32), np.float32)
    np.testing.assert_allclose(run(Tensor(x))[0].to_numpy(), x @ UP.T)


# Files


def test_several_files_are_one(file: Path, other: Path) -> None:
    for weights in (load_weights([file, other]), SafetensorWeights([str(file), other])):
        names = [name for name, _ in weights.items()]
        assert names == ["layers.0.up.weight", "layers.1.up.weight", "norm.weight"]
        assert weights.norm.weight.data().dtype is DType.float16
        assert weights.layers[1].up.weight.data().data[0, 0] == 1
        with pytest.raises(MissingWeight, match=r"did you mean 'norm\.weight'"):
            weights.norm.weigth.data()


def test_a_gguf_file(tmp_path: Path) -> None:
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("blk.0.plain.weight", UP)
    writer.add_tensor("blk.0.packed.weight", gguf.quants.quantize(UP, q8_0), raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for weights in (GGUFWeights(tmp_path / "a.gguf"), load_weights([tmp_path / "a.gguf"])):
        np.testing.assert_array_equal(weights.blk[0].plain.weight.allocate().to_numpy(), UP)
        packed = weights.blk[0].packed.weight.allocate()
        assert (packed.shape, packed.quantization_encoding) == ((2, 32), Q8_0)
        assert packed.to_numpy().shape == (2, 34)
        decoded = weights.blk[0].packed.weight.allocate(F32)
        expected = gguf.quants.dequantize(gguf.quants.quantize(UP, q8_0), q8_0)
        np.testing.assert_array_equal(decoded.to_numpy(), expected)
    with pytest.raises(ValueError, match="is gguf, not safetensors"):
        SafetensorWeights(tmp_path / "a.gguf")


def test_a_file_alone(file: Path) -> None:
    for inputs in (file, str(file)):
        assert SafetensorWeights(inputs).layers[0].up.weight.exists()
        assert load_weights(inputs).layers[0].up.weight.exists()


def test_files_that_share_a_name(file: Path, tmp_path: Path) -> None:
    again = tmp_path / "c.safetensors"
    safetensors.numpy.save_file({"layers.0.up.weight": UP}, again)
    with pytest.raises(MalformedFile, match=r"'layers\.0\.up\.weight', again in .*c\.safetensors"):
        load_weights([file, again])


def test_what_is_no_checkpoint(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no file"):
        load_weights([])
    with pytest.raises(MissingFile):
        load_weights([tmp_path / "none.safetensors"])
    with pytest.raises(ValueError, match="is safetensors, not gguf"):
        GGUFWeights(file)
    np.save(tmp_path / "d.npy", UP)
    with pytest.raises(ValueError, match="several formats"):
        load_weights([file, tmp_path / "d.npy"])


# Of a graph alone


def test_the_example_of_the_document() -> None:
    graph = Graph("my_model")
    weights = graph.weights()
    layer = weights.transformer.layers[0]
    weight = layer.attention.weight.allocate(dtype=F32, shape=(768, 768))
    assert weight.name == "transformer.layers.0.attention.weight"
    assert not layer.mlp.weight.exists()
    with graph:
        assert graph.add_weight(weight).shape == [768, 768]
    assert list(graph.weight_values) == [weight.name]


def test_a_weight_exists_once_it_is_allocated() -> None:
    graph = Graph("g")
    weight = graph.weights().a.b.allocate(F32, [2, "n"], device=CPU(1))
    assert weight.device == CPU(1)
    assert graph.weights().a.b.exists()
    assert not graph.weights().a.exists()
    assert [name for name, _ in graph.weights().items()] == ["a.b"]
    assert graph.weights().a.b.allocate(F32, [2, "n"], device=DeviceRef.CPU(1)) is weight


def test_its_data_comes_later() -> None:
    weights = Graph("g").weights()
    weight = weights.w.allocate(F32, [2])
    assert weights.allocated_weights == {}
    with pytest.raises(MissingWeight, match="'w' has no data yet"):
        weights.w.data()
    with pytest.raises(MissingWeight, match=r"no weight 'ww' was allocated.*did you mean 'w'"):
        weights.ww.data()
    weight.bind(np.ones(2, np.float32))
    assert isinstance(weights.w.data(), WeightData)
    assert weights.x.y.allocated_weights["w"].tolist() == [1, 1]


@pytest.mark.parametrize("given", [{}, {"dtype": F32}, {"shape": (2,)}])
def test_type_and_shape_are_needed(given: dict[str, Any]) -> None:
    weights = Graph("g").weights()
    with pytest.raises(ValueError, match=r"'w'.* needs both dtype and shape"):
        weights.w.allocate(**given)
    with pytest.raises(ValueError, match="needs a name"):
        weights.allocate(F32, (2,))
    assert not weights.w.exists()


def test_two_declarations_must_agree() -> None:
    weights = Graph("g").weights()
    weights.w.allocate(F32, (2,))
    with pytest.raises(MisshapenWeight, match=r"float32\[2\], now as float32\[2\] on cpu:1"):
        weights.w.allocate(F32, (2,), device=CPU(1))
    with pytest.raises(ValueError, match=r"float16\[2\]"):
        weights.w.allocate(DType.float16, (2,))
    with pytest.raises(ValueError, match=r"now as float32\[2\], Q8_0 blocks"):
        weights.w.allocate(F32, (2,), Q8_0)
