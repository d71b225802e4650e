"""The safetensors reader and writer against the safetensors package, and hostile files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxtool.dtype import TABLE, DType
from maxtool.errors import (
    InputError,
    MalformedFile,
    MisshapenWeight,
    MissingFile,
    MissingWeight,
    ModelMismatch,
    UnexpectedWeight,
)
from maxtool.quantization import QuantizationEncoding
from maxtool.weights import TensorSpec, open_checkpoint
from maxtool.weights.formats import read
from maxtool.weights.formats import safetensors as ours

Arrays = dict[str, np.ndarray]

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name != "__metadata__"
)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def tensors(draw: st.DrawFn) -> Arrays:
    arrays = {}
    for name in draw(st.lists(NAMES, max_size=6, unique=True)):
        dtype = draw(st.sampled_from(list(DType)))
        shape = draw(SHAPES)
        size = int(np.prod(shape)) * dtype.size_in_bytes
        raw = draw(st.binary(min_size=size, max_size=size))
        if dtype is DType.bool:
            raw = bytes(byte & 1 for byte in raw)
        arrays[name] = np.frombuffer(raw, dtype.to_numpy()).reshape(shape)
    return arrays


def specs(arrays: Arrays) -> list[TensorSpec]:
    return [
        TensorSpec(name, DType.from_numpy(array.dtype), array.shape)
        for name, array in arrays.items()
    ]


def write(path: Path, arrays: Arrays, **options: Any) -> bytes:
    ours.write(path, specs(arrays), iter(arrays.values()), **options)
    return path.read_bytes()


RELAXED = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(arrays=tensors())
@RELAXED
def test_written_bytes_are_those_of_the_library(tmp_path: Path, arrays: Arrays) -> None:
    written = write(tmp_path / "ours", arrays)
    assert written == safetensors.numpy.save(arrays, {"format": "pt"})


@given(arrays=tensors())
@RELAXED
def test_reads_what_the_library_wrote(tmp_path: Path, arrays: Arrays) -> None:
    path = tmp_path / "theirs.safetensors"
    safetensors.numpy.save_file(arrays, path, {"key": "värde"})
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "safetensors"
    assert checkpoint.metadata == {"key": "värde"}
    assert set(checkpoint.tensors) == set(arrays)
    for name, array in arrays.items():
        weight = checkpoint.read(name)
        assert (weight.dtype, weight.shape) == (DType.from_numpy(array.dtype), array.shape)
        assert weight.data.dtype == array.dtype
        assert weight.data.tobytes() == array.tobytes()


def test_tensors_come_in_file_order(tmp_path: Path) -> None:
    arrays = {"a": np.zeros(1, np.int8), "b": np.zeros(1, np.float32)}
    safetensors.numpy.save_file(arrays, tmp_path / "x")
    _, index, _ = read(tmp_path / "x")
    assert [tensor.name for tensor in index.tensors] == ["b", "a"]
    assert index.tensors[0].offset + 4 == index.tensors[1].offset


def test_every_type_has_a_place_in_the_order() -> None:
    assert len(ours.STORAGE_ORDER.split()) == len(TABLE)


def test_payloads_are_views_that_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path / "x.safetensors", {"a": np.arange(4.0)})
    data = open_checkpoint(tmp_path / "x.safetensors").read("a").data
    assert data.base is not None
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


def test_unaligned_payloads_are_copied(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    raw = json.dumps({"a": entry}).encode()
    raw += b" " * (-len(raw) % 4 + 1)
    payload = np.float32(3).tobytes()
    (tmp_path / "x.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + payload)
    data = open_checkpoint(tmp_path / "x.safetensors").read("a").data
    assert data.flags.aligned
    assert data.tolist() == [3]


def test_metadata_is_sorted_and_progress_counts_every_byte(tmp_path: Path) -> None:
    seen: list[int] = []
    arrays = {"a": np.zeros(5, np.float32), "b": np.zeros((2, 2), np.int8)}
    written = write(tmp_path / "x", arrays, metadata={"z": "1", "b": "2"}, progress=seen.append)
    assert written[8:].startswith(b'{"__metadata__":{"b":"2","z":"1"}')
    assert sum(seen) == 24


# Refused when writing.


def test_quantized_and_repeated_tensors_are_refused_together(tmp_path: Path) -> None:
    bad = [
        TensorSpec("q", DType.float32, (32,), QuantizationEncoding.Q8_0),
        TensorSpec("a", DType.int8, ()),
        TensorSpec("a", DType.int8, ()),
        TensorSpec("__metadata__", DType.int8, ()),
    ]
    with pytest.raises(ModelMismatch) as caught:
        ours.write(tmp_path / "x", bad, [])
    assert caught.value.problems == (
        "q: Q8_0 blocks cannot be stored in safetensors",
        "a: the name is there 2 times",
        "__metadata__: no tensor can have this name",
    )
    assert not (tmp_path / "x").exists()


WRONG_ARRAYS: list[tuple[list[np.ndarray], type[Exception], str]] = [
    ([], MissingWeight, "no array was given"),
    ([np.zeros(3, np.float32)], MisshapenWeight, r"float32 \[3\] was given .* float32 \[2\]"),
    ([np.zeros(2, np.float64)], MisshapenWeight, "an array of float64"),
    ([np.zeros(2, np.float32)] * 2, UnexpectedWeight, "more than 1 arrays"),
]


@pytest.mark.parametrize(("arrays", "error", "message"), WRONG_ARRAYS)
def test_arrays_are_checked(
    tmp_path: Path, arrays: list[np.ndarray], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ours.write(tmp_path / "x", [TensorSpec("a", DType.float32, (2,))], arrays)


# Hostile files: name, header or whole file, expected message.

GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def file_of(header: object, payload: bytes = bytes(8)) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + payload


def entry(**changes: object) -> bytes:
    return file_of({"a.weight": {**GOOD, **changes}})


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the header length needs 8 bytes and 0 are left"),
    "short length": (b"\x01\x00", "the header length needs 8 bytes and 2 are left"),
    "header beyond the end": ((99).to_bytes(8, "little") + b"{}", "the header needs 99 bytes"),
    "header of 2^64-1 bytes": (b"\xff" * 8 + b"{}", "at most 100000000"),
    "header is a list": (file_of([]), "does not begin with '{'"),
    "leading space": (file_of(b' {"a": 1}'), "does not begin with '{'"),
    "not JSON": (file_of(b"{nope"), "not valid JSON"),
    "text after the object": (file_of(b"{} {}", b""), "not valid JSON: Extra data"),
    "not UTF-8": (file_of(b'{"\xff": 1}'), "not UTF-8"),
    "nested deeply": (file_of(b'{"a":' + b"[" * 200_000), "nested too deeply"),
    "number of 5000 digits": (file_of(b'{"a": ' + b"9" * 5000 + b"}"), "not valid JSON"),
    "duplicate tensor": (
        file_of(b'{"a": %b, "a": %b}' % ((json.dumps(GOOD).encode(),) * 2)),
        "the JSON key 'a' is there twice",
    ),
    "duplicate field": (
        file_of(b'{"a": {"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
        "the JSON key 'dtype' is there twice",
    ),
    "metadata is a list": (file_of({"__metadata__": []}, b""), "not an object of strings"),
    "metadata of numbers": (file_of({"__metadata__": {"a": 1}}, b""), "not an object of strings"),
    "entry is a number": (file_of({"a": 1}), "the entry is not an object"),
    "shape is an entry": (entry(shape=GOOD), "shape is not a list of integers"),
    "no dtype": (file_of({"a": {"shape": [2], "data_offsets": [0, 8]}}), "no dtype"),
    "no shape": (file_of({"a": {"dtype": "F32", "data_offsets": [0, 8]}}), "shape is not a list"),
    "shape of floats": (entry(shape=[2.0]), "shape is not a list of integers"),
    "shape of booleans": (entry(shape=[True]), "shape is not a list of integers"),
    "negative dimension": (entry(shape=[-2]), "shape holds a number outside"),
    "dimension of 2^64": (entry(shape=[1 << 64]), "shape holds a number outside"),
    "product overflows 64 bits": (entry(shape=[1 << 62, 8]), "needs"),
    "65 dimensions": (entry(shape=[1] * 64 + [2]), "65 dimensions"),
    "size differs": (entry(shape=[3]), r"shape \[3\] of F32 needs 12 bytes, not 8"),
    "three offsets": (entry(data_offsets=[0, 8, 8]), "not a begin and an end"),
    "offsets reversed": (entry(data_offsets=[8, 0]), "not a begin and an end"),
    "negative offset": (entry(data_offsets=[-8, 0]), "data_offsets holds a number outside"),
    "offset beyond the end": (
        entry(data_offsets=[0, 9]),
        "needs 8 bytes, not 9",
    ),
    "hole at the start": (
        file_of({"a": {**GOOD, "data_offsets": [8, 16]}}, bytes(16)),
        "leaves a hole before it",
    ),
    "hole between": (
        file_of({"a": GOOD, "b": {**GOOD, "data_offsets": [12, 20]}}, bytes(20)),
        "leaves a hole before it",
    ),
    "overlap": (
        file_of({"a": GOOD, "b": {**GOOD, "data_offsets": [4, 12]}}, bytes(12)),
        "overlaps the one before it",
    ),
    "same place": (file_of({"a": GOOD, "b": GOOD}), "overlaps the one before it"),
    "trailing data": (file_of({"a": GOOD}, bytes(9)), "1 bytes belong to no tensor"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(MalformedFile, match=message) as caught:
        open_checkpoint(path)
    assert caught.value.file == str(path)


def test_errors_name_tensor_and_offset(tmp_path: Path) -> None:
    content = entry(shape=[3])
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(MalformedFile) as caught:
        open_checkpoint(tmp_path / "x.safetensors")
    assert caught.value.tensor == "a.weight"
    assert caught.value.offset == content.index(b'"a.weight"')


def test_an_unknown_element_type_is_not_called_malformed(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(entry(dtype="F4", shape=[16]))
    with pytest.raises(InputError, match="element type 'F4' is not supported") as caught:
        open_checkpoint(tmp_path / "x.safetensors")
    assert not isinstance(caught.value, MalformedFile)


SMALL = safetensors.numpy.save(
    {"b": np.arange(3, dtype=np.int16), "a": np.ones((2, 2), np.float32)}, {"format": "pt"}
)


def only_our_errors(path: Path, content: bytes, read: Callable[[Path], object]) -> bool:
    """Return whether ``content`` was refused; fails if by anything but an ``InputError``."""
    path.write_bytes(content)
    try:
        read(path)
    except InputError:
        return True
    return False


@pytest.mark.parametrize("length", range(len(SMALL)))
def test_truncation_at_every_byte(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(SMALL[:length])
    with pytest.raises(MalformedFile):
        open_checkpoint(path)


def test_every_flip_of_a_header_bit_reads_or_is_refused(tmp_path: Path) -> None:
    header = len(SMALL) - 22
    refused = 0
    for position in range(header):
        for bit in range(8):
            content = bytearray(SMALL)
            content[position] ^= 1 << bit
            refused += only_our_errors(tmp_path / "x.safetensors", content, open_checkpoint)
    assert refused > header * 4


@given(header=st.binary(max_size=60), payload=st.binary(max_size=20))
@RELAXED
def test_arbitrary_headers(tmp_path: Path, header: bytes, payload: bytes) -> None:
    only_our_errors(tmp_path / "x.safetensors", file_of(b"{" + header, payload), open_checkpoint)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"no such file .* accepted: a Hugging Face folder"):
        open_checkpoint(tmp_path / "none.safetensors")
    with pytest.raises(MissingFile):
        open_checkpoint(Path("nul\0.safetensors"))
