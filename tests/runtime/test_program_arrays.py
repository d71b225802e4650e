"""Arrays that the program of an artifact reads from a file, and writes to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import CONTEXT, VOCAB, fails


def npz(path: Path, **arrays: object) -> Path:
    np.savez(path, **{name: np.asarray(value) for name, value in arrays.items()})  # type: ignore[arg-type]
    return path


def test_arrays(artifact: Path, tmp_path: Path) -> None:
    inputs = [[3, 4, 5], [6, 7, 8]]
    source = npz(tmp_path / "x.npz", input_ids=inputs, attention_mask=np.ones((2, 3)), logits=[1])
    done = tiny_artifact.run(artifact, "--inputs", source, "--output", tmp_path / "y.npz")
    assert done.returncode == 0, done.stderr
    assert "ignored" in done.stderr
    assert "attention_mask, logits" in done.stderr
    with np.load(tmp_path / "y.npz") as outputs:
        table = np.frombuffer((artifact / "weights.bin").read_bytes(), np.float32, CONTEXT * VOCAB)
        expected = table.reshape(CONTEXT, VOCAB)[None, :3] + np.array(inputs)[..., None]
        assert outputs.files == ["logits"]
        np.testing.assert_allclose(outputs["logits"], expected, rtol=1e-6)
    assert not list(tmp_path.glob(".y*"))
    assert (tmp_path / "y.npz").stat().st_mode == (artifact / "weights.bin").stat().st_mode
    fails(artifact, 2, "--inputs", source, "--output", tmp_path / "y.npz", says="exists")
    again = tiny_artifact.run(
        artifact, "--inputs", source, "--output", tmp_path / "y.npz", "--force", "--json"
    )
    content = json.loads(again.stdout)
    assert content["outputs"] == {"logits": {"dtype": "float32", "shape": [2, 3, VOCAB]}}
    assert content["ignored"] == ["attention_mask", "logits"]


def test_a_stateful_entry_on_arrays(artifact: Path, tmp_path: Path) -> None:
    source = npz(tmp_path / "x.npz", input_ids=[[9, 8]], position=np.array([4], np.int32))
    done = tiny_artifact.run(
        artifact, "--inputs", source, "--output", tmp_path / "y.npz", "--entry", "prefill"
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "y.npz") as outputs:
        table = np.frombuffer((artifact / "weights.bin").read_bytes(), np.float32, CONTEXT * VOCAB)
        np.testing.assert_array_equal(outputs["logits"][0], table.reshape(CONTEXT, VOCAB)[5])


ARRAYS: dict[str, tuple[dict[str, Any], str, int, str]] = {
    "missing": ({"other": [1]}, "forward", 3, "missing input_ids"),
    "float ids": ({"input_ids": [[1.0]]}, "forward", 3, "float64"),
    "strings": ({"input_ids": [["a"]]}, "forward", 3, "<U1"),
    "rank": ({"input_ids": [1, 2]}, "forward", 3, "shape (2,)"),
    "empty": ({"input_ids": np.zeros((1, 0), np.int64)}, "forward", 3, "shape (1, 0)"),
    "too long": ({"input_ids": [[1] * (CONTEXT + 1)]}, "forward", 4, "seq is"),
    "beyond the vocabulary": ({"input_ids": [[VOCAB]]}, "forward", 4, "values from"),
    "negative": ({"input_ids": [[-1]]}, "forward", 4, "values from"),
    "two for decode": ({"input_ids": [[1, 2]], "position": [0]}, "decode", 3, "shape (1, 2)"),
    "position": ({"input_ids": [[1]], "position": [CONTEXT]}, "decode", 4, "beyond the context"),
    "position < 0": ({"input_ids": [[1]], "position": [-1]}, "decode", 4, "beyond the context"),
    "position wide": ({"input_ids": [[1]], "position": [2**40]}, "decode", 3, "int64"),
    "prefill at the end": (
        {"input_ids": [[1, 2]], "position": [CONTEXT - 1]},
        "prefill",
        4,
        "beyond the context",
    ),
    "objects": ({"input_ids": np.array([None])}, "forward", 3, "Python objects"),
    "entry": ({"input_ids": [[1]]}, "backward", 4, "forward, prefill, decode"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_bad_arrays(artifact: Path, tmp_path: Path, case: str) -> None:
    arrays, entry, code, says = ARRAYS[case]
    source = npz(tmp_path / "x.npz", **arrays)
    output = tmp_path / "y.npz"
    fails(artifact, code, "--inputs", source, "--output", output, "--entry", entry, says=says)
    assert not output.exists()
