"""Sources that another process cuts, grows, rewrites or replaces while they are read.

Whenever that happens, the command ends with exit code 3 and leaves nothing; never by a signal, as
a process ends that has mapped a file that is cut, and never with a mixture of two versions.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.dtype import DType
from maxtool.errors import ChangedFile, InputError, MissingFile
from maxtool.weights import open_checkpoint, source_file
from tests.effort import thinned

DATA = Path(__file__).resolve().parents[1] / "data"
TINY = DATA / "tiny-llama"
LONG_AGO = 10**18


def cut(path: Path) -> None:
    os.truncate(path, 100)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"more")


def rewrite(path: Path) -> None:
    """Overwrite with other bytes, of the same number."""
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.write(os.urandom(size))


def replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copyfile(path, other)
    other.replace(path)


CHANGES = (cut, empty, grow, rewrite, replace)


class Meanwhile:
    """Changes a file just before it is read for the time whose number is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.path = path
        self.reads = 0
        self.at = 0
        self.change: Callable[[Path], None] = cut
        for name in ("pread", "preadv"):
            monkeypatch.setattr(source_file.os, name, self._counted(getattr(os, name)))

    def _counted(self, read: Callable[..., object]) -> Callable[..., object]:
        def reading(descriptor: int, *arguments: object) -> object:
            if self.path.exists() and os.path.samestat(os.fstat(descriptor), self.path.stat()):
                self.reads += 1
                if self.reads == self.at:
                    self.change(self.path)
            return read(descriptor, *arguments)

        return reading

    def begin(self, at: int, change: Callable[[Path], None]) -> None:
        self.reads, self.at, self.change = 0, at, change


def copied(folder: Path) -> Path:
    """The tensors of a checkpoint that was written long ago."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(TINY, folder)
    file = folder / "model.safetensors"
    os.utime(file, ns=(LONG_AGO, LONG_AGO))
    return file


COMMANDS = {
    "stats": ("inspect-weights", "SOURCE", "--stats"),
    "sha256": ("inspect-weights", "SOURCE", "--sha256"),
    "values": ("inspect-weights", "SOURCE", "--values", "model.norm.weight[0:8]"),
    "headers": ("inspect-weights", "SOURCE"),
    "gguf": ("convert", "SOURCE", "-o", "OUT.gguf", "--quantize", "Q8_0"),
    "folder": ("convert", "SOURCE", "-o", "OUT", "--dtype", "float16"),
    "compile": ("compile", "SOURCE", "-o", "OUT", "--check"),
}


def run(name: str, folder: Path) -> tuple[int, str]:
    arguments = [word.replace("SOURCE", str(folder / "source")) for word in COMMANDS[name]]
    arguments = [word.replace("OUT", str(folder / "out")) for word in arguments]
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "compile" else ()) for n in COMMANDS]
)
def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    meanwhile = Meanwhile(monkeypatch, copied(tmp_path / "source"))
    meanwhile.begin(0, cut)
    assert run(name, tmp_path)[0] == 0
    reads = meanwhile.reads
    tries = 4 if name == "compile" else 8
    steps = sorted({1 + (reads - 1) * step // (tries - 1) for step in range(tries)})
    for number, at in enumerate(steps):
        for path in tmp_path.glob("out*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        copied(tmp_path / "source")
        meanwhile.begin(at, CHANGES[number % len(CHANGES)])
        code, said = run(name, tmp_path)
        assert code == 3, (at, said)
        assert "Traceback" not in said
        assert os.listdir(tmp_path) == ["source"]  # noqa: PTH208


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("read", ["read", "view", "stored"])
def test_payloads(tmp_path: Path, change: Callable[[Path], None], read: str) -> None:
    """Notice any change between opening a checkpoint and reading it."""
    file = copied(tmp_path / "source")
    checkpoint = open_checkpoint(tmp_path / "source")
    before = checkpoint.read("model.norm.weight").data.copy()
    np.testing.assert_array_equal(checkpoint.view("model.norm.weight").data, before)
    again = open_checkpoint(tmp_path / "source")
    change(file)
    with pytest.raises(ChangedFile, match="changed while it was read") as caught:
        weight = getattr(again, read)("model.norm.weight")
        weight.items(slice(0, 8))
    assert caught.value.file == str(file)
    assert caught.value.exit_code == 3
    with pytest.raises(ChangedFile):
        checkpoint.check_unchanged()


HEADED = ("x.safetensors", "x.gguf", "x.npz", "x.npy", "x.onnx", "x.bin")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", thinned(HEADED, "x.safetensors", "x.gguf", "x.bin"))
def test_headers_of_every_format(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    name: str,
    files: dict[str, bytes],
) -> None:
    file = tmp_path / name
    meanwhile = Meanwhile(monkeypatch, file)
    file.write_bytes(files[name])
    meanwhile.begin(0, change)
    everything(file)
    for at in range(1, meanwhile.reads + 1):
        file.write_bytes(files[name])
        os.utime(file, ns=(LONG_AGO, LONG_AGO))
        meanwhile.begin(at, change)
        with pytest.raises(InputError) as caught:
            everything(file)
        assert isinstance(caught.value, ChangedFile)


def everything(file: Path) -> None:
    checkpoint = open_checkpoint(file)
    for name in checkpoint.tensors:
        checkpoint.read(name)
        checkpoint.stored(name).items(slice(0, 1))
    checkpoint.check_unchanged()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A small file of each format."""
    from tests.weights import onnx_files

    folder = tmp_path_factory.mktemp("files")
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(folder / "x.npz", w=w, t=np.asfortranarray(w))
    np.save(folder / "x.npy", w)
    model = onnx_files.model(onnx_files.raw(DType.float32), onnx_files.typed(DType.int64))
    (folder / "x.onnx").write_bytes(model.SerializeToString())
    shutil.copyfile(TINY / "model.safetensors", folder / "x.safetensors")
    assert CliRunner().invoke(app, ["convert", str(TINY), "-o", str(folder / "x.gguf")])
    shutil.copyfile(DATA / "pytorch" / "kinds.pt", folder / "x.bin")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    file = copied(tmp_path / "source")
    checkpoint = open_checkpoint(tmp_path / "source")
    file.unlink()
    with pytest.raises(MissingFile):
        checkpoint.read("model.norm.weight")
    with pytest.raises(MissingFile):
        checkpoint.check_unchanged()
