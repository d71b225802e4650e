"""The GGUF reader and writer against the gguf package, and hostile files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.errors import InputError, MalformedFile, ModelMismatch
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.weights import Checkpoint, TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf as ours

E = QuantizationEncoding

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "a.uint8": np.uint8(200),
    "a.int8": np.int8(-100),
    "a.uint16": np.uint16(60000),
    "a.int16": np.int16(-30000),
    "a.uint32": np.uint32(4_000_000_000),
    "a.int32": np.int32(-2_000_000_000),
    "a.uint64": np.uint64(1 << 63),
    "a.int64": np.int64(-(1 << 62)),
    "a.float32": np.float32(0.1),
    "a.float64": np.float64(0.1),
    "a.bool": True,
    "a.text": "räksmörgås\n",
    "a.floats": np.array([0.5, -1.5], np.float32),
    "a.ints": np.array([3, -4, 5], np.int32),
    "a.bools": np.array([True, False]),
    "a.strings": ["<unk>", "", "日本", "</s>"],
}
ADDERS = {
    np.uint8: "uint8",
    np.int8: "int8",
    np.uint16: "uint16",
    np.int16: "int16",
    np.uint32: "uint32",
    np.int32: "int32",
    np.uint64: "uint64",
    np.int64: "int64",
    np.float32: "float32",
    np.float64: "float64",
}
ARRAY_TYPES = {"float32": "FLOAT32", "int32": "INT32", "bool": "BOOL"}


def arrays() -> dict[str, tuple[TensorSpec, np.ndarray]]:
    """Tensors of every kind, of sizes that need padding."""
    random = np.random.default_rng(0)
    values = random.standard_normal((3, 64)).astype(np.float32)
    result: dict[str, tuple[TensorSpec, np.ndarray]] = {}
    for dtype in ("float32", "float16", "float64", "int8", "int16", "int32", "int64", "bfloat16"):
        array = (values[:, :5] * 50).astype(DType(dtype).to_numpy())
        result[f"t.{dtype}"] = (TensorSpec(f"t.{dtype}", DType(dtype), (3, 5)), array)
    for encoding in (E.Q8_0, E.Q4_0, E.Q5_1):
        name = f"t.{encoding.name}"
        spec = TensorSpec(name, DType.float32, (3, 64), encoding)
        result[name] = (spec, quantize(values, encoding))
    result["t.cube"] = (TensorSpec("t.cube", DType.float32, (2, 3, 4)), np.ones((2, 3, 4), "f4"))
    return result


def add_metadata(writer: gguf.GGUFWriter, metadata: dict[str, Any]) -> None:
    for key, value in metadata.items():
        if key == "general.architecture":
            continue  # the writer adds it itself
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, np.ndarray):
            sub = gguf.GGUFValueType[ARRAY_TYPES[value.dtype.name]]
            writer.add_key_value(key, value.tolist(), gguf.GGUFValueType.ARRAY, sub_type=sub)
        else:
            getattr(writer, f"add_{ADDERS[type(value)]}")(key, value.item())


def by_the_package(
    path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[TensorSpec, np.ndarray]]
) -> None:
    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    if "general.alignment" in metadata:
        writer.data_alignment = int(metadata["general.alignment"])
    add_metadata(writer, metadata)
    for name, (spec, array) in tensors.items():
        raw = None
        if spec.encoding is not None:
            raw = gguf.GGMLQuantizationType(spec.encoding.gguf_id)
        elif spec.dtype is DType.bfloat16:
            raw, array = gguf.GGMLQuantizationType.BF16, array.view(np.uint8)
        writer.add_tensor(name, array, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(
    path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[TensorSpec, np.ndarray]]
) -> bytes:
    specs = [spec for spec, _ in tensors.values()]
    ours.write(path, specs, (array for _, array in tensors.values()), metadata)
    return path.read_bytes()


@pytest.mark.parametrize("alignment", [None, 64, 8])
def test_written_bytes_are_those_of_the_package(tmp_path: Path, alignment: int | None) -> None:
    metadata = dict(METADATA)
    if alignment:
        metadata["general.alignment"] = np.uint32(alignment)
    by_the_package(tmp_path / "theirs", metadata, arrays())
    assert write(tmp_path / "ours", metadata, arrays()) == (tmp_path / "theirs").read_bytes()


def check_contents(checkpoint: Checkpoint) -> None:
    assert list(checkpoint.metadata) == list(METADATA)
    for key, value in METADATA.items():
        actual: Any = checkpoint.metadata[key]
        assert type(actual) is type(value), key
        if isinstance(value, np.ndarray):
            assert actual.dtype == value.dtype
            assert actual.tolist() == value.tolist()
        else:
            assert actual == value, key
    expected = arrays()
    assert list(checkpoint.tensors) == list(expected)
    for name, (spec, array) in expected.items():
        weight = checkpoint.read(name)
        assert (weight.dtype, weight.shape) == (spec.dtype, spec.shape)
        assert weight.quantization_encoding is spec.encoding
        assert weight.data.dtype == array.dtype
        np.testing.assert_array_equal(weight.data, array, err_msg=name)


@pytest.mark.parametrize("version", [2, 3])
def test_reads_what_the_package_wrote(tmp_path: Path, version: int) -> None:
    path = tmp_path / "theirs.gguf"
    by_the_package(path, METADATA, arrays())
    content = bytearray(path.read_bytes())
    content[4] = version
    path.write_bytes(content)
    checkpoint = open_checkpoint(path)
    assert (checkpoint.format, checkpoint.config) == ("gguf", None)
    check_contents(checkpoint)


def test_the_package_reads_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "ours.gguf", METADATA, arrays())
    reader = gguf.GGUFReader(tmp_path / "ours.gguf")
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert list(fields) == list(METADATA)
    assert fields["a.strings"].contents() == METADATA["a.strings"]
    for tensor, (spec, array) in zip(reader.tensors, arrays().values(), strict=True):
        assert tensor.name == spec.name
        assert tuple(tensor.shape.tolist()) == tuple(reversed(spec.shape))
        assert tensor.data.tobytes() == array.tobytes()


def test_text_that_is_not_utf8_survives(tmp_path: Path) -> None:
    write(tmp_path / "a.gguf", {"general.name": "?", "k": ["?"]}, {})
    content = (tmp_path / "a.gguf").read_bytes().replace(b"?", b"\xff")
    (tmp_path / "a.gguf").write_bytes(content)
    metadata = dict(open_checkpoint(tmp_path / "a.gguf").metadata)
    assert write(tmp_path / "b.gguf", metadata, {}) == content


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    seen: list[int] = []
    tensors = arrays()
    specs = [spec for spec, _ in tensors.values()]
    payloads = [array for _, array in tensors.values()]
    ours.write(tmp_path / "x", specs, payloads, METADATA, seen.append)
    assert sum(seen) == sum(array.nbytes for array in payloads)


@pytest.mark.parametrize("value", [1, 1.5, None, {}, [1], [b"x"], np.zeros((2, 2)), np.float16(1)])
def test_values_without_a_type_are_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(TypeError, match=r"a\.key"):
        ours.write(tmp_path / "x", [], [], {"a.key": value})


def test_unfit_tensors_are_refused_together(tmp_path: Path) -> None:
    bad = [
        TensorSpec("n" * 65, DType.int8, (1,)),
        TensorSpec("dims", DType.int8, (1,) * 5),
        TensorSpec("type", DType.uint16, (1,)),
        TensorSpec("row", DType.float32, (2, 33), E.Q8_0),
        TensorSpec("scalar", DType.float32, (), E.Q8_0),
        TensorSpec("twice", DType.int8, ()),
        TensorSpec("twice", DType.int8, ()),
    ]
    with pytest.raises(ModelMismatch) as caught:
        ours.write(tmp_path / "x", bad, [], {})
    assert caught.value.problems == (
        f"{'n' * 65}: a name of 65 bytes; at most 64",
        "dims: 5 dimensions; at most 4",
        "type: the format has no uint16",
        "row: Q8_0 needs rows divisible by 32, not 33",
        "scalar: a scalar cannot be stored as Q8_0",
        "twice: the name is there 2 times",
    )
    assert not (tmp_path / "x").exists()


@pytest.mark.reference
def test_agrees_with_the_package_on_every_reference_file(reference: Path) -> None:
    files = sorted(reference.glob("*/*.gguf"))
    assert files
    for file in files:
        checkpoint = open_checkpoint(file)
        reader = gguf.GGUFReader(file)
        for tensor in reader.tensors:
            info = checkpoint.tensors[tensor.name]
            assert (info.offset, info.nbytes) == (tensor.data_offset, tensor.n_bytes)
            assert checkpoint.read(tensor.name).data.tobytes() == tensor.data.tobytes()
        for key, value in checkpoint.metadata.items():
            contents = reader.fields[key].contents()
            plain = value.tolist() if hasattr(value, "tolist") else value
            assert plain == contents, key


@pytest.mark.reference
def test_rewriting_a_reference_file_gives_its_bytes(reference: Path, tmp_path: Path) -> None:
    for file in sorted(reference.glob("*/*.gguf")):
        checkpoint = open_checkpoint(file)
        tensors = {name: (i, checkpoint.read(name).data) for name, i in checkpoint.tensors.items()}
        assert write(tmp_path / "x", dict(checkpoint.metadata), tensors) == file.read_bytes()


# Hostile files, built by hand: what the package's writer would never write.


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: bytes) -> bytes:
    return u64(len(value)) + value


def head(tensors: int, keys: int, *, version: int = 3) -> bytes:
    return b"GGUF" + u32(version) + u64(tensors) + u64(keys)


def tensor(
    name: bytes = b"a", dims: tuple[int, ...] = (8,), code: int = 0, offset: int = 0
) -> bytes:
    shape = b"".join(map(u64, dims))
    return text(name) + u32(len(dims)) + shape + u32(code) + u64(offset)


def padded(content: bytes, payload: bytes) -> bytes:
    return content + bytes(-len(content) % 32) + payload


def one_key(value: bytes, key: bytes = b"k") -> bytes:
    return head(0, 1) + text(key) + value


def one_tensor(payload: int = 32, **changes: Any) -> bytes:
    return padded(head(1, 0) + tensor(**changes), bytes(payload))


def two_tensors(second: int, payload: int) -> bytes:
    descriptions = tensor(b"a", (8,)) + tensor(b"b", (8,), offset=second)
    return padded(head(2, 0) + descriptions, bytes(payload))


def aligned(value: bytes) -> bytes:
    return one_key(value, b"general.alignment")


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the magic needs 4 bytes and 0 are left"),
    "other magic": (b"GGML" + bytes(40), "does not begin with 'GGUF'"),
    "no version": (b"GGUF", "the version needs 4 bytes"),
    "no counts": (b"GGUF" + u32(3), "the tensor count needs 8 bytes"),
    "2^64-1 tensors": (head(2**64 - 1, 0), "the tensor count is 18446744073709551615; at most"),
    "more tensors than bytes": (head(1000, 0) + bytes(99), "the tensor count is 1000, more than"),
    "2^40 keys": (head(0, 1 << 40), "the key count is 1099511627776; at most"),
    "more keys than bytes": (head(0, 9) + bytes(9), "the key count is 9, more than"),
    "empty key": (one_key(u32(0) + bytes(9), b""), "a key has 0 bytes"),
    "key too long": (one_key(u32(0) + b"\1", b"k" * 65536), "a key has 65536 bytes; 1 to 65535"),
    "key beyond the end": (head(0, 1) + u64(99) + bytes(20), "a key needs 99 bytes"),
    "key not UTF-8": (one_key(u32(0) + b"\1", b"\xff"), "a key is not UTF-8"),
    "key twice": (
        head(0, 2) + (text(b"k") + u32(0) + b"\1") * 2,
        "the key 'k' is there twice",
    ),
    "unknown value type": (one_key(u32(13) + b"\1"), "'k' has the unknown type 13"),
    "number cut short": (one_key(u32(10) + bytes(7)), "the value of 'k' needs 8 bytes"),
    "bool of 2": (one_key(u32(7) + b"\2"), "neither 0 nor 1"),
    "string beyond the end": (one_key(u32(8) + u64(1 << 20)), "the length of 'k' is 1048576, more"),
    "string of 2^64-1": (one_key(u32(8) + u64(2**64 - 1)), "the length of 'k' is 1844"),
    "array of 10^9 bytes": (one_key(u32(9) + u32(0) + u64(10**9) + bytes(400)), "more than 400"),
    "array of 2^62 doubles": (one_key(u32(9) + u32(12) + u64(1 << 62)), "at most 1073741824"),
    "array of unknown type": (one_key(u32(9) + u32(99) + u64(0)), "of the unknown type 99"),
    "array of arrays": (one_key(u32(9) + u32(9) + u64(0)), "an array of arrays"),
    "array of bools of 7": (one_key(u32(9) + u32(7) + u64(2) + b"\1\7"), "neither 0 nor 1"),
    "strings beyond the end": (
        one_key(u32(9) + u32(8) + u64(2) + text(b"ab") + u64(9) + b"c"),
        "a string of 'k' passes the end of the file",
    ),
    "strings end early": (
        one_key(u32(9) + u32(8) + u64(3) + text(b"0123456789") + u64(0)),
        "'k' ends early",
    ),
    "string of 2^64-1 in array": (
        one_key(u32(9) + u32(8) + u64(1) + u64(2**64 - 1)),
        "passes the end of the file",
    ),
    "more strings than budgeted": (
        one_key(u32(9) + u32(8) + u64(2 << 20) + bytes(8 * (2 << 20))),
        "more than the 88000000 bytes of memory",
    ),
    "alignment 0": (aligned(u32(4) + u32(0)), "is 0, not a power of two"),
    "alignment 24": (aligned(u32(4) + u32(24)), "is 24, not a power of two"),
    "alignment 2^31": (aligned(u32(4) + u32(1 << 31)), "not a power of two up to 1048576"),
    "alignment is text": (aligned(u32(8) + text(b"32")), "is 32, not a power of two"),
    "tensor name empty": (one_tensor(name=b""), "a tensor name has 0 bytes"),
    "tensor name of 65 bytes": (one_tensor(name=b"n" * 65), "a tensor name has 65 bytes"),
    "tensor name not UTF-8": (one_tensor(name=b"\xff"), "a tensor name is not UTF-8"),
    "five dimensions": (one_tensor(dims=(1,) * 5), "5 dimensions; at most 4"),
    "dimension of 2^64-1": (one_tensor(dims=(2**64 - 1,)), "out of range"),
    "product overflows 64 bits": (one_tensor(dims=(1 << 62, 4)), "the payload needs"),
    "unknown tensor type": (one_tensor(code=4), "tensor type 4 is unknown"),
    "row of half a block": (one_tensor(dims=(16,), code=8), "rows divisible by 32, not 16"),
    "scalar in blocks": (one_tensor(dims=(), code=8), "a scalar cannot be stored as Q8_0"),
    "payload cut short": (one_tensor(payload=31), "needs 32 bytes and 31 are left"),
    "no payload": (head(1, 0) + tensor(), "needs 32 bytes and 0 are left"),
    "misaligned": (one_tensor(offset=4, payload=64), "leaves a hole before it"),
    "offset near 2^64": (one_tensor(offset=2**64 - 32), "leaves a hole before it"),
    "overlap": (two_tensors(0, 64), "overlaps the one before"),
    "partial overlap": (two_tensors(16, 64), "overlaps the one before"),
    "hole": (two_tensors(64, 96), "leaves a hole before it"),
    "tensor twice": (
        padded(head(2, 0) + tensor() + tensor(offset=32), bytes(64)),
        "the tensor is there twice",
    ),
    "trailing data": (one_tensor(payload=64), "32 bytes belong to no tensor"),
    "trailing data, no tensors": (head(0, 0) + bytes(40), "40 bytes belong to no tensor"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(MalformedFile, match=message) as caught:
        open_checkpoint(path)
    assert caught.value.file == str(path)
    assert caught.value.offset is not None


def test_the_plain_cases_of_the_table_are_valid(tmp_path: Path) -> None:
    """The hand-built files are refused for their mutation, not for how they are built."""
    valid = [
        one_tensor(),
        two_tensors(32, 64),
        one_key(u32(0) + b"\1"),
        aligned(u32(4) + u32(64)),
        one_tensor(dims=(), payload=4),
        one_tensor(dims=(0, 4), payload=0),
        one_tensor(dims=(32,), code=8, payload=34),
        one_tensor(name=b"n" * 64),
    ]
    for content in valid:
        (tmp_path / "x.gguf").write_bytes(content)
        for name in (checkpoint := open_checkpoint(tmp_path / "x.gguf")).tensors:
            checkpoint.read(name)


OTHER_VERSIONS = [(1, "GGUF version 1"), (4, "GGUF version 4"), (3 << 24, "a big-endian GGUF file")]


@pytest.mark.parametrize(("version", "message"), OTHER_VERSIONS)
def test_other_versions_are_refused_by_name(tmp_path: Path, version: int, message: str) -> None:
    (tmp_path / "x.gguf").write_bytes(head(0, 0, version=version))
    with pytest.raises(InputError, match=message) as caught:
        open_checkpoint(tmp_path / "x.gguf")
    assert not isinstance(caught.value, MalformedFile)


def small_file(tmp_path: Path) -> bytes:
    spec = TensorSpec("w", DType.float32, (2, 4))
    metadata = {"general.architecture": "x", "s": ["a", "bc"], "n": np.uint32(3)}
    return write(tmp_path / "small", metadata, {"w": (spec, np.ones((2, 4), np.float32))})


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    content = small_file(tmp_path)
    for length in range(len(content)):
        (tmp_path / "x.gguf").write_bytes(content[:length])
        with pytest.raises(MalformedFile):
            open_checkpoint(tmp_path / "x.gguf")


def test_every_flip_of_a_header_bit_reads_or_is_refused(tmp_path: Path) -> None:
    content = small_file(tmp_path)
    refused = 0
    for position in range(len(content) - 32):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            (tmp_path / "x.gguf").write_bytes(flipped)
            try:
                open_checkpoint(tmp_path / "x.gguf")
            except InputError:
                refused += 1
    assert refused > len(content)


@given(body=st.binary(max_size=120), tensors=st.integers(0, 3), keys=st.integers(0, 3))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_arbitrary_bodies(tmp_path: Path, body: bytes, tensors: int, keys: int) -> None:
    (tmp_path / "x.gguf").write_bytes(head(tensors, keys) + body)
    try:
        open_checkpoint(tmp_path / "x.gguf")
    except InputError:
        return
    assert (tensors, keys) != (3, 3) or len(body) > 100
