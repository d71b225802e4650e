"""Files of importance: what is read of both forms, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from maxtool.errors import InputError, MalformedFile, MissingFile
from maxtool.weights.importance_file import read_importance
from tests.conversion.quantized_models import write_gguf, write_older

ENTRIES = {
    "blk.0.attn_q.weight": np.array([[0.5, 2, 0, 1]], np.float32),
    "blk.0.ffn_up_exps.weight": np.array([[1, 2], [3, 4], [5, 6]], np.float32),
}


@pytest.mark.parametrize("write", [write_older, write_gguf])
def test_what_is_read(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "a", ENTRIES, 8)
    found = read_importance(tmp_path / "a")
    assert found.columns.keys() == ENTRIES.keys()
    for name, values in ENTRIES.items():
        np.testing.assert_array_equal(found.columns[name], values.reshape(-1))
    assert (found.chunks, found.dataset) == (12, "text.txt")


def test_what_was_never_called_counts_equally(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a", ENTRIES, 0)
    columns = read_importance(tmp_path / "a").columns.values()
    assert all((each == 1).all() for each in columns)


def test_the_older_form_may_lack_its_end(tmp_path: Path) -> None:
    write_older(tmp_path / "a", ENTRIES)
    whole = (tmp_path / "a").read_bytes()
    for cut, chunks in ((16, 0), (12, 12)):
        (tmp_path / "a").write_bytes(whole[:-cut])
        found = read_importance(tmp_path / "a")
        assert (found.chunks, found.dataset, len(found.columns)) == (chunks, "", 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1])
@pytest.mark.parametrize("write", [write_older, write_gguf])
def test_numbers_that_are_none(tmp_path: Path, write: Any, bad: float) -> None:
    write(tmp_path / "a", {**ENTRIES, "b": np.array([[1, bad]], np.float32)})
    with pytest.raises(MalformedFile, match="negative or not finite") as caught:
        read_importance(tmp_path / "a")
    assert caught.value.tensor == "b"


def ints(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


OLDER: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the number of entries needs 4 bytes and 0 are left"),
    "no entries": (ints(0), "the number of entries is 0"),
    "very many entries": (ints(2**31 - 1), "the number of entries is 2147483647"),
    "a negative length": (ints(1, -1), "the length of the name of entry 0 is -1"),
    "a long name": (ints(1, 2**30), "the length of the name of entry 0"),
    "a name cut off": (ints(1, 9) + b"abc", "needs 9 bytes and 3 are left"),
    "a name of no text": (ints(1, 1) + b"\xff", "is not UTF-8"),
    "no values": (ints(1, 1) + b"a" + ints(1, 0), "the number of values of 'a' is 0"),
    "values cut off": (ints(1, 1) + b"a" + ints(1, 99), "needs 396 bytes and 0 are left"),
    "a gigabyte": (ints(1, 1) + b"a" + ints(1, 2**30), "the number of values of 'a' is"),
    "twice": (ints(2, 1) + b"a" + ints(1, 1, 0, 1) + b"a", "two entries are called 'a'"),
    "a long dataset": (ints(1, 1) + b"a" + ints(1, 1, 0, 7, 2**20), "the length of the text's"),
    "more behind it": (ints(1, 1) + b"a" + ints(1, 1, 0, 7, 1) + b"tx", "goes on behind its end"),
}


@pytest.mark.parametrize("name", OLDER)
def test_malformed_files_of_the_older_form(tmp_path: Path, name: str) -> None:
    content, message = OLDER[name]
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(MalformedFile, match=message):
        read_importance(tmp_path / "a")


TENSORS: dict[str, tuple[dict[str, np.ndarray[Any, Any]], str]] = {
    "others": ({"a": np.ones(4, np.float32)}, "no importance"),
    "no counts": ({"a.in_sum2": np.ones(4, np.float32)}, "sums and of counts"),
    "float16": (
        {"a.in_sum2": np.ones(4, np.float16), "a.counts": np.ones(1, np.float32)},
        "sums and of counts",
    ),
    "counts": (
        {"a.in_sum2": np.ones(4, np.float32), "a.counts": np.ones(3, np.float32)},
        "4 sums and 3 counts",
    ),
    "a count of NaN": (
        {"a.in_sum2": np.ones(4, np.float32), "a.counts": np.full(1, np.nan, np.float32)},
        "not finite",
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_malformed_files_of_the_newer_form(tmp_path: Path, name: str) -> None:
    tensors, message = TENSORS[name]
    writer = GGUFWriter(tmp_path / "a", "imatrix")
    for tensor, values in tensors.items():
        writer.add_tensor(tensor, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(MalformedFile, match=message):
        read_importance(tmp_path / "a")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        read_importance(tmp_path / "a")


@given(data=st.data())
def test_damaged_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Change single bytes, and cut the file."""
    file = tmp_path_factory.mktemp("damaged") / "a"
    data.draw(st.sampled_from([write_older, write_gguf]))(file, ENTRIES)
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        found = read_importance(file)
    except InputError:
        return
    assert all(np.isfinite(each).all() for each in found.columns.values())
