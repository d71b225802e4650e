"""Apertus' numbers of xIELU, tensors in Hugging Face and lists among the keys of GGUF."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError, MaxtoolError
from maxtool.recipe import find_recipe, plan
from maxtool.weights import open_checkpoint
from tests.variants.rows import Files, rows

BETA = "model.layers.0.mlp.act_fn.beta"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recorded model in bfloat16."""
    row = next(row for row in rows("apertus") if "gguf" in row.more)
    path = Files(tmp_path).checkpoint(row).path
    file = path / "model.safetensors"
    held = {name: array.astype(ml_dtypes.bfloat16) for name, array in load_file(file).items()}
    save_file(held, file, {"format": "pt"})
    return path


def converted(source: Path, target: Path, dtype: DType | None = None) -> Path:
    convert(prepare(Request(source, target, dtype=dtype)))
    return target


@pytest.mark.parametrize("through", [True, False])
def test_there_and_back(folder: Path, tmp_path: Path, *, through: bool) -> None:
    """Write the same tensors in the same type, from GGUF as from Hugging Face."""
    source = converted(folder, tmp_path / "model.gguf") if through else folder
    before, after = (
        load_file(each / "model.safetensors")
        for each in (folder, converted(source, tmp_path / "back"))
    )
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert (array.dtype, array.shape) == (after[name].dtype, after[name].shape), name
        assert array.tobytes() == after[name].tobytes(), name


def test_another_type(folder: Path, tmp_path: Path) -> None:
    back = converted(folder, tmp_path / "back", DType.float32)
    assert {each.dtype for each in load_file(back / "model.safetensors").values()} == {
        np.dtype(np.float32)
    }


def test_numbers_that_are_missing(folder: Path) -> None:
    file = folder / "model.safetensors"
    held = load_file(file)
    save_file({name: each for name, each in held.items() if name != BETA}, file)
    with pytest.raises(MaxtoolError, match="beta is missing"):
        plan(find_recipe(checkpoint := open_checkpoint(folder)), checkpoint)
    save_file({name: each for name, each in held.items() if "act_fn" not in name}, file)
    with pytest.raises(ConfigurationError, match="'xielu' needs xielu_alpha_p"):
        plan(find_recipe(checkpoint := open_checkpoint(folder)), checkpoint)
