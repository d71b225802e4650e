"""``save`` of compiled modules and graphs: the folder that ``maxtool compile`` writes, and runs."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.errors import ModelMismatch, OutputExists, UsageError
from maxtool.graph import BufferType, Dim, Graph, Tensor, TensorType, ops
from maxtool.nn import Linear, Module
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.runtime import loader
from maxtool.runtime.loader.archive import read_arrays

RANDOM = np.random.default_rng(11)
WEIGHT = RANDOM.normal(size=(6, 4)).astype(np.float32)
ROWS = TensorType(DType.float32, ["n", 4])


class Pair(NamedTuple):
    """Results with names."""

    sum: Tensor
    product: Tensor


class Net(Module):
    """Nested arguments and results."""

    def __init__(self) -> None:
        self.inner = Linear(4, 6)

    def forward(self, x: Tensor, others: Any) -> Any:
        """Map a tensor and a dict with a list."""
        first, second = others["list"]
        return {"inner": self.inner(x), "pair": Pair(first + second, first * second)}


def compiled_net() -> Any:
    net = Net()
    net.load_state_dict({"inner.weight": WEIGHT.copy()})
    scalar = TensorType(DType.int32, [])
    return net.compile(ROWS, {"list": [scalar, scalar]})


def test_a_compiled_module_is_kept(tmp_path: Path) -> None:
    compiled = compiled_net()
    compiled.save(tmp_path / "net", check=True)
    model = loader.load(tmp_path / "net")
    x = RANDOM.normal(size=(3, 4)).astype(np.float32)
    results = model(x=x, others_list_0=3, others_list_1=5)
    assert list(results) == ["inner", "pair_sum", "pair_product"]
    np.testing.assert_allclose(results["inner"], x @ WEIGHT.T, rtol=1e-5, atol=1e-5)
    assert [int(results[name]) for name in ("pair_sum", "pair_product")] == [8, 15]
    manifest = json.loads((tmp_path / "net" / "manifest.json").read_text())
    assert (manifest["name"], manifest["check"]["status"]) == ("Net", "passed")


def test_the_values_are_those_that_were_compiled(tmp_path: Path) -> None:
    net, values = Net(), WEIGHT.copy()
    net.load_state_dict({"inner.weight": values})
    scalar = TensorType(DType.int32, [])
    compiled = net.compile(ROWS, {"list": [scalar, scalar]})
    values[:] = 0
    compiled.save(tmp_path / "net")
    x = np.eye(4, dtype=np.float32)
    results = loader.load(tmp_path / "net")(x=x, others_list_0=0, others_list_1=0)
    np.testing.assert_array_equal(results["inner"], WEIGHT.T)


@pytest.mark.long
def test_an_existing_folder_is_not_replaced(tmp_path: Path) -> None:
    compiled = compiled_net()
    compiled.save(tmp_path / "net")
    with pytest.raises(OutputExists):
        compiled.save(tmp_path / "net")
    compiled.save(tmp_path / "net", force=True)


def doubling(*types: TensorType) -> Graph:
    with Graph("double it", input_types=types) as graph:
        graph.output(*(value + value for value in graph.inputs))
    return graph


@pytest.mark.parametrize("dtype", DType)
def test_every_element_type(tmp_path: Path, dtype: DType) -> None:
    """Double the values that have arithmetic; return the rest unchanged."""
    kind = TensorType(dtype, ["n", 2])
    with Graph("each", input_types=[kind]) as graph:
        graph.output(ops.concat([graph.inputs[0], graph.inputs[0]], axis=0))
    InferenceSession().load(graph).save(tmp_path / "each", inputs=["x"], outputs=["y"], check=True)
    values = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype.to_numpy())
    if dtype is DType.float8_e8m0fnu:
        values = np.array([[2, 1], [1, 4], [1, 0.5]]).astype(dtype.to_numpy())
    model = loader.load(tmp_path / "each")
    wide = np.concatenate([values, values]).astype(np.float64)
    np.testing.assert_array_equal(model(x=values)["y"].astype(np.float64), wide)
    if dtype is not DType.float8_e5m2:  # NumPy cannot read what it writes of it
        np.savez(tmp_path / "x.npz", x=values)
        with np.load(tmp_path / "x.npz") as arrays:  # where types of ml_dtypes are raw bytes
            np.testing.assert_array_equal(model(x=arrays["x"])["y"].astype(np.float64), wide)


def test_bits_are_not_numbers(tmp_path: Path) -> None:
    model = InferenceSession().load(doubling(TensorType(DType.bfloat16, ["n"])))
    model.save(tmp_path / "double")
    kept = loader.load(tmp_path / "double")
    bits = np.array([1.5, 2], ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(kept(input=bits)["output"], [3, 4])
    for wrong in (np.ones(2, np.float32), np.ones(2, np.uint8), np.ones(2, np.float16)):
        with pytest.raises(loader.BadInput, match=r"the model takes input bfloat16\[n\]"):
            kept(input=wrong)


def test_names_of_graphs(tmp_path: Path) -> None:
    model = InferenceSession().load(doubling(ROWS, TensorType(DType.int8, [2])))
    model.save(tmp_path / "plain")
    entry = loader.load(tmp_path / "plain").entry("forward")
    assert [spec.name for spec in entry.inputs] == ["input_0", "input_1"]
    assert [spec.name for spec in entry.outputs] == ["output_0", "output_1"]
    with pytest.raises(ValueError, match="2 inputs need as many names"):
        model.save(tmp_path / "other", inputs=["x"])
    with pytest.raises(ModelMismatch, match="two of its inputs are named 'x'"):
        model.save(tmp_path / "other", inputs=["x", "x"])


def test_quantized_weights_are_stored_as_they_compute(tmp_path: Path) -> None:
    layer = Linear(64, 5, quantization_encoding=QuantizationEncoding.Q4_0)
    values = RANDOM.normal(size=(5, 64)).astype(np.float32)
    packed = quantize(values, QuantizationEncoding.Q4_0, tensor="w")
    layer.load_state_dict({"weight": packed_data(packed)})
    compiled = layer.compile(TensorType(DType.float32, ["n", 64]))
    compiled.save(tmp_path / "layer", check=True)
    x = RANDOM.normal(size=(2, 64)).astype(np.float32)
    output = loader.load(tmp_path / "layer")(x=x)["output"]
    np.testing.assert_array_equal(output, compiled(x).to_numpy())


def packed_data(packed: np.ndarray[Any, Any]) -> Any:
    from maxtool.weights.weight_data import WeightData

    return WeightData(packed, "weight", DType.float32, (5, 64), QuantizationEncoding.Q4_0)


def buffered() -> Graph:
    kind = TensorType(DType.float32, [2, 1, 4, 8])
    with Graph("cache", input_types=[BufferType(kind.dtype, kind.shape), ROWS]) as graph:
        graph.output(graph.inputs[1])
    return graph


def of_two_sizes() -> Graph:
    """A piece whose size may be negative."""
    kinds = [TensorType(DType.float32, [name]) for name in ("n", "m")]
    with Graph("pieces", input_types=kinds) as graph:
        length = Dim("n") - Dim("m")
        graph.output(ops.broadcast_to(ops.constant(1.0, DType.float32), [length]))
    return graph


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (buffered, "'input_0' is written in place"),
        (of_two_sizes, "it needs .* to be at least 1, which nothing checks"),
        (lambda: doubling(TensorType(DType.float32, [0, 2])), "which has no elements"),
    ],
)
def test_graphs_that_are_not_functions_of_arrays(tmp_path: Path, graph: Any, says: str) -> None:
    model = InferenceSession().load(graph())
    with pytest.raises(ModelMismatch, match=says):
        model.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Keyed(Module):
    """Results under keys of all sorts."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Give ``x`` under each key, with another number added."""
        return {key: x + i for i, key in enumerate(self.keys)}


