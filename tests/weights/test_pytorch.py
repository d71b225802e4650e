"""PyTorch checkpoints: what torch wrote, and hostile ones."""

from __future__ import annotations

import json
import pickle as their_pickle
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.errors import InputError, MalformedFile
from maxtool.weights import open_checkpoint
from maxtool.weights.formats import pickle_reader, pytorch
from tests.effort import examples
from tests.weights import pickles as p
from tests.weights.hostile import (
    Case,
    check_cost,
    check_truncations,
    flips,
    read_all,
    reads,
    refused,
)

DATA = Path(__file__).resolve().parents[1] / "data" / "pytorch"
RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

BASE = np.arange(12, dtype=np.float32)
VIEWS = {
    "base": BASE,
    "tail": BASE[4:],
    "transposed": BASE.reshape(3, 4).T,
    "every other": BASE[1::2],
    "middle": BASE.reshape(3, 4)[1:, 1:3],
    "expanded": np.array([[0, 1, 2], [0, 1, 2]], np.float32),
    "tagged": BASE[:3],
}
METADATA = {
    "list.1": 5,
    "epoch": 3,
    "name": "räv",
    "lr": 0.5,
    "losses": [3.5, 2.5],
    "shape": (2, 3),
    "dtype": "torch.bfloat16",
    "device": "cpu",
    "nothing": None,
    "big": 1 << 70,
    "raw": "\x00ÿ",
}


@pytest.mark.parametrize("name", ["kinds.pt", "protocol5.pt"])
def test_reads_what_torch_wrote(name: str) -> None:
    checkpoint = open_checkpoint(DATA / name)
    assert (checkpoint.format, checkpoint.metadata) == ("pytorch", METADATA)
    for dtype in DType:
        weight = checkpoint.read(f"types.{dtype.value}")
        assert weight.dtype is dtype
        np.testing.assert_array_equal(weight.data, np.ones(3).astype(dtype.to_numpy()))
    for view, expected in VIEWS.items():
        data = checkpoint.read(f"views.{view}").data
        assert data.flags.c_contiguous
        np.testing.assert_array_equal(data, expected, err_msg=view)
    assert checkpoint.read("parameter").data.tolist() == [0, 1]
    assert checkpoint.read("scalar").data.tolist() == 7
    assert checkpoint.read("empty").shape == (0, 3)
    assert checkpoint.read("7").data.tolist() == [1]
    assert checkpoint.read("list.0").data.tolist() == [0]
    assert checkpoint.read("norm.num_batches_tracked").dtype is DType.int64
    assert len(checkpoint.tensors) == 35


@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.value)
def test_strides_of_every_type(tmp_path: Path, dtype: DType) -> None:
    values = np.arange(1, 7).reshape(2, 3).astype(dtype.to_numpy())
    kind = f"ctorch\n{dtype.value}\n".encode()
    untyped = p.storage(count=values.nbytes, kind=b"ctorch.storage\nUntypedStorage\n")
    parts = (untyped, p.number(0), p.numbers(3, 2), p.numbers(1, 3), b"\x89", p.ORDERED, kind)
    content = p.dictionary({"a": b"ctorch._utils\n_rebuild_tensor_v3\n" + p.grouped(*parts) + b"R"})
    (tmp_path / "x.pt").write_bytes(p.archive(p.pickle(content), {"0": values.tobytes()}))
    np.testing.assert_array_equal(open_checkpoint(tmp_path / "x.pt").read("a").data, values.T)


def test_packed_tensors_are_views_of_the_file() -> None:
    data = open_checkpoint(DATA / "kinds.pt").read("views.tail").data
    assert data.base is not None
    assert not data.flags.writeable


def test_a_tensor_alone_has_the_name_of_its_file() -> None:
    assert open_checkpoint(DATA / "tensor.pt").read("tensor").data.tolist() == [0, 1, 2]


OTHER_FILES = [
    ("legacy.pt", MalformedFile, "as PyTorch wrote before 1.6; pickles are never read"),
    ("script.pt", InputError, "a TorchScript archive"),
    ("module.pt", InputError, "torch.nn.modules.linear.Linear"),
]


