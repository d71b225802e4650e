"""NumPy's files against NumPy, and hostile ones."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxtool.errors import InputError, MalformedFile
from maxtool.weights import open_checkpoint
from maxtool.weights.formats import zip_archive
from tests.effort import examples
from tests.weights.hostile import Case, check_cost, check_truncations, flips, reads, refused

RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
TYPES = "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8"


def arrays() -> dict[str, np.ndarray]:
    """Arrays of every type, order and byte order."""
    random = np.random.default_rng(0)
    values = random.standard_normal((3, 4, 5)) * 50
    result = {f"t.{kind}": (abs(values) + 0.5).astype(kind) for kind in TYPES.split()}
    result["swapped"] = values.astype(">f4")
    result["columns"] = np.asfortranarray(values)
    result["columns swapped"] = np.asfortranarray(values.astype(">i2"))
    result["line of columns"] = np.asfortranarray(values[0, 0])
    result["folder/scalar"] = np.array(7, np.int8)
    result["empty"] = np.empty((0, 3), np.float32)
    result["\x1b[31mred"] = np.ones(1)
    return result


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version, allow_pickle=True)
    return stream.getvalue()


def npz(compress: bool = False, **members: np.ndarray) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(stream, **members)  # type: ignore[arg-type]
    return stream.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_reads_what_numpy_wrote(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "x.npz", **arrays())
    checkpoint = open_checkpoint(tmp_path / "x.npz")
    assert (checkpoint.format, checkpoint.config) == ("npz", None)
    assert list(checkpoint.tensors) == list(arrays())
    with np.load(tmp_path / "x.npz") as theirs:
        for name in checkpoint.tensors:
            ours = checkpoint.read(name).data
            assert ours.dtype == theirs[name].dtype.newbyteorder("=")
            assert ours.dtype.isnative
            assert ours.flags.c_contiguous
            np.testing.assert_array_equal(ours, theirs[name])


@given(array=hnp.arrays(st.sampled_from(TYPES.split()), hnp.array_shapes(min_dims=0, min_side=0)))
@RELAXED
def test_any_array(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "an.array.npy", array)
    checkpoint = open_checkpoint(tmp_path / "an.array.npy")
    assert (checkpoint.format, list(checkpoint.tensors)) == ("npy", ["an.array"])
    assert checkpoint.read("an.array").data.tobytes() == array.tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header(tmp_path: Path, version: tuple[int, int]) -> None:
    (tmp_path / "x.npy").write_bytes(npy(np.arange(6.0).reshape(2, 3), version))
    assert open_checkpoint(tmp_path / "x.npy").read("x").data.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_stored_arrays_are_views(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(4, np.float32))
    data = open_checkpoint(tmp_path / "x.npy").read("x").data
    assert data.base is not None
    assert not data.flags.writeable


def test_an_archive_without_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz")
    assert not open_checkpoint(tmp_path / "x.npz").tensors


def test_text_is_left_out_with_a_note(tmp_path: Path) -> None:
    members: dict[str, Any] = {"a": np.ones(2), "b": np.array(["x"]), "c": np.array([b"y"])}
    np.savez(tmp_path / "x.npz", **members)
    checkpoint = open_checkpoint(tmp_path / "x.npz")
    assert list(checkpoint.tensors) == ["a"]
    assert checkpoint.notes == ("arrays of text were left out: b, c",)


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(npz(a=np.ones(2)))
    (tmp_path / "two").write_bytes(npy(np.ones(2)))
    assert open_checkpoint(tmp_path / "one").format == "npz"
    assert open_checkpoint(tmp_path / "two").format == "npy"


# Headers that NumPy would not write.


def header(text: str, payload: int = 8, version: bytes = b"\1\0") -> bytes:
    raw = text.encode("latin-1")
    return b"\x93NUMPY" + version + struct.pack("<H", len(raw)) + raw + bytes(payload)


def fields(descr: str = "'<f4'", order: str = "False", shape: str = "(2,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


M, U = MalformedFile, InputError
HOSTILE: dict[str, Case] = {
    "empty": (b"", M, "does not begin as NumPy's"),
    "other magic": (b"\x93NUMPX" + bytes(40), M, "does not begin as NumPy's"),
    "no version": (b"\x93NUMPY", M, "format version"),
    "version 4": (header(fields(), version=b"\4\0"), M, r"format version \[4, 0\] is unknown"),
    "version 1.1": (header(fields(), version=b"\1\1"), M, r"format version \[1, 1\] is unknown"),
    "no length": (b"\x93NUMPY\1\0\x09", M, "header ends early"),
    "header cut short": (header(fields())[:40], M, "header ends early"),
    "header of 2^32-1": (b"\x93NUMPY\2\0" + b"\xff" * 4, M, "a header of 4294967295 bytes"),
    "header of 10001": (header(fields() + " " * 10_000), M, "at most 10000"),
    "no dictionary": (header("'descr'"), M, "not one that NumPy writes"),
    "code": (header(fields(shape="__import__('os').abort()")), M, "not one that NumPy writes"),
    "no shape": (header("{'descr': '<f4', 'fortran_order': False}"), M, "not one that NumPy"),
    "a key twice": (header(fields()[:-2] + "'descr': '<f4'}"), M, "not one that NumPy writes"),
    "a key more": (header(fields()[:-2] + "'x': 1}"), M, "not one that NumPy writes"),
    "two dictionaries": (header(fields().strip() + "{}"), M, "not one that NumPy writes"),
    "spaces": (header("{" + " " * 9000 + "x" + " " * 900 + "}"), M, "not one that NumPy"),
    "nested": (header("(" * 9000), M, "not one that NumPy writes"),
    "order is 1": (header(fields(order="1")), M, "not one that NumPy writes"),
    "no tuple": (header(fields(shape="(2)")), M, r"shape \(2\) is not one"),
    "shape of a list": (header(fields(shape="[2]")), M, "not one that NumPy writes"),
    "negative": (header(fields(shape="(-2,)")), M, "not one that NumPy writes"),
    "two commas": (header(fields(shape="(2,,)")), M, "is not one"),
    "dimension of 2^63": (header(fields(shape=f"({1 << 63},)")), M, "one beyond"),
    "dimension of 40 digits": (header(fields(shape=f"({'9' * 40},)")), M, "is not one"),
    "65 dimensions": (header(fields(shape=f"({'1, ' * 65})")), M, "more than 64 dimensions"),
    "product overflows": (header(fields(shape=f"({1 << 62}, 4)")), M, "and there are 8"),
    "empty beyond memory": (header(fields(shape=f"(0, {1 << 62}, 9)"), 0), M, "too large a shape"),
    "payload cut short": (header(fields(), 7), M, "needs 8 bytes, and there are 7"),
    "trailing data": (header(fields(), 9), M, "needs 8 bytes, and there are 9"),
    "two arrays": (npy(np.ones(2)) * 2, M, "needs 16 bytes"),
    "objects": (npy(np.array([{}, None])), U, "Python objects, which is a pickle"),
    "records": (npy(np.zeros(2, "i4,f4")), U, "an array of records is not supported"),
    "records with objects": (header(fields("[('a', 'O')]")), U, "records is not supported"),
    "complex": (npy(np.zeros(2, "c8")), U, "the element type '<c8' is not supported"),
    "long double": (npy(np.zeros(2, "g")), U, "the element type '<f16' is not supported"),
    "dates": (npy(np.zeros(2, "M8[s]")), U, r"the element type '<M8\[s\]' is not supported"),
    "bfloat16 as void": (npy(np.zeros(2, "V2")), U, "cannot say bfloat16"),
    "float of 1 byte": (header(fields("'<f1'")), U, "the element type '<f1' is not supported"),
    "bool of 4 bytes": (header(fields("'<b4'")), U, "the element type '<b4' is not supported"),
    "unknown type": (header(fields("'f'")), U, "the element type 'f' is not supported"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_arrays(tmp_path: Path, name: str) -> None:
    error = refused(tmp_path / "x.npy", HOSTILE[name])
    assert error.tensor == "x"


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_hostile_arrays_in_an_archive(tmp_path: Path, name: str, method: int) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("good.npy", npy(np.ones(2)))
        archive.writestr("bad.npy", HOSTILE[name][0])
    error = refused(tmp_path / "x.npz", (stream.getvalue(), *HOSTILE[name][1:]))
    assert error.tensor == "bad"


def test_the_plain_header_is_valid(tmp_path: Path) -> None:
    """The hand-built headers are refused for their mutation, not for how they are built."""
    others = [
        "{'shape': (2,), 'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,)}  \n",
        "{'descr':'<f4','fortran_order':False,'shape':(1,2)}",
        fields(shape="(1, 2, )"),
    ]
    for text in (fields(), *others):
        assert reads(tmp_path / "x.npy", header(text)) == {"x": bytes(8)}


def test_a_broken_checksum_and_broken_compression_are_found(tmp_path: Path) -> None:
    content = npz(True, a=np.arange(3000.0))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        info = archive.infolist()[0]
    middle = 30 + len(info.filename) + info.compress_size // 2
    for changed in flips(content, [middle]):
        assert reads(tmp_path / "x.npz", changed) is None


@pytest.mark.parametrize("compress", [False, True])
def test_truncation_at_every_byte(tmp_path: Path, compress: bool) -> None:
    check_truncations(tmp_path / "x.npz", npz(compress, a=np.arange(4.0), b=np.ones(1, "i1")))
    check_truncations(tmp_path / "x.npy", npy(np.arange(4.0)))


def test_every_flip_of_a_header_bit_reads_or_is_refused(tmp_path: Path) -> None:
    array = npy(np.arange(4, dtype=np.int16))
    step = examples(3, 1)  # bytes apart; of each, every bit
    for content in flips(array, range(0, len(array) - 8, step)):
        reads(tmp_path / "x.npy", content)
    for compress in (False, True):
        archive = npz(compress, a=np.arange(4, dtype=np.int16))
        for content in flips(archive, range(0, len(archive), step)):
            reads(tmp_path / "x.npz", content)


@given(text=st.text(st.characters(max_codepoint=255), max_size=200), payload=st.integers(0, 20))
@RELAXED
def test_arbitrary_headers(tmp_path: Path, text: str, payload: int) -> None:
    reads(tmp_path / "x.npy", header(text, payload))
    reads(tmp_path / "x.npy", header(fields(descr=text), payload))
    reads(tmp_path / "x.npy", header(fields(shape=f"({text})"), payload))


def test_bombs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(20_000_000))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(InputError, match=r"a zip bomb: .* bytes would inflate to 160000128"):
        open_checkpoint(path)
    check_cost(path)


def test_a_bomb_that_lies_about_its_size_is_cut_off(tmp_path: Path) -> None:
    """The directory promises 1 MB where the compressed bytes go on for 160."""
    array = npy(np.zeros(125_000))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", array + bytes(159_000_000))
    content = bytearray(stream.getvalue())
    at = content.rindex(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<I", len(array))
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(MalformedFile, match=r"inflates to .* bytes or more and not to 1000128"):
        open_checkpoint(tmp_path / "x.npz").read("a")
    check_cost(tmp_path / "x.npz")


def test_compressible_arrays_of_moderate_size_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(1_000_000))
    assert not open_checkpoint(tmp_path / "x.npz").read("a").data.any()
    assert zip_archive.MAX_FREELY_INFLATED >= 8_000_000
