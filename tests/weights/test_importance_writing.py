"""Importance matrices that are written: read by gguf-py, and by maxtool in both forms."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from maxtool.weights.importance_file import read_importance
from maxtool.weights.importance_writing import (
    ColumnSquares,
    MeasuredImportance,
    write_importance,
)

DENSE, STACK = "blk.0.ffn_down.weight", "blk.0.ffn_down_exps.weight"


def measured() -> MeasuredImportance:
    rng = np.random.default_rng(1)
    dense = ColumnSquares(rng.random((1, 6)) * 100, np.array([100]))
    stack = ColumnSquares(rng.random((3, 5)) * [[7], [0], [90]], np.array([7, 0, 93]))
    return MeasuredImportance({STACK: stack, DENSE: dense}, 4, 25, "book.txt")


def test_gguf_is_as_llama_imatrix_writes_it(tmp_path: Path) -> None:
    content, file = measured(), tmp_path / "a.gguf"
    write_importance(file, content, older=False)
    reader = GGUFReader(file)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    assert fields["general.type"] == "imatrix"
    assert fields["imatrix.datasets"] == ["book.txt"]
    assert (fields["imatrix.chunk_count"], fields["imatrix.chunk_size"]) == (4, 25)
    kinds = {key: reader.fields[key].types[-1].name for key in fields if "chunk" in key}
    assert set(kinds.values()) == {"UINT32"}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert list(tensors) == [
        f"{n}.{e}" for n in sorted((DENSE, STACK)) for e in ("in_sum2", "counts")
    ]
    shapes = {name: tensor.shape.tolist() for name, tensor in tensors.items()}  # fastest first
    assert shapes == {
        f"{DENSE}.in_sum2": [6],
        f"{DENSE}.counts": [1],
        f"{STACK}.in_sum2": [5, 3],
        f"{STACK}.counts": [1, 3],
    }
    for name, each in content.squares.items():
        np.testing.assert_array_equal(
            tensors[f"{name}.in_sum2"].data.reshape(each.sums.shape), each.sums.astype(np.float32)
        )
        np.testing.assert_array_equal(tensors[f"{name}.counts"].data.reshape(-1), each.counts)


def test_the_older_form_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "a.dat"
    sums, counts = np.array([[8.0, 2.0], [5.0, 5.0]]), np.array([4, 0])
    unused = ColumnSquares(np.zeros((1, 2)), np.array([0]))
    content = MeasuredImportance({"b": ColumnSquares(sums, counts), "a": unused}, 2, 3, "t")
    write_importance(file, content, older=True)
    # Four rows are two calls of three tokens; what was never used counts as 1.
    expected = struct.pack("<iicii4fiic", 1, 1, b"b", 2, 4, 4.0, 1.0, 2.0, 2.0, 2, 1, b"t")
    assert file.read_bytes() == expected


@pytest.mark.parametrize("older", [False, True])
@given(data=st.data())
def test_what_is_written_is_read(
    older: bool, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 9)))
    sums = data.draw(arrays.arrays(np.float64, shape, elements=st.floats(0, 1e20)))
    counts = data.draw(arrays.arrays(np.int64, shape[:1], elements=st.integers(1, 1 << 20)))
    file = tmp_path_factory.mktemp("importance") / "file"
    content = MeasuredImportance({"blk.0.x": ColumnSquares(sums, counts)}, 3, 512, "ü.txt")
    write_importance(file, content, older=older)
    found = read_importance(file)
    assert (found.chunks, found.dataset) == (3, "ü.txt")
    np.testing.assert_allclose(
        found.columns["blk.0.x"], (sums / counts[:, None]).reshape(-1), rtol=3e-7, atol=1e-38
    )