@pytest.mark.parametrize(("name", "kind", "message"), OTHER_FILES)
def test_what_torch_wrote_and_is_refused(name: str, kind: type[InputError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        open_checkpoint(DATA / name)
    assert caught.value.hint


def test_nothing_that_a_pickle_names_is_imported(tmp_path: Path) -> None:
    content = p.checkpoint(a=b"cantigravity\nfly\n)R", b=p.tensor())
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"antigravity\.fly"):
        open_checkpoint(tmp_path / "x.pt")
    assert "antigravity" not in sys.modules


def test_every_foreign_name_is_told(tmp_path: Path) -> None:
    content = p.checkpoint(a=b"cos\nsystem\n(" + p.text("true") + b"tR", b=b"cevil\nthing\n")
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(InputError, match="nothing is imported here") as caught:
        open_checkpoint(tmp_path / "x.pt")
    assert caught.value.problems == ("os.system", "evil.thing")


@pytest.mark.parametrize("protocol", range(6))
def test_a_real_attack(tmp_path: Path, protocol: int) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "touched",)

    content = p.archive(their_pickle.dumps({"a": Attack()}, protocol))
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(InputError) as caught:
        open_checkpoint(tmp_path / "x.pt")
    assert not (tmp_path / "touched").exists()
    if protocol > 1:
        assert "pathlib" in str(caught.value)


PLAIN: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=st.dictionaries(st.text(), PLAIN, max_size=4), protocol=st.integers(2, 5))
@RELAXED
def test_plain_values_are_those_of_pickle(value: dict[str, Any], protocol: int) -> None:
    from maxtool.weights.cursor import Cursor

    content = their_pickle.dumps(value, protocol)
    assert pickle_reader.read(Cursor(content, Path("x")), {}, lambda _: None) == value


# Checkpoints that torch would not write.

M, U = MalformedFile, InputError
N, S = p.number, p.numbers
LOOP = b"]q\x00h\x00a"
DOUBLED = b"](" + p.text("x") * 2 + b"e" + b"q\x00" + b"](h\x00h\x00eq\x00" * 30


def held(**changes: Any) -> bytes:
    return p.checkpoint(a=p.tensor(**changes))


def kind(module: str, name: str) -> bytes:
    return p.checkpoint(a=p.tensor(p.storage(kind=f"c{module}\n{name}\n".encode())))


def raw(content: bytes, **others: Any) -> bytes:
    return p.archive(p.pickle(content), **others)


def typed(dtype: bytes, count: int = 8) -> bytes:
    """A tensor over bytes, of a type that is named beside it."""
    untyped = p.storage(count=count, kind=b"ctorch.storage\nUntypedStorage\n")
    parts = p.grouped(untyped, N(0), S(2), S(1), b"\x89", p.ORDERED, dtype)
    return p.checkpoint(a=b"ctorch._utils\n_rebuild_tensor_v3\n" + parts + b"R")


