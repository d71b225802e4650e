"""GPTQ and AWQ against the formula in the type of their scales, from files of our own packers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from maxtool.dtype import DType
from maxtool.errors import ChangedFile, ConfigurationError, MalformedFile
from maxtool.recipe import find_recipe, plan, recognise
from maxtool.weights import Checkpoint, open_checkpoint
from maxtool.weights.summary import summarize
from tests.weights.packers import awq, gptq

DATA = Path(__file__).resolve().parents[1] / "data"
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm"}
GENERATOR = np.random.default_rng(5)

Array = NDArray[Any]
Save = Callable[..., Checkpoint]


def saved(folder: Path, layer: dict[str, Array], config: dict[str, Any]) -> Checkpoint:
    """A folder with one layer ``a``, opened."""
    save_file({f"a.{end}": array for end, array in layer.items()}, folder / "model.safetensors")
    content = {"model_type": "llama", "quantization_config": config}
    (folder / "config.json").write_text(json.dumps(content))
    return open_checkpoint(folder)


def drawn(inputs: int, outputs: int, groups: int, bits: int, dtype: Any) -> tuple[Array, ...]:
    """Numbers, zeros and scales."""
    numbers = GENERATOR.integers(0, 1 << bits, (inputs, outputs))
    zeros = GENERATOR.integers(1, 1 << bits, (groups, outputs))
    scales = GENERATOR.uniform(1e-4, 2, (groups, outputs)).astype(np.float32).astype(dtype)
    return numbers, zeros, scales


def formula(numbers: Array, zeros: Array, scales: Array, owners: Array) -> Array:
    """``scales * (numbers - zeros)``, computed in the type of the scales, outputs by inputs."""
    whole = (numbers - zeros[owners]).astype(scales.dtype)
    return np.ascontiguousarray((scales[owners] * whole).T)


def same(data: Any, expected: Array) -> None:
    assert data.dtype is DType.from_numpy(expected.dtype)
    assert data.data.tobytes() == expected.tobytes()


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
def test_gptq(tmp_path: Path, bits: int, dtype: Any, form: str) -> None:
    parts = drawn(96, 64, 6, bits, dtype)
    owners = np.arange(96) // 16
    layer = gptq(*parts, bits, owners, less=form == "gptq")
    config = GPTQ | {"bits": bits, "checkpoint_format": form}
    checkpoint = saved(tmp_path, layer, config)
    assert list(checkpoint.tensors) == ["a.weight"]
    assert checkpoint.tensors["a.weight"].type_name == f"GPTQ{bits}"
    same(checkpoint.read("a.weight"), formula(*parts, owners))


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([2, 3, 4, 8]), st.integers(1, 5), st.integers(1, 3), st.integers(1, 70),
    st.booleans(), st.randoms(),
)  # fmt: skip
def test_gptq_of_any_size_and_activation_order(
    tmp_path_factory: pytest.TempPathFactory,
    bits: int, inputs: int, outputs: int, group: int, ordered: bool, random: Any,
) -> None:  # fmt: skip
    inputs, outputs = 32 * inputs, 32 * outputs
    groups = -(-inputs // group)
    parts = drawn(inputs, outputs, groups, bits, np.float16)
    owners = (np.arange(inputs) // group).tolist()
    if ordered:
        random.shuffle(owners)
    stated = np.array(owners) if ordered else None
    layer = gptq(*parts, bits, stated)
    config = GPTQ | {"bits": bits, "group_size": group, "desc_act": ordered}
    checkpoint = saved(tmp_path_factory.mktemp("gptq"), layer, config)
    same(checkpoint.read("a.weight"), formula(*parts, np.array(owners)))


@pytest.mark.parametrize("group", [-1, 32, 33, 10**30])
def test_gptq_with_one_group(tmp_path: Path, group: int) -> None:
    parts = drawn(32, 16, 1, 4, np.float16)
    checkpoint = saved(tmp_path, gptq(*parts, 4), GPTQ | {"group_size": group})
    same(checkpoint.read("a.weight"), formula(*parts, np.zeros(32, int)))


def test_many_rows_are_decoded_in_parts(tmp_path: Path) -> None:
    numbers, zeros, scales = drawn(128, 64, 4, 8, np.float16)
    rows = GENERATOR.integers(0, 128, 1 << 13)
    layer = gptq(numbers, zeros, scales, 8)
    words = layer["qweight"].view(np.uint8).reshape(32, 64, 4).transpose(0, 2, 1).reshape(128, 64)
    wide = words[rows].reshape(-1, 4, 64).transpose(0, 2, 1)
    layer["qweight"] = np.ascontiguousarray(wide).view(np.int32)[..., 0]
    layer["g_idx"] = (rows % 4).astype(np.int32)
    checkpoint = saved(tmp_path, layer, GPTQ | {"bits": 8, "group_size": 2048})
    same(checkpoint.read("a.weight"), formula(numbers[rows], zeros, scales, rows % 4))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("group", [16, 48, -1])
def test_awq(tmp_path: Path, dtype: Any, group: int) -> None:
    size = 96 if group == -1 else group
    parts = drawn(96, 40, 96 // size, 4, dtype)
    checkpoint = saved(tmp_path, awq(*parts), AWQ | {"group_size": group})
    assert [info.type_name for info in checkpoint.tensors.values()] == ["AWQ4"]
    same(checkpoint.read("a.weight"), formula(*parts, np.arange(96) // size))


def test_infinite_and_nan_scales_stay_what_they_are(tmp_path: Path) -> None:
    numbers, zeros, scales = drawn(32, 16, 2, 4, np.float16)
    scales[0, :3] = [np.inf, np.nan, 65504]
    checkpoint = saved(tmp_path, awq(numbers, zeros, scales), AWQ)
    with np.errstate(all="ignore"):
        expected = formula(numbers, zeros, scales, np.arange(32) // 16)
    np.testing.assert_array_equal(checkpoint.read("a.weight").data, expected)


class TestMalformed:
    """Files whose tensors contradict each other."""

    @pytest.fixture
    def layer(self) -> dict[str, Array]:
        return gptq(*drawn(32, 32, 2, 4, np.float16), 4, np.arange(32) // 16)

    @pytest.mark.parametrize(
        ("part", "array", "message"),
        [
            ("scales", np.ones((3, 32), np.float16), r"a\.scales has the shape \[3, 32\]"),
            ("scales", np.ones((2, 32), np.int32), r"a\.scales is I32, not bfloat16 or float16"),
            (
                "qzeros",
                np.ones((2, 3), np.int32),
                r"a\.qzeros has the shape \[2, 3\]",
            ),
            ("qweight", np.ones((4, 32, 1), np.int32), "not that of a matrix"),
            ("qweight", np.ones((0, 32), np.int32), "not that of a matrix"),
            ("qweight", np.ones((4, 32), np.int16), r"a\.qweight is I16, not int32"),
            ("g_idx", np.zeros(31, np.int32), r"a\.g_idx has the shape \[31\]"),
            ("weight", np.zeros((32, 32), np.float16), r"a\.weight: is there twice"),
            ("scales", None, r"a: lacks scales"),
        ],
    )
    def test_headers(
        self, tmp_path: Path, layer: dict[str, Array], part: str, array: Any, message: str
    ) -> None:
        layer[part] = array
        if array is None:
            del layer[part]
        with pytest.raises(MalformedFile, match=message) as caught:
            saved(tmp_path, layer, GPTQ)
        assert caught.value.file == str(tmp_path / "model.safetensors")

    def test_activation_order_that_is_not_there(
        self, tmp_path: Path, layer: dict[str, Array]
    ) -> None:
        del layer["g_idx"]
        with pytest.raises(MalformedFile, match="a: lacks g_idx"):
            saved(tmp_path, layer, GPTQ | {"desc_act": True})

    @pytest.mark.parametrize("wrong", [-1, 2, 2**31 - 1, -(2**31)])
    def test_groups_out_of_range(self, tmp_path: Path, layer: dict[str, Array], wrong: int) -> None:
        layer["g_idx"][7] = wrong
        checkpoint = saved(tmp_path, layer, GPTQ | {"desc_act": True})
        with pytest.raises(MalformedFile, match="groups outside 0 to 1") as caught:
            checkpoint.read("a.weight")
        assert caught.value.tensor == "a.weight"


class TestConfigurations:
    """Keys of quantization_config."""

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"bits": 5}, r"bits = 5 \(supported: 2, 3, 4, 8\)"),
            ({"bits": True}, r"bits = True \(supported"),
            ({"bits": None}, "bits is missing"),
            ({"group_size": 0}, r"group_size = 0 \(supported: positive numbers, -1\)"),
            ({"group_size": 1.5}, r"group_size = 1.5"),
            ({"group_size": None}, "group_size is missing"),
            ({"checkpoint_format": "marlin"}, r"checkpoint_format = 'marlin' \(supported: gptq"),
            ({"dynamic": {"-:mlp": {}}}, r"dynamic = .* \(unknown\)"),
            ({"rotation": "hadamard"}, r"rotation = .* \(unknown\)"),
            ({"new_key": 3}, r"new_key = 3 \(unknown\)"),
            ({"quant_method": "aqlm"}, "quant_method: supported are gptq, awq"),
            ({"quant_method": ["gptq"]}, "quant_method: supported are gptq, awq"),
            (AWQ | {"version": "gemv"}, r"version = 'gemv' \(supported: gemm, GEMM\)"),
            (AWQ | {"zero_point": False}, r"zero_point = False \(supported: True\)"),
            (AWQ | {"bits": 8}, r"bits = 8 \(supported: 4\)"),
        ],
    )
    def test_what_is_not_supported(
        self, tmp_path: Path, change: dict[str, Any], message: str
    ) -> None:
        base = {} if change.get("quant_method") == "awq" else GPTQ
        layer = gptq(*drawn(32, 32, 2, 4, np.float16), 4)
        checkpoint = saved(tmp_path, layer, base | change)
        assert "a.qweight" in checkpoint.tensors
        with pytest.raises(ConfigurationError, match=f"never ignored: .*{message}"):
            plan(find_recipe(checkpoint), checkpoint)

    def test_what_tools_say_of_how_they_tuned(self, tmp_path: Path) -> None:
        said = {"damp_percent": 0.1, "true_sequential": True, "iters": 200, "meta": {"mse": 0.0}}
        layer = gptq(*drawn(32, 32, 2, 4, np.float16), 4)
        assert saved(tmp_path, layer, GPTQ | said).unsupported == ""

    def test_a_configuration_without_such_tensors(self, tmp_path: Path) -> None:
        checkpoint = saved(tmp_path, {"weight": np.ones((2, 2), np.float16)}, GPTQ)
        assert "the file has no tensors of this method" in checkpoint.unsupported

    @settings(deadline=None, max_examples=60)
    @given(
        st.dictionaries(
            st.sampled_from([*GPTQ, *AWQ, "checkpoint_format", "load_in_4bit", "config_groups"]),
            st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=4)
            | st.sampled_from(["gptq", "awq", "compressed-tensors", "bitsandbytes", "mxfp4", "fp8"])
            | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
        )
    )  # fmt: skip
    def test_any_configuration_is_read_or_refused(
        self, tmp_path_factory: pytest.TempPathFactory, change: dict[str, Any]
    ) -> None:
        layer = gptq(*drawn(32, 32, 2, 4, np.float16), 4)
        folder = tmp_path_factory.mktemp("any")
        try:
            checkpoint = saved(folder, layer, GPTQ | change)
        except MalformedFile:
            return
        for name in checkpoint.tensors:
            checkpoint.read(name)


class TestModels:
    """tiny-llama with its matrices packed."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        tensors = dict(load_file(DATA / "quantized" / "ct-int8-channel" / "model.safetensors"))
        config = json.loads((DATA / "quantized" / "ct-int8-channel" / "config.json").read_text())
        for name in [name for name in tensors if name.endswith("_proj.weight")]:
            outputs, inputs = tensors.pop(name).shape
            del tensors[f"{name}_scale"]
            layer = gptq(*drawn(inputs, outputs, inputs // 16, 4, np.float16), 4)
            module = name.removesuffix("weight")
            tensors |= {f"{module}{end}": array for end, array in layer.items()}
        save_file(tensors, tmp_path / "model.safetensors")
        text = json.dumps(config | {"quantization_config": GPTQ})
        (tmp_path / "config.json").write_text(text)
        return tmp_path

    def test_recipes_recognise_it(self, folder: Path) -> None:
        checkpoint = open_checkpoint(folder)
        assert recognise(checkpoint).problems == []
        assert checkpoint.notes == ("14 GPTQ4 weights are decoded as they are read",)
        types = summarize(checkpoint).by_type
        assert types["GPTQ4"].tensors == 14
        assert types["GPTQ4"].parameters == 2 * (32 * 32 * 3 + 3 * 32 * 64)

    def test_shards_may_part_the_tensors_of_a_weight(self, folder: Path) -> None:
        whole = open_checkpoint(folder).read("model.layers.0.mlp.up_proj.weight").data.tobytes()
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        halves = {name: f"{'scales' in name}.safetensors" for name in tensors}
        for file in set(halves.values()):
            save_file({n: a for n, a in tensors.items() if halves[n] == file}, folder / file)
        index = {"metadata": {}, "weight_map": halves}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        read = open_checkpoint(folder).read("model.layers.0.mlp.up_proj.weight")
        assert read.data.tobytes() == whole

    def test_a_file_that_changes(self, folder: Path, tmp_path_factory: Any) -> None:
        copy = tmp_path_factory.mktemp("copy") / "m"
        shutil.copytree(folder, copy)
        checkpoint = open_checkpoint(copy)
        (copy / "model.safetensors").write_bytes(b"")
        with pytest.raises(ChangedFile):
            checkpoint.read("model.layers.0.mlp.up_proj.weight")
