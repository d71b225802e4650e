"""8-bit floats with scales, against the formula written out with NumPy and ml_dtypes."""

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
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError, MalformedFile, MissingWeight, ModelMismatch
from maxtool.quantization.scheme import Scheme
from maxtool.recipe import find_recipe, plan
from maxtool.weights import Checkpoint, open_checkpoint
from maxtool.weights.scaled_float8 import scheme
from maxtool.weights.summary import summarize

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
DATA = Path(__file__).resolve().parents[1] / "data"
DEEPSEEK = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}
STATIC = {"activation_scheme": "static", "quant_method": "fp8"}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "quantization_status": "compressed",
    "kv_cache_scheme": None,
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True},
            "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
        }
    },
}

Make = Callable[..., Checkpoint]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A Hugging Face folder with tensors and a quantization_config, opened."""

    def opened(tensors: dict[str, np.ndarray], config: dict[str, Any] | None) -> Checkpoint:
        save_file(tensors, tmp_path / "model.safetensors")
        content = {"model_type": "llama"}
        if config is not None:
            content["quantization_config"] = config
        (tmp_path / "config.json").write_text(json.dumps(content))
        return open_checkpoint(tmp_path)

    return opened


def values(*shape: int, dtype: Any = E4M3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def scales(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(1).uniform(1e-4, 3, shape).astype(np.float32).astype(dtype)


def product(weight: np.ndarray, scale: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """Element by element, as DeepSeek's weight_dequant kernel does it."""
    result = np.empty(weight.shape, np.float32)
    for row in range(weight.shape[0]):
        for column in range(weight.shape[1]):
            factor = np.float32(scale[row // block[0], column // block[1]])
            result[row, column] = np.float32(weight[row, column]) * factor
    return result


@pytest.mark.parametrize("shape", [(128, 128), (256, 384), (130, 200), (1, 300), (300, 1), (5, 7)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_blocks_of_128(make: Make, shape: tuple[int, int], dtype: Any) -> None:
    weight, scale = values(*shape), scales(*(-(-n // 128) for n in shape), dtype=dtype)
    checkpoint = make({"a.weight": weight, "a.weight_scale_inv": scale}, DEEPSEEK)
    assert list(checkpoint.tensors) == ["a.weight"]
    data = checkpoint.read("a.weight")
    assert (data.dtype, data.shape, data.quantization_encoding) == (DType.float32, shape, None)
    np.testing.assert_array_equal(data.data, product(weight, scale, (128, 128)))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.integers(1, 5))
def test_blocks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, high: int, wide: int
) -> None:
    folder = tmp_path_factory.mktemp("fp8")
    weight, scale = values(rows, columns), scales(-(-rows // high), -(-columns // wide))
    save_file({"w": weight, "w_scale_inv": scale}, folder / "model.safetensors")
    config = {"quantization_config": DEEPSEEK | {"weight_block_size": [high, wide]}}
    (folder / "config.json").write_text(json.dumps(config))
    read = open_checkpoint(folder).read("w").data
    if (rows, 1) != scale.shape != (1, columns):  # then one for each row or column is meant
        np.testing.assert_array_equal(read, product(weight, scale, (high, wide)))


@pytest.mark.parametrize("name", ["weight_scale", "weight_scale_inv"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("config", [STATIC, COMPRESSED, None], ids=["fp8", "compressed", "none"])
def test_one_scale_for_all(
    make: Make, name: str, shape: tuple[int, ...], config: dict[str, Any] | None
) -> None:
    weight, scale = values(6, 40), scales(*shape)
    given_tensors = {
        "a.weight": weight,
        f"a.{name}": scale,
        "a.input_scale": scales(1),
        "a.bias": np.zeros(6, np.float32),
    }
    checkpoint = make(given_tensors, config)
    assert sorted(checkpoint.tensors) == ["a.bias", "a.weight"]
    expected = weight.astype(np.float32) * np.float32(scale.reshape(-1)[0])
    np.testing.assert_array_equal(checkpoint.read("a.weight").data, expected)


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_a_scale_for_each_row(make: Make, shape: tuple[int, ...]) -> None:
    weight, scale = values(6, 40), scales(*shape)
    checkpoint = make({"a.weight": weight, "a.weight_scale": scale}, COMPRESSED)
    expected = weight.astype(np.float32) * scale.reshape(6, 1)
    np.testing.assert_array_equal(checkpoint.read("a.weight").data, expected)


def test_stacked_experts(make: Make) -> None:
    weight, scale = values(3, 200, 140), scales(3, 2, 2)
    checkpoint = make({"experts": weight, "experts_scale_inv": scale}, DEEPSEEK)
    expected = np.stack([product(w, s, (128, 128)) for w, s in zip(weight, scale, strict=True)])
    np.testing.assert_array_equal(checkpoint.read("experts").data, expected)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e5m2, E4M3], ids=str)
def test_every_value_of_a_type(make: Make, dtype: Any) -> None:
    weight = np.arange(256, dtype=np.uint8).view(dtype).reshape(2, 128)
    checkpoint = make({"w": weight, "w_scale": np.float32([0.3])}, STATIC)
    with np.errstate(invalid="ignore"):
        expected = weight.astype(np.float32) * np.float32(0.3)
    np.testing.assert_array_equal(checkpoint.read("w").data, expected)


def test_tensors_of_many_chunks(make: Make) -> None:
    weight, scale = values(4000, 300), scales(32, 3)
    checkpoint = make({"w": weight, "w_scale_inv": scale}, DEEPSEEK)
    wide = scale.repeat(128, axis=0)[:4000].repeat(128, axis=1)[:, :300]
    np.testing.assert_array_equal(checkpoint.read("w").data, weight.astype(np.float32) * wide)


def test_bytes_and_type_are_those_stored(make: Make) -> None:
    checkpoint = make({"w": values(128, 256), "w_scale_inv": scales(1, 2)}, DEEPSEEK)
    info = checkpoint.tensors["w"]
    assert (info.nbytes, info.type_name, info.dtype) == (128 * 256 + 8, "F8_E4M3", DType.float32)
    assert summarize(checkpoint).total.parameters == 128 * 256
    assert checkpoint.notes == (
        "1 tensors of 8-bit floats are read as float32, times their scales",
    )
    assert checkpoint.config == {"model_type": "llama"}


def test_a_missing_scale_is_said(make: Make) -> None:
    tensors = {"a.weight": values(4, 4), "b.weight": values(4, 4), "b.weight_scale": scales(1)}
    checkpoint = make(tensors, STATIC)
    assert any("a.weight lack" in note for note in checkpoint.notes)
    assert checkpoint.tensors["a.weight"].dtype is DType.float8_e4m3fn
    checkpoint.read("b.weight")
    with pytest.raises(MissingWeight, match=r"without their scale a\.weight_scale_inv") as caught:
        checkpoint.read("a.weight")
    assert caught.value.tensor == "a.weight"


def test_plain_8_bit_floats_are_numbers_where_nothing_is_declared(make: Make) -> None:
    weight = values(4, 4)
    checkpoint = make({"w": weight}, None)
    assert checkpoint.read("w").dtype is DType.float8_e4m3fn
    assert checkpoint.read("w").data.tobytes() == weight.tobytes()
    assert not checkpoint.notes


@pytest.mark.parametrize(
    ("scale", "problem"),
    [
        (np.zeros((2, 3), np.float32), r"w_scale: has the shape \[2, 3\], for \[256, 256\]"),
        (np.zeros((2, 2, 1), np.float32), "w_scale: has the shape"),
        (np.zeros((2, 2), np.int32), "w_scale: is I32"),
    ],
)
def test_scales_that_do_not_fit(make: Make, scale: np.ndarray, problem: str) -> None:
    with pytest.raises(MalformedFile, match=problem):
        make({"w": values(256, 256), "w_scale": scale}, DEEPSEEK)
    checkpoint = make({"w": values(256, 256), "w_scale": scale}, None)
    assert sorted(checkpoint.tensors) == ["w", "w_scale"]


def test_two_scales_are_refused(make: Make) -> None:
    tensors = {"w": values(4, 4), "w_scale": scales(1), "w_scale_inv": scales(1)}
    with pytest.raises(MalformedFile, match="w: has two scales"):
        make(tensors, STATIC)


OTHERS = [
    None,
    [],
    {"bits": 4},
    {"quant_method": "gptq", "bits": 4},
    {"quant_method": "awq"},
    {"quant_method": "bitsandbytes", "load_in_8bit": True},
    {"quant_method": ["fp8"]},
    DEEPSEEK | {"weight_block_size": [128]},
    DEEPSEEK | {"weight_block_size": [0, 128]},
    DEEPSEEK | {"weight_block_size": [True, 128]},
    DEEPSEEK | {"weight_block_size": "128"},
    COMPRESSED | {"format": "pack-quantized"},
    COMPRESSED | {"kv_cache_scheme": {"num_bits": 8}},
    COMPRESSED | {"sparsity_config": {"format": "sparse-24-bitmask"}},
    COMPRESSED | {"sparsity_config": ["dense"]},
    COMPRESSED | {"config_groups": {}},
    COMPRESSED | {"config_groups": []},
    COMPRESSED | {"config_groups": {"a": None}},
    COMPRESSED | {"config_groups": {"a": {"weights": {"type": "int", "num_bits": 8}}}},
]


@pytest.mark.parametrize("content", OTHERS, ids=str)
def test_other_kinds_are_left_to_be_refused(content: object) -> None:
    assert scheme(content) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DEEPSEEK | {"weight_block_size": [0, 128]}, r"\(supported: two positive numbers\)"),
        (DEEPSEEK | {"weight_block_size": 128}, r"\(supported: two positive numbers\)"),
        (DEEPSEEK | {"expert_dtype": "fp4"}, r"expert_dtype = 'fp4' \(unknown\)"),
        (COMPRESSED | {"transform_config": {"config_groups": {"u": 1}}}, "rotated at run time"),
        (COMPRESSED | {"new": 1}, r"new = 1 \(unknown\)"),
    ],
)
def test_keys_that_are_not_supported(make: Make, config: dict[str, Any], message: str) -> None:
    checkpoint = make({"a.weight": values(4, 4), "a.weight_scale": scales(4, 1)}, config)
    with pytest.raises(ConfigurationError, match=f"never ignored: .*{message}"):
        plan(find_recipe(checkpoint), checkpoint)


def test_block_structure_of_compressed_tensors() -> None:
    weights = {"type": "float", "num_bits": 8, "block_structure": [64, 32]}
    groups = {name: {"weights": weights} for name in "ab"}
    result = scheme(COMPRESSED | {"config_groups": groups})
    assert result == (64, 32)
    groups["c"] = {"weights": weights | {"block_structure": [64, 64]}}
    assert scheme(COMPRESSED | {"config_groups": groups}) is None


class TestModels:
    """tiny-llama with its matrices as 8-bit floats and scales."""

    @pytest.fixture
    def tensors(self) -> dict[str, np.ndarray]:
        tensors = dict(load_file(DATA / "tiny-llama" / "model.safetensors"))
        for name in [name for name in tensors if name.endswith("_proj.weight")]:
            weight = tensors[name].astype(np.float32)
            scale = np.float32([np.abs(weight).max() / 448])
            tensors[name] = (weight / scale).astype(E4M3)
            tensors[f"{name}_scale"] = scale
        return tensors

    @pytest.fixture
    def folder(self, tmp_path: Path, tensors: dict[str, np.ndarray]) -> Path:
        return self.save(tmp_path / "model", tensors, quantization_config=STATIC)

    @pytest.fixture
    def plain(self, tmp_path: Path, tensors: dict[str, np.ndarray]) -> Path:
        """The same model with the products as float32, multiplied here."""
        products = {
            name: array.astype(np.float32) * tensors[f"{name}_scale"]
            if f"{name}_scale" in tensors
            else array
            for name, array in tensors.items()
            if not name.endswith("_scale")
        }
        return self.save(tmp_path / "plain", products)

    def save(self, folder: Path, tensors: dict[str, np.ndarray], **config: Any) -> Path:
        shutil.copytree(DATA / "tiny-llama", folder, dirs_exist_ok=True)
        save_file(tensors, folder / "model.safetensors")
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | config))
        return folder

    @pytest.mark.parametrize(
        ("to", "quantize"),
        [("hf", None), ("gguf", None), ("gguf", Scheme.named("Q8_0"))],
    )
    def test_convert_sees_plain_floats(
        self,
        folder: Path,
        plain: Path,
        tmp_path: Path,
        to: Any,
        quantize: Scheme | None,
    ) -> None:
        for source, name in ((folder, "a"), (plain, "b")):
            convert(prepare(Request(source, tmp_path / name, to=to, quantize=quantize)))
        left, right = (open_checkpoint(tmp_path / name) for name in "ab")
        assert list(left.tensors) == list(right.tensors)
        for name in left.tensors:
            assert left.read(name).data.tobytes() == right.read(name).data.tobytes()
        assert left.config == right.config

    def test_a_plan_names_what_lacks_its_scale(
        self, tmp_path: Path, tensors: dict[str, np.ndarray]
    ) -> None:
        del tensors["model.layers.0.mlp.up_proj.weight_scale"]
        checkpoint = open_checkpoint(self.save(tmp_path / "a", tensors, quantization_config=STATIC))
        with pytest.raises(
            ModelMismatch, match=r"float8_e4m3fn and lacks its scale .*up_proj\.weight_scale_inv"
        ):
            plan(find_recipe(checkpoint), checkpoint).check()

    def test_other_quantizations_stay_refused(
        self, tmp_path: Path, tensors: dict[str, np.ndarray]
    ) -> None:
        config = {"quant_method": "gptq", "bits": 4}
        checkpoint = open_checkpoint(self.save(tmp_path / "a", tensors, quantization_config=config))
        with pytest.raises(ConfigurationError, match="quantization_config"):
            plan(find_recipe(checkpoint), checkpoint)