HOSTILE: dict[str, Case] = {
    "no storage": (
        p.archive(p.pickle(p.dictionary({"a": p.tensor()})), {}),
        M,
        "no entry 'data/0'",
    ),
    "storage outside": (
        p.checkpoint(a=p.tensor(p.storage("../../../../etc/passwd"))),
        M,
        "no entry 'data/../../../../etc/passwd'",
    ),
    "storage too long": (p.checkpoint(a=p.tensor(p.storage(count=3))), M, "12 bytes, for .* has 8"),
    "storage too short": (p.checkpoint(a=p.tensor(p.storage(count=1))), M, "4 bytes, for .* has 8"),
    "2^62 elements": (p.checkpoint(a=p.tensor(p.storage(count=1 << 62))), M, "for which the arch"),
    "negative count": (p.checkpoint(a=p.tensor(p.storage(count=-2))), M, "-8 bytes, for which"),
    "count of text": (
        raw(p.grouped(p.text("storage"), *[p.text("x")] * 4) + b"Q"),
        M,
        "not a storage",
    ),
    "no persistent id": (raw(p.text("x") + b"Q"), M, "a persistent id that is not a tuple"),
    "short persistent id": (raw(p.grouped(p.text("storage")) + b"Q"), M, "that is not a storage"),
    "bare storage": (p.checkpoint(a=p.storage()), U, "a bare storage"),
    "complex": (kind("torch", "ComplexFloatStorage"), U, "'torch.ComplexFloatStorage' is not supp"),
    "quantized": (kind("torch", "QInt8Storage"), U, "'torch.QInt8Storage' is not supported"),
    "a dtype as storage": (kind("torch", "float32"), U, "'torch.float32' is not supported"),
    "a foreign storage": (kind("os", "FloatStorage"), U, "os.FloatStorage"),
    "untyped": (
        p.checkpoint(a=p.tensor(p.storage(count=8, kind=b"ctorch.storage\nUntypedStorage\n"))),
        M,
        "a tensor without a storage",
    ),
    "4-bit floats": (typed(b"ctorch\nfloat4_e2m1fn_x2\n"), U, "float4_e2m1fn_x2' is not supported"),
    "no dtype": (typed(b"N"), M, "without a storage or a dtype"),
    "dtype too wide": (typed(b"ctorch\nfloat64\n"), M, "needs element 1 of a storage of 1"),
    "beyond the storage": (held(size=S(3)), M, "needs element 2 of a storage of 2"),
    "offset beyond": (held(offset=N(1)), M, "needs element 2 of a storage of 2"),
    "stride beyond": (held(stride=S(2)), M, "needs element 2 of a storage of 2"),
    "product overflows": (held(size=S(1 << 62, 8), stride=S(8, 1)), M, "of a storage of 2"),
    "negative offset": (held(offset=N(-1)), M, "not a whole number"),
    "negative stride": (held(stride=S(-1)), M, "not a whole number"),
    "negative size": (held(size=S(-2)), M, "not a whole number"),
    "size of booleans": (held(size=p.grouped(b"\x88")), M, "not a whole number"),
    "size is a list": (held(size=b"]"), M, "not a tuple of at most 64 numbers"),
    "65 dimensions": (held(size=S(*[1] * 65), stride=S(*[1] * 65)), M, "at most 64 numbers"),
    "sizes without strides": (held(size=S(1, 2)), M, "2 sizes and 1 strides"),
    "expanded to 2^40": (held(size=S(1 << 40), stride=S(0)), M, "expanded far beyond"),
    "empty beyond memory": (held(size=S(0, 1 << 62, 9), stride=S(1, 1, 1)), M, "too large a shape"),
    "tensor without arguments": (raw(p.REBUILD + b")R"), M, "an operand of the wrong type"),
    "tensor of text": (raw(p.REBUILD + p.grouped(p.text("x")) + b"R"), M, "without a storage"),
    "tensor of three": (raw(p.REBUILD + p.grouped(p.storage()) + b"R"), M, "without offset"),
    "arguments of a list": (raw(p.REBUILD + b"]R"), M, "is not callable"),
    "a dtype is called": (raw(b"ctorch\nfloat32\n)R"), M, "the called object is not callable"),
    "text is called": (raw(p.text("x") + b")R"), M, "the called object is not callable"),
    "size of nothing": (raw(b"ctorch\nSize\n)R"), M, "a torch.Size of a value that is not a tuple"),
    "parameter of nothing": (
        raw(b"ctorch._utils\n_rebuild_parameter\n)R"),
        M,
        "a call without arguments",
    ),
    "subclass": (
        raw(b"ctorch._tensor\n_rebuild_from_type_v2\n(" + p.REBUILD + b"cevil\nTensor\n)}tR"),
        U,
        "evil.Tensor",
    ),
    "type within type": (
        raw(b"ctorch._tensor\n_rebuild_from_type_v2\nq\0(h\0ctorch\nTensor\n)}tR"),
        M,
        "a tensor of another class",
    ),
    "empty pickle": (p.archive(b""), M, "the pickle ends early"),
    "no end": (p.archive(b"\x80\x02}"), M, "the pickle ends early"),
    "nothing is left": (p.archive(b"."), M, "nothing is on the stack"),
    "unknown opcode": (raw(b"\xff"), M, r"opcode b'\\xff' is not read"),
    "protocol 0": (p.archive(b"I1\n."), M, "opcode b'I' is not read"),
    "extension": (raw(b"\x82\x01"), M, r"opcode b'\\x82' is not read"),
    "text beyond the end": (
        raw(b"X\xff\xff\xff\x7f"),
        M,
        "expected 2147483647 bytes in a unicodestring4, but",
    ),
    "text of 2^64-1": (
        raw(b"\x8d" + b"\xff" * 8),
        M,
        "byte count > sys.maxsize: 18446744073709551615",
    ),
    "text not UTF-8": (raw(b"X\x01\0\0\0\xff"), M, "text that is not UTF-8"),
    "number cut short": (p.archive(b"J\0"), M, "not enough data in stream to read int4"),
    "global without end": (p.archive(b"ctorch"), M, "a name of more than 256 bytes"),
    "global of numbers": (raw(b"K\1K\1\x93"), M, "a name that is not a text"),
    "global too long": (raw(p.text("x" * 600) + p.text("y") + b"\x93"), M, "more than 256 bytes"),
    "pop of nothing": (raw(b"0"), M, "nothing is on the stack"),
    "pop below a mark": (raw(b"K\1(0"), M, "nothing is on the stack"),
    "no mark": (raw(b"t"), M, "no mark is on the stack"),
    "memo of nothing": (raw(b"h\7"), M, "nothing is remembered as 7"),
    "append to a number": (raw(b"K\1K\1a"), M, "int where list must be"),
    "item of a list": (raw(b"]K\1K\1s"), M, "list where dict must be"),
    "key without a value": (raw(b"}(K\1u"), M, "a key without a value"),
    "key of a list": (raw(b"}]K\1s"), M, "a dictionary key of type list"),
    "key of a deep tuple": (raw(b"}" + b")" + b"\x85" * 100_000 + b"K\1s"), M, "of type tuple"),
    "huge key": (raw(b"}" + N(1 << 61) + b"K\1s"), M, "neither text nor a small integer"),
    "list in itself": (raw(LOOP), M, "nested deeper than 64"),
    "lists of lists of lists": (raw(DOUBLED), M, "more than 131072 values"),
    "too deep": (raw(b"]" * 100 + b"a" * 99), M, "nested deeper than 64"),
    "one name twice": (raw(b"}(K\1" + p.tensor() + p.text("1") + p.tensor() + b"u"), M, "twice"),
    "no folder": (p.archive(p.pickle(b"}"), folder="a/b"), M, "0 entries are a data.pkl"),
    "big-endian": (raw(b"}", byteorder=b"big"), U, "a big-endian checkpoint"),
    "middle-endian": (raw(b"}", byteorder=b"middle"), M, "the byte order is 'middle'"),
    "compressed": (raw(b"}", method=zipfile.ZIP_DEFLATED), U, "'data.pkl' is compressed"),
    "program": (raw(b"}", code__x=b""), U, "a TorchScript archive"),
    "constants": (raw(b"}", **{"constants.pkl": b""}), U, "a TorchScript archive"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_checkpoints(tmp_path: Path, name: str) -> None:
    refused(tmp_path / "x.pt", HOSTILE[name])


def test_two_pickles_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as result:
        result.writestr("a/data.pkl", p.pickle(b"}"))
        result.writestr("b/data.pkl", p.pickle(b"}"))
    with pytest.raises(MalformedFile, match=r"2 entries are a data\.pkl in a folder"):
        open_checkpoint(tmp_path / "x.pt")


def test_the_plain_cases_of_the_table_are_valid(tmp_path: Path) -> None:
    """The hand-built files are refused for their mutation, not for how they are built."""
    one = {"a": p.ONE}
    path = tmp_path / "x.pt"
    assert reads(path, held()) == one
    assert reads(path, typed(b"ctorch\nfloat32\n")) == one
    assert reads(path, raw(b"}", byteorder=b"little")) == {}
    assert reads(path, held(size=S(0), offset=N(9))) == {"a": b""}
    assert reads(path, held(size=S(2, 1), stride=S(1, 1 << 80))) == one
    assert reads(path, held(size=S(3), stride=S(0))) == {"a": p.ONE[:4] * 3}
    assert reads(path, raw(b"]" * 60 + b"a" * 59)) == {}


SMALL = p.checkpoint(a=p.tensor(), b=b"K\1")


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    check_truncations(tmp_path / "x.pt", SMALL)


def test_a_pickle_cut_short_at_every_byte_is_refused(tmp_path: Path) -> None:
    content = p.pickle(p.dictionary({"a": p.tensor(), "b": b"K\1"}))
    for length in range(len(content)):
        assert reads(tmp_path / "x.pt", p.archive(content[:length])) is None


def test_every_flip_of_a_bit_reads_or_is_refused(tmp_path: Path) -> None:
    step = examples(4, 1)  # bytes apart
    for flipped in flips(SMALL, range(0, len(SMALL), step)):
        reads(tmp_path / "x.pt", flipped)
    theirs = (DATA / "tensor.pt").read_bytes()
    for flipped in flips(theirs, range(0, len(theirs), step), bits=(1, 6)):
        reads(tmp_path / "x.pt", flipped)


OPCODES = st.sampled_from([bytes([code]) for code in range(256)])
PARTS = st.sampled_from(
    [p.tensor(), p.storage(), p.ORDERED, p.text("a"), N(3), b"(", b"q\0", b"h\0"]
)


@given(parts=st.lists(OPCODES | PARTS, max_size=30))
@RELAXED
def test_arbitrary_pickles(tmp_path: Path, parts: list[bytes]) -> None:
    reads(tmp_path / "x.pt", raw(b"".join(parts)))


def widely_nested() -> bytes:
    """Lists that hold the one before a hundred times each."""
    return b"]q\0" + (b"](" + b"h\0" * 100 + b"eq\0") * 60


BOMBS = {
    "operations": (b"}" * (pickle_reader.MAX_OPCODES + 9), "more than 393216 operations"),
    "text": (p.text("ab") * 400_000, "more than 393216 operations"),
    "remembered": (b"".join(b"]r" + struct.pack("<I", i) for i in range(262_200)), "operations"),
    "length": (b"X" + struct.pack("<I", 1 << 24) + bytes(1 << 24), "a pickle of 16777"),
    "nested": (widely_nested(), "more than 131072 values"),
    "doubled": (DOUBLED, "more than 131072 values"),
    "long names": (
        p.tensor() + b"q\0" + (b"}" + p.text("n" * 1000) + b"h\0sq\0") * 6 + b"h\0",
        "longer than 4096",
    ),
    "many names": (
        p.tensor() + b"q\0](" + b"h\0" * 1000 + b"eq\0}" + p.text("n" * 4000) + b"h\0sq\0"
        b"](" + b"h\0" * 100 + b"e",
        "names longer together",
    ),
    "names": (
        b"".join(map(p.text, map(str, range(50_000)))) + b"\x93" * 25_000,
        "nothing is imported",
    ),
    "text again and again": (
        p.text("x" * 1_000_000) + b"q\0]((" + b"h\0" * 100_000 + b"t)e",
        "more than 131072 values",
    ),
}


# Those that reach a limit which others reach.
ALIKE = {"text", "remembered", "nested", "text again and again"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in BOMBS],
)
def test_bombs(tmp_path: Path, name: str) -> None:
    content, message = BOMBS[name]
    (tmp_path / "x.pt").write_bytes(raw(content))
    with pytest.raises(InputError, match=message):
        read_all(tmp_path / "x.pt")
    check_cost(tmp_path / "x.pt")


# Folders of Hugging Face.


def state_dict(**names: float) -> bytes:
    storages = {name: struct.pack("<2f", value, value) for name, value in names.items()}
    content = p.dictionary({name: p.tensor(p.storage(name)) for name in names})
    return p.archive(p.pickle(content), storages)


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(state_dict(a=1))
    (tmp_path / "training_args.bin").write_bytes(b"\x80\x02.")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for path in (tmp_path, tmp_path / "pytorch_model.bin"):
        checkpoint = open_checkpoint(path)
        assert (checkpoint.format, list(checkpoint.tensors)) == ("pytorch", ["a"])
        assert checkpoint.config == {"model_type": "llama"}
        assert path in checkpoint.protected


def test_safetensors_come_first(tmp_path: Path) -> None:
    import safetensors.numpy

    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    safetensors.numpy.save_file({"a": np.ones(1)}, tmp_path / "model.safetensors")
    assert open_checkpoint(tmp_path).format == "safetensors"


def sharded(folder: Path, **weight_map: str) -> Path:
    (folder / "pytorch_model-00001-of-00002.bin").write_bytes(state_dict(a=1, b=2))
    (folder / "pytorch_model-00002-of-00002.bin").write_bytes(state_dict(c=3))
    shards = {"a": "00001", "b": "00001", "c": "00002"}
    right = {name: f"pytorch_model-{part}-of-00002.bin" for name, part in shards.items()}
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {**right, **weight_map}}))
    return index


