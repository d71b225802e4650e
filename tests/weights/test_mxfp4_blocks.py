"""MXFP4 of gpt-oss, against the table of its values and powers of two."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.dtype import DType
from maxtool.errors import MalformedFile
from maxtool.quantization import QuantizationEncoding
from maxtool.weights import Checkpoint, open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
VALUES = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
TABLE = np.concatenate((VALUES, -VALUES))
NAME = "model.layers.0.mlp.experts.gate_up_proj"


def saved(folder: Path, blocks: np.ndarray, scales: np.ndarray) -> Checkpoint:
    save_file({f"{NAME}_blocks": blocks, f"{NAME}_scales": scales}, folder / "model.safetensors")
    config = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    content = {"model_type": "gpt_oss", "quantization_config": config}
    (folder / "config.json").write_text(json.dumps(content))
    return open_checkpoint(folder)


def drawn(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(2)
    blocks = generator.integers(0, 256, (*shape, 16), np.uint8)
    return blocks, generator.integers(0, 255, shape, np.uint8)


def test_the_blocks_hold_the_same_numbers(tmp_path: Path) -> None:
    blocks, scales = drawn(3, 8, 2)
    checkpoint = saved(tmp_path, blocks, scales)
    info = checkpoint.tensors[NAME]
    assert list(checkpoint.tensors) == [NAME]
    assert (info.shape, info.encoding) == ((3, 8, 64), QuantizationEncoding.MXFP4)
    numbers = np.stack((blocks & 15, blocks >> 4), axis=-1).reshape(3, 8, 2, 32)
    with np.errstate(all="ignore"):
        exact = TABLE[numbers].astype(np.float64) * 2.0 ** (scales.astype(int) - 127)[..., None]
    decoded = checkpoint.read(NAME).astype(DType.float32).data
    np.testing.assert_array_equal(decoded, exact.astype(np.float32).reshape(3, 8, 64))


def test_transformers_decodes_the_same_numbers(tmp_path: Path) -> None:
    recorded = np.load(DATA / "mxfp4_experts.npz")
    checkpoint = saved(tmp_path, recorded["blocks"], recorded["scales"])
    decoded = checkpoint.read(NAME).astype(DType.bfloat16).data.transpose(0, 2, 1)
    expected = recorded["decoded"].view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(decoded.astype(np.float32), expected.astype(np.float32))


def test_gguf_keeps_the_blocks(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    checkpoint = saved(folder, *drawn(2, 8, 2))
    assert checkpoint.notes == ("1 MXFP4 weights are read as GGUF's blocks",)
    output = tmp_path / "a.gguf"
    result = CliRunner().invoke(app, ["convert", str(folder), "-o", str(output), "--no-recipe"])
    assert result.exit_code == 0, result.stderr
    written = open_checkpoint(output)
    assert written.tensors[NAME].encoding is QuantizationEncoding.MXFP4
    assert written.read(NAME).data.tobytes() == checkpoint.read(NAME).data.tobytes()


def test_some_rows_are_read(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, *drawn(3, 8, 2))
    whole = checkpoint.read(NAME).data
    np.testing.assert_array_equal(checkpoint.rows(NAME, 1).data, whole[1])


@pytest.mark.parametrize(
    ("blocks", "scales", "message"),
    [
        ((2, 4, 1, 15), (2, 4, 1), r"not blocks of 16"),
        ((16,), (1,), "not blocks of 16"),
        ((2, 0, 1, 16), (2, 0, 1), "not blocks of 16"),
        ((2, 4, 1, 16), (2, 4), r"_scales has the shape \[2, 4\], not \[2, 4, 1\]"),
    ],
)
def test_misfits(
    tmp_path: Path, blocks: tuple[int, ...], scales: tuple[int, ...], message: str
) -> None:
    with pytest.raises(MalformedFile, match=message):
        saved(tmp_path, np.zeros(blocks, np.uint8), np.zeros(scales, np.uint8))


def test_a_scale_that_is_not_a_number(tmp_path: Path) -> None:
    blocks, scales = drawn(1, 4, 2)
    scales[0, 2, 1] = 255
    checkpoint = saved(tmp_path, blocks, scales)
    with pytest.raises(MalformedFile, match="a scale is 255") as caught:
        checkpoint.read(NAME)
    assert caught.value.tensor == NAME


def test_numbers_of_rows_of_a_narrow_type(tmp_path: Path) -> None:
    """Differences of such numbers wrap: 255 and 0 do not follow each other."""
    whole = np.arange(600, dtype=np.float32).reshape(300, 2)
    save_file({"w": whole}, tmp_path / "w.safetensors")
    rows = open_checkpoint(tmp_path / "w.safetensors").rows("w", np.array([255, 0], np.uint8))
    np.testing.assert_array_equal(rows.data, whole[[255, 0]])
