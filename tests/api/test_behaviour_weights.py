"""The corners of weights, row by row as the reference's BEHAVIOUR.md lists them.

Where this package does something else on purpose, the test says "instead"; docs/api.md lists those.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, SupportsIndex

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.errors import MaxtoolError
from maxtool.experimental.nn import Linear as EagerLinear
from maxtool.graph import DeviceRef, Graph, Tensor, Weight
from maxtool.graph.weights import (
    GGUFWeights,
    SafetensorWeights,
    WeightData,
    Weights,
    load_weights,
)
from maxtool.quantization.encoding import QuantizationEncoding
from tests.api.graph_modules import MLP, kind, mlp, run

Array = np.ndarray[Any, Any]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    names = ("model.layers.1.w", "model.layers.10.w", "model.layers.2.w", "data.items")
    path = tmp_path / "model.safetensors"
    save_file(dict.fromkeys(names, rows), path)
    return path


@pytest.fixture
def weights(file: Path) -> Weights:
    return load_weights([file])


def test_names_grow_by_attribute_and_index(weights: Weights) -> None:
    assert weights.name == ""
    assert weights.model.layers[1].w.name == "model.layers.1.w"
    assert weights["model"]["layers"][1]["w"].name == "model.layers.1.w"
    assert weights.model.layers[1].w.exists()
    assert not weights.model.layers[1].exists()


def test_missing_names_and_prefixes_have_no_data(weights: Weights) -> None:
    for view in (weights.model.layers[1], weights.model.absent, weights):
        with pytest.raises(KeyError):
            view.data()


def test_items_go_by_whole_segments(weights: Weights) -> None:
    names = [name for name, _ in weights.model.items()]
    # instead of sorting layers.10 before layers.2
    assert names == ["model.layers.1.w", "model.layers.2.w", "model.layers.10.w"]
    # instead of layers.10 being found below layers.1
    assert [name for name, _ in weights.model.layers[1].items()] == ["model.layers.1.w"]
    assert [name for name, _ in weights.model.layers[1].w.items()] == ["model.layers.1.w"]
    assert not [*weights.absent.items()]


def test_allocated_weights_are_shared_by_views(weights: Weights) -> None:
    weight = weights.model.layers[1].w.allocate()
    again = weights.model.layers[1].w.allocate()
    assert (weight.name, weight.type) == (again.name, again.type)
    assert weight.align == 1
    assert list(weights.allocated_weights) == ["model.layers.1.w"]
    assert list(weights.model.allocated_weights) == ["model.layers.1.w"]


def test_allocate_converts_and_checks(weights: Weights) -> None:
    view = weights.model.layers[1].w
    expected = np.asarray(view.data().data)
    half = view.allocate(dtype=DType.float16)  # instead of an error: the document says it converts
    np.testing.assert_array_equal(half.to_numpy(), expected.astype(np.float16))
    with pytest.raises(ValueError, match=r"model\.layers\.1\.w"):
        view.allocate(shape=(64, 4))
    encoded = view.allocate(quantization_encoding=QuantizationEncoding.Q8_0)
    reference = quantize(expected, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(encoded.to_numpy(), reference)
    assert view.allocate(device=DeviceRef.GPU(0)).device == DeviceRef.GPU(0)


@pytest.mark.parametrize(
    ("dtype", "numpy"),
    [
        (DType.float16, np.float16),
        (DType.bfloat16, ml_dtypes.bfloat16),
        (DType.float64, np.float64),
        (DType.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
    ],
)
def test_astype(weights: Weights, dtype: DType, numpy: Any) -> None:
    data = weights.model.layers[1].w.data()
    assert data.astype(data.dtype) is data
    result = np.asarray(data.astype(dtype).data)
    np.testing.assert_array_equal(result, np.asarray(data.data).astype(numpy))


def test_astype_never_cuts_to_whole_numbers(weights: Weights) -> None:
    # instead of doing so silently
    with pytest.raises(MaxtoolError, match=r"model\.layers\.1\.w"):
        weights.model.layers[1].w.data().astype(DType.int8)


def test_two_files_with_one_name_are_an_error(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    save_file({"model.layers.1.w": np.zeros(2, np.float32)}, other)
    with pytest.raises(MaxtoolError, match=r"model\.layers\.1\.w"):  # instead of the last one
        load_weights([file, other])


def test_load_weights_takes_paths_of_any_kind(file: Path, tmp_path: Path) -> None:
    # instead of Path objects only
    for paths in (str(file), file, [str(file)], [file]):
        assert load_weights(paths).model.layers[1].w.exists()
    assert SafetensorWeights(file).model.layers[1].w.exists()
    with pytest.raises(ValueError, match="no file"):
        load_weights([])
    with pytest.raises((MaxtoolError, OSError)):
        load_weights([tmp_path / "absent.safetensors"])
    with pytest.raises(ValueError, match="safetensors"):
        GGUFWeights(file)


def rewritten(path: Path, **changes: Any) -> Path:
    """The file with other entries in its header."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header["model.layers.1.w"] |= changes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    return path


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "four bytes": lambda path: path.write_bytes(b"abcd"),
    "truncated header": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "huge header": lambda path: path.write_bytes(b"\xff" * 8 + b"{}"),
    "bad JSON": lambda path: path.write_bytes((8).to_bytes(8, "little") + b"{{{{{{{{"),
    # instead of being accepted
    "truncated data": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "trailing bytes": lambda path: path.write_bytes(path.read_bytes() + b"1234"),
    "shape and bytes differ": lambda path: rewritten(path, shape=[5, 64]),
    "negative offset": lambda path: rewritten(path, data_offsets=[-4, 1020]),
    "overlapping tensors": lambda path: rewritten(path, data_offsets=[1000, 2024]),
    "unknown dtype": lambda path: rewritten(path, dtype="C64"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_refused(file: Path, damage: str) -> None:
    DAMAGE[damage](file)
    with pytest.raises(MaxtoolError):
        load_weights([file]).model.layers[1].w.data()


TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0")


@pytest.mark.parametrize("name", TYPES)
def test_gguf_types(tmp_path: Path, name: str) -> None:
    """Support Q8_0, Q4_1 and Q5_0, where the reference raises KeyError, and BF16, not as bytes."""
    kind = gguf.GGMLQuantizationType[name]
    rows = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", quantize(rows, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    data = load_weights([tmp_path / "m.gguf"]).w.data()
    assert tuple(data.shape) == (4, 64)
    floats = np.asarray(data.astype(DType.float32).data)
    np.testing.assert_array_equal(floats, dequantize(quantize(rows, kind), kind))
    assert GGUFWeights(tmp_path / "m.gguf").w.allocate().shape == [4, 64]


# A user's own class


class Dictionary:
    """Weights of a dictionary: it has the members of the document, and derives from nothing."""

    def __init__(self, arrays: Mapping[str, Any], name: str = "") -> None:
        self.arrays, self.name = arrays, name
        self.allocated_weights: dict[str, Any] = {}

    def __getattr__(self, segment: str) -> Dictionary:
        if segment.startswith("__"):
            raise AttributeError(segment)
        return self[segment]

    def __getitem__(self, segment: str | SupportsIndex) -> Dictionary:
        below = Dictionary(self.arrays, f"{self.name}.{segment}".lstrip("."))
        below.allocated_weights = self.allocated_weights
        return below

    def exists(self) -> bool:
        return self.name in self.arrays

    def data(self) -> WeightData:
        array = self.arrays[self.name]
        return WeightData(array, self.name, DType.float32, tuple(array.shape))

    def items(self) -> Iterator[tuple[str, Dictionary]]:
        return ((name, Dictionary(self.arrays, name)) for name in self.arrays)

    def allocate(self, *_: Any, **__: Any) -> Weight:
        self.allocated_weights[self.name] = self.arrays[self.name]
        return Weight(self.name, DType.float32, self.arrays[self.name].shape)


@pytest.mark.long
@pytest.mark.parametrize("of", [np.asarray, Tensor], ids=["numpy", "tensor"])
def test_any_class_with_the_members_is_one(of: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 10)).astype(np.float32)
    arrays = {"up.weight": of(rows.T.copy()), "gate.weight": of(rows.T.copy())}
    weights: Weights = Dictionary({**arrays, "down.weight": of(rows)})  # type: ignore[assignment]
    assert isinstance(weights, Weights)
    assert not isinstance(arrays, Weights)
    x = np.ones((2, 5), np.float32)
    expected = mlp({name: np.asarray(one) for name, one in weights.arrays.items()}, x)
    for state in (
        dict(weights.items()),
        {name: weight.data() for name, weight in weights.items()},
    ):
        model = MLP()
        model.load_state_dict(state)
        np.testing.assert_allclose(run(model, x), expected, rtol=1e-4, atol=1e-5)
        assert isinstance(model.state_dict()["up.weight"], np.ndarray)
    with Graph("g", input_types=[kind("n", 5)]) as graph:
        graph.output(graph.inputs[0] @ graph.add_weight(weights.up.weight.allocate()).T)
    loaded = InferenceSession().load(graph, weights_registry=weights.allocated_weights)
    np.testing.assert_allclose(loaded(x)[0].to_numpy(), x @ rows, rtol=1e-4, atol=1e-5)


def test_a_checkpoints_weights_are_values_of_a_state(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 10)).astype(np.float32)
    save_file({"weight": rows, "bias": np.zeros(5, np.float32)}, tmp_path / "x.safetensors")
    weights = load_weights([tmp_path / "x.safetensors"])
    layer = EagerLinear(10, 5)
    layer.load_state_dict(dict(weights.items()))
    np.testing.assert_array_equal(layer.weight.to_numpy(), rows)
    with pytest.raises(ValueError, match="nothing"):
        layer.load_state_dict({**dict(weights.items()), "bias": weights.nothing})
