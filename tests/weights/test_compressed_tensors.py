"""compressed-tensors: groups in any order, every width of numbers, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.recipe import find_recipe, plan
from maxtool.weights import Checkpoint, open_checkpoint
from maxtool.weights.schemes.weight_groups import WeightGroup, need_zeros
from tests.effort import examples
from tests.weights.packers import pack_rows

Array = NDArray[Any]
WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "symmetric": True}


def config(form: str = "pack-quantized", **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": WEIGHTS | weights}
    groups = {"config_groups": {"group_0": group}}
    return {"quant_method": "compressed-tensors", "format": form} | groups


def targeting(targets: Any) -> dict[str, Any]:
    return config() | {"config_groups": {"a": {"targets": targets, "weights": WEIGHTS}}}


def saved(folder: Path, tensors: dict[str, Array], said: dict[str, Any]) -> Checkpoint:
    named = {f"a.{name}": array for name, array in tensors.items()}
    save_file(named, folder / "model.safetensors")
    content = {"model_type": "llama", "quantization_config": said}
    (folder / "config.json").write_text(json.dumps(content))
    return open_checkpoint(folder)


def packed(numbers: Array, bits: int, scales: Array) -> dict[str, Array]:
    """Symmetric numbers, plus half of their range."""
    words = np.ascontiguousarray(pack_rows(numbers.T + (1 << (bits - 1)), bits).T)
    shape = np.array(numbers.shape, np.int64)
    return {"weight_packed": words, "weight_scale": scales, "weight_shape": shape}


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.integers(1, 7), st.integers(1, 9), st.integers(1, 6), st.randoms())
def test_numbers_of_any_width(
    tmp_path_factory: pytest.TempPathFactory,
    bits: int, rows: int, run: int, groups: int, random: Any,
) -> None:  # fmt: skip
    generator = np.random.default_rng(random.randrange(1 << 30))
    columns, half = run * groups, 1 << (bits - 1)
    numbers = generator.integers(-half, half, (rows, columns))
    scales = generator.uniform(0.01, 2, (rows, groups)).astype(np.float16)
    owners = np.arange(columns) // run
    tensors = packed(numbers, bits, scales)
    if random.random() < 0.5:
        generator.shuffle(owners)
        tensors["weight_g_idx"] = owners.astype(np.int32)
    checkpoint = saved(tmp_path_factory.mktemp("ct"), tensors, config(num_bits=bits))
    expected = numbers.astype(np.float16) * scales[:, owners]
    assert checkpoint.read("a.weight").data.tobytes() == expected.tobytes()


@pytest.fixture
def tensors() -> dict[str, Array]:
    numbers = np.arange(64).reshape(4, 16) % 16 - 8
    return packed(numbers, 4, np.ones((4, 2), np.float16))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("weight_shape", np.array([4, 17]), "3 words to a row|2 words to a row of 17"),
        ("weight_shape", np.array([5, 16]), r"says \[5, 16\], and there are 4 rows"),
        ("weight_shape", np.array([4, -16]), r"says \[4, -16\]"),
        ("weight_shape", np.array([4, 16, 1]), r"says \[4, 16, 1\]"),
        ("weight_shape", np.array([4.0, np.nan]), "weight_shape is F64, not int32 or int64"),
        ("weight_shape", np.zeros(1000, np.int64), "weight_shape has 8000 bytes"),
        ("weight_scale", np.ones((4, 3), np.float16), r"\[4, 3\], for \[4, 16\]"),
        ("weight_scale", np.ones((4, 0), np.float16), r"\[4, 0\], for \[4, 16\]"),
        ("weight_scale", np.ones((3,), np.float16), r"\[3\], for \[4, 16\]"),
        ("weight_scale", np.ones((4, 2, 1), np.float16), r"\[4, 2, 1\], for"),
        ("weight_scale", np.ones((4, 2), np.int8), "weight_scale is I8"),
        ("weight_packed", np.ones((4, 2), np.int64), "weight_packed is I64, not int32"),
        ("weight_zero_point", np.ones((4, 2), np.int32), r"zero_point has the shape \[4, 2\]"),
        ("weight_g_idx", np.zeros(15, np.int32), r"weight_g_idx has the shape \[15\]"),
    ],
)
def test_misfits(
    tmp_path: Path, tensors: dict[str, Array], name: str, array: Array, message: str
) -> None:
    tensors[name] = array
    with pytest.raises(MalformedFile, match=message):
        saved(tmp_path, tensors, config())


def test_groups_out_of_range(tmp_path: Path, tensors: dict[str, Array]) -> None:
    tensors["weight_g_idx"] = np.full(16, 2, np.int32)
    with pytest.raises(MalformedFile, match="groups outside 0 to 1"):
        saved(tmp_path, tensors, config()).read("a.weight")


def test_zeros_that_are_missing(tmp_path: Path, tensors: dict[str, Array]) -> None:
    with pytest.raises(MalformedFile, match="a: lacks weight_zero_point"):
        saved(tmp_path, tensors, config(symmetric=False))


def test_zeros_that_are_missing_where_groups_differ(
    tmp_path: Path, tensors: dict[str, Array]
) -> None:
    """Read numbers of a width of which no group has zeros, and no others without them."""
    wide = packed(np.arange(64).reshape(4, 16), 8, np.ones((4, 2), np.float16))
    said = config()
    eight = {"targets": ["a"], "weights": WEIGHTS | {"num_bits": 8, "symmetric": False}}
    said["config_groups"]["group_1"] = eight
    saved(tmp_path, tensors, said).read("a.weight")
    with pytest.raises(MalformedFile, match="a: lacks weight_zero_point"):
        saved(tmp_path, wide, said)


NAMED, MATCHED, CLASS, UNREAD = ["a"], ["re:.*a$"], ["Linear"], ["re:(a|b)+"]


@pytest.mark.parametrize(
    ("symmetric", "asymmetric", "refused"),
    [
        (NAMED, MATCHED, False),
        (NAMED, CLASS, False),
        (MATCHED, CLASS, False),
        (MATCHED, NAMED, True),
        (CLASS, NAMED, True),
        (CLASS, MATCHED, True),
        (CLASS, ["re:b"], False),
        (MATCHED, ["re:b"], False),
        (MATCHED, MATCHED, True),
        (CLASS, CLASS, True),
        (NAMED, UNREAD, False),
        (MATCHED, UNREAD, True),
        (CLASS, UNREAD, True),
    ],
)
def test_groups_of_one_width_with_zeros_and_without(
    tmp_path: Path,
    tensors: dict[str, Array],
    symmetric: list[str],
    asymmetric: list[str],
    refused: bool,
) -> None:
    """The most specific target says whether zeros may be missing."""
    said = config()
    groups = {"of": {"targets": symmetric, "weights": WEIGHTS}}
    groups["with"] = {"targets": asymmetric, "weights": WEIGHTS | {"symmetric": False}}
    said["config_groups"] = groups
    if refused:
        with pytest.raises(MalformedFile, match="a: lacks weight_zero_point"):
            saved(tmp_path, tensors, said)
    else:
        saved(tmp_path, tensors, said).read("a.weight")


@settings(max_examples=examples(100, 1000))
@given(
    st.lists(st.sampled_from(["a", "ab", "b", r"\.", ".", ".*"]), max_size=7).map("".join),
    st.booleans(),
    st.booleans(),
    st.text("ab.", max_size=9),
)
def test_expressions_match_as_those_of_the_library(
    middle: str, begun: bool, ended: bool, name: str
) -> None:
    expression = "^" * begun + middle + "$" * ended
    group = WeightGroup(4, False, (f"re:{expression}",)), WeightGroup(4, True, ("Linear",))
    assert need_zeros(group, name) is not bool(re.match(expression, name))


@pytest.mark.parametrize("scale", [np.float16(2), np.full(4, 2, np.float16)])
def test_zeros_of_whole_rows(tmp_path: Path, tensors: dict[str, Array], scale: Any) -> None:
    zeros = pack_rows(np.array([[1], [2], [3], [4]]), 4)
    tensors |= {"weight_scale": np.asarray(scale), "weight_zero_point": zeros}
    stored = np.arange(64).reshape(4, 16) % 16
    read = saved(tmp_path, tensors, config(symmetric=False)).read("a.weight").data
    np.testing.assert_array_equal(read, 2 * (stored - np.array([[1], [2], [3], [4]])))


def test_groups_that_are_not_stated(tmp_path: Path, tensors: dict[str, Array]) -> None:
    plain = saved(tmp_path, tensors, config()).read("a.weight").data
    tensors["weight_g_idx"] = np.full(16, -1, np.int32)
    again = saved(tmp_path, tensors, config()).read("a.weight").data
    np.testing.assert_array_equal(plain, again)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (config("marlin-24"), r"format = 'marlin-24' \(supported: pack-quantized"),
        (config("nvfp4-pack-quantized", type="float"), "nvfp4-pack-quantized"),
        (config(num_bits=9), r"config_groups.weights.num_bits = 9"),
        (config(num_bits=None), r"config_groups.weights.num_bits is missing"),
        (config(num_bits={}), r"config_groups.weights.num_bits is missing"),
        (config(type="float"), r"type = 'float' \(supported: int\)"),
        (config(strategy="block"), r"strategy = 'block' \(supported: tensor, channel, group\)"),
        (config() | {"config_groups": {"a": None}}, "a group of config_groups has no weights"),
        (config() | {"config_groups": 3}, "config_groups is not a table"),
        (targeting(5), "targets = 5 is not a list of texts"),
        (targeting(["Linear", {}]), "is not a list of texts"),
        (config() | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config.format"),
        (config() | {"transform_config": {"config_groups": {"a": 1}}}, "weights are rotated"),
        (config() | {"kv_cache_scheme": {"num_bits": 8}}, r"kv_cache_scheme = .* \(unknown\)"),
    ],
)
def test_what_is_not_supported(
    tmp_path: Path, tensors: dict[str, Array], said: dict[str, Any], message: str
) -> None:
    checkpoint = saved(tmp_path, tensors, said)
    with pytest.raises(ConfigurationError, match=f"never ignored: .*{message}"):
        plan(find_recipe(checkpoint), checkpoint)