def test_shards(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    (tmp_path / "pytorch_model-00003-of-00003.bin").write_bytes(b"")
    (tmp_path / "optimizer.bin").write_bytes(b"")
    for path in (tmp_path, index):
        checkpoint = open_checkpoint(path)
        read = {name: checkpoint.read(name).data.tolist() for name in checkpoint.tensors}
        assert read == {"a": [1, 1], "b": [2, 2], "c": [3, 3]}
        assert len(checkpoint.notes) == 1
        assert "pytorch_model-00003-of-00003.bin" in checkpoint.notes[0]


BAD_INDEXES = [
    ({"c": "../other.bin"}, "outside its folder"),
    ({"d": "pytorch_model-00001-of-00002.bin"}, "are not in their shards"),
    ({"c": "model.safetensors"}, "are missing|several formats"),
]


@pytest.mark.parametrize(("change", "message"), BAD_INDEXES)
def test_bad_indexes(tmp_path: Path, change: dict[str, str], message: str) -> None:
    index = sharded(tmp_path, **change)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=message):
        open_checkpoint(index)


def test_the_limits_are_far_from_real_files() -> None:
    """A tensor takes some 30 operations and 150 bytes; 7000 are in the largest state dicts."""
    assert pickle_reader.MAX_OPCODES > 30 * 13_000
    assert pickle_reader.MAX_PICKLE_BYTES > 400 * 13_000
    assert pytorch.MAX_VALUES > 100_000
