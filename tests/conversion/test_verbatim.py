"""Tensors that are written as they are stored are copied through little memory, and looked at."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare, verbatim
from maxtool.conversion.edit_request import TensorEdits
from maxtool.conversion.payloads import PayloadMaker
from maxtool.conversion.verbatim import stored_runs
from maxtool.errors import ChangedFile, VerificationFailed
from maxtool.recipe.quantized_types import QuantizedTypes
from maxtool.weights import TensorSpec, open_checkpoint
from maxtool.weights.formats import payload

DATA = Path(__file__).resolve().parents[1] / "data"
LLAMA = DATA / "tiny-llama"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Tensors of several types and shapes."""
    file, random = tmp_path / "source.safetensors", np.random.default_rng(0)
    wide = random.standard_normal((37, 24), np.float32)
    save_file(
        {
            "bfloat16": wide.astype(ml_dtypes.bfloat16),
            "float32": wide,
            "integers": np.arange(1000, dtype=np.int8),
            "nothing": np.empty((3, 0), np.float32),
            "scalar": np.array(3.5, np.float32),
            "stack": random.standard_normal((3, 5, 7)).astype(np.float16),
        },
        file,
    )
    return file


def converted(source: Path, output: Path, **options: object) -> list[str]:
    request = Request(source, output, force=True, plain=True, **options)
    return convert(prepare(request)).warnings


@pytest.mark.parametrize(
    ("piece", "part"), [(8, 1), (96, 200), (96, 1 << 23), (1 << 19, 1), (1 << 19, 1 << 23)]
)
@pytest.mark.parametrize("suffix", ["safetensors", "gguf", "npz"])
@pytest.mark.parametrize("sha256", [False, True])
def test_pieces_of_any_size_give_every_byte(
    source: Path, monkeypatch: pytest.MonkeyPatch, piece: int, part: int, suffix: str, sha256: bool
) -> None:
    monkeypatch.setattr(verbatim, "PIECE_BYTES", piece)
    monkeypatch.setattr(verbatim, "PART_BYTES", part)
    output = source.with_name(f"output.{suffix}")
    edits = TensorEdits(exclude=("bfloat16",) if suffix == "npz" else ())
    converted(source, output, edits=edits, sha256=sha256, verify=True)
    before, after = open_checkpoint(source), open_checkpoint(output)
    assert {*before.tensors} - {*after.tensors} == ({"bfloat16"} if suffix == "npz" else set())
    for name in after.tensors:
        assert after.read(name).data.tobytes() == before.read(name).data.tobytes()


def test_odd_values_are_counted_through_all_pieces(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbatim, "PIECE_BYTES", 64)
    arrays = load_file(source)
    arrays["bfloat16"][[0, 20, 36], 5] = np.nan
    arrays["stack"][2, 4] = -np.inf
    save_file(arrays, source)
    warnings = converted(source, source.with_name("output.gguf"))
    assert warnings == ["bfloat16 holds 3 NaN", "stack holds 7 infinite"]


def test_a_source_that_is_cut_meanwhile_is_an_error(source: Path) -> None:
    output = source.with_name("output.safetensors")
    planned = prepare(Request(source, output, plain=True))
    os.truncate(source, source.stat().st_size - 16)
    with pytest.raises(ChangedFile):
        convert(planned)
    assert not output.exists()


def test_a_source_that_is_cut_between_two_pieces_is_an_error(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbatim, "PIECE_BYTES", 64)
    output, counted = source.with_name("output.safetensors"), verbatim.counted

    def cut(piece: np.ndarray) -> object:
        os.truncate(source, 2000)
        return counted(piece)

    planned = prepare(Request(source, output, plain=True))
    monkeypatch.setattr(verbatim, "counted", cut)
    with pytest.raises(ChangedFile):
        convert(planned)
    assert not output.exists()


def test_no_part_is_being_written_once_the_file_is_closed(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupt where progress is told, while other parts are being written."""
    monkeypatch.setattr(verbatim, "PART_BYTES", 1)
    ended, write_at = threading.Event(), payload._write_at

    def write(descriptor: int, start: int, offset: int, data: memoryview) -> None:
        assert not ended.is_set()
        write_at(descriptor, start, offset, data)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(payload, "_write_at", write)
    before, output = threading.active_count(), source.with_name("output.safetensors")
    planned = prepare(Request(source, output, plain=True, jobs=4))
    with pytest.raises(KeyboardInterrupt) as caught:
        convert(planned, interrupt)
    ended.set()
    assert caught.tb  # keeps all frames, and what they hold
    assert threading.active_count() == before
    assert not output.exists()


def test_what_was_written_otherwise_is_found(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_at = payload._write_at

    def spoil(descriptor: int, start: int, offset: int, data: memoryview) -> None:
        write_at(descriptor, start, offset, memoryview(bytes(len(data))))

    monkeypatch.setattr(payload, "_write_at", spoil)
    with pytest.raises(VerificationFailed, match="read back"):
        converted(source, source.with_name("output.safetensors"), verify=True)


def test_writing_goes_on_where_the_system_stopped(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:7], at))
    converted(source, output := source.with_name("output.safetensors"))
    before, after = load_file(source), load_file(output)
    assert all(after[name].tobytes() == array.tobytes() for name, array in before.items())


def test_only_rows_that_follow_each_other_are_copied(tmp_path: Path) -> None:
    """Leave out two matrices of a Llama, whose rows are put in another order."""
    planned = prepare(Request(LLAMA, tmp_path / "a.gguf"))
    runs = {
        spec.name: stored_runs(planned.checkpoint, planned.plan, spec, origin)
        for spec, origin in planned.tensors
    }
    found = {name.partition("0.")[2]: found is None for name, found in runs.items() if "0." in name}
    moved = {name for name, is_moved in found.items() if is_moved}
    assert {"attn_q.weight", "attn_k.weight"} <= moved
    assert {"attn_v.weight", "ffn_up.weight"}.isdisjoint(moved)


def test_other_types_are_not_copied(source: Path) -> None:
    checkpoint = open_checkpoint(source)
    maker = PayloadMaker(checkpoint, None, QuantizedTypes({}, []), 1, allow_nonfinite=False)
    stored = checkpoint.tensors["bfloat16"]
    as_float32 = TensorSpec("a", checkpoint.tensors["float32"].dtype, stored.shape)
    with maker.payloads([(as_float32, "bfloat16"), (as_float32, "float32")]) as payloads:
        cast, copy = payloads
        assert not isinstance(cast, payload.Placed)
        assert isinstance(copy, payload.Placed)