def test_outputs_named_as_parameters_of_numpy(tmp_path: Path) -> None:
    names = ("file", "args", "allow_pickle", "a b", "x.npy", "größe")
    Keyed(*names).compile(TensorType(DType.float32, ["n"])).save(tmp_path / "net")
    np.savez(tmp_path / "x.npz", x=np.zeros(2, np.float32))
    command = [sys.executable, str(tmp_path / "net" / "run.py"), "--inputs"]
    command += [str(tmp_path / "x.npz"), "--output", str(tmp_path / "y.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "y.npz") as archive:
        assert archive.namelist() == [f"{name}.npy" for name in names]
    arrays, _ = read_arrays(tmp_path / "y.npz")
    assert {name: arrays[name].tolist() for name in names} == {
        name: [i, i] for i, name in enumerate(names)
    }


def test_outputs_without_a_usable_name(tmp_path: Path) -> None:
    names = ("", "y/../z", "a\\b", "\x1b[31mred", "a\0b", "\ud800")
    compiled = Keyed("good", *names).compile(TensorType(DType.float32, ["n"]))
    with pytest.raises(ModelMismatch) as caught:
        compiled.save(tmp_path / "net")
    assert len(caught.value.problems) == len(names)
    assert "its output 'y/../z' needs another name" in "\n".join(caught.value.problems)


def test_a_folder_that_no_system_has(tmp_path: Path) -> None:
    compiled = Keyed("good").compile(TensorType(DType.float32, ["n"]))
    with pytest.raises(UsageError, match="holds a null character"):
        compiled.save(f"{tmp_path}/a\0b")
