"""``--verify`` and ``--sha256``: what was written is read again, and can be checked later."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.conversion import Request, engine, prepare
from maxtool.errors import ChangedFile, VerificationFailed

MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"
OUTPUTS = [
    ["m.gguf"],
    ["m.gguf", "--quantize", "Q8_0"],
    ["m.gguf", "--split-max-size", "50K"],
    ["m"],
    ["m", "--shard-size", "50K"],
    ["m.safetensors", "--shard-size", "50K", "--dtype", "bfloat16"],
    ["m.npz"],
    ["m.npz", "--no-recipe", "--cast", "*norm*=float16"],
]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


@pytest.mark.parametrize("arguments", OUTPUTS, ids=" ".join)
def test_outputs_are_read_back_and_listed(tmp_path: Path, arguments: list[str]) -> None:
    output, *options = arguments
    command = (MODEL, "-o", tmp_path / output, *options, "--verify", "--sha256", "--json")
    planned = json.loads(run(*command, "--dry-run").stdout)
    for again in ([], ["--force"]):
        done = run(*command, *again)
        assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["verified"]
    folder = tmp_path / output if (tmp_path / output).is_dir() else tmp_path
    written = {file.name: file.stat().st_size for file in folder.iterdir()}
    assert content["files"] == planned["files"] == written
    sums = "SHA256SUMS" if folder != tmp_path else f"{output}.sha256"
    assert content["sha256"].keys() == written.keys() - {sums}
    subprocess.run(["sha256sum", "--strict", "-c", sums], cwd=folder, check=True)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-200] ^= 1  # in an archive, the last array's checksum is wrong too
    path.write_bytes(data)


def another(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"token_embd", b"token_embx").replace(b"lm_head", b"lm_heax"))


def test_a_source_that_changes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the source, which is read a second time, rather than the output."""
    source, write = tmp_path / "a.gguf", engine._write
    engine.convert(prepare(Request(MODEL, source)))

    def changed(*arguments: Any, **options: Any) -> Any:
        digest = write(*arguments, **options)
        os.utime(source, (1, 1))
        return digest

    monkeypatch.setattr(engine, "_write", changed)
    planned = prepare(Request(source, tmp_path / "m.npz", plain=True, verify=True))
    with pytest.raises(ChangedFile, match=r"a\.gguf"):
        engine.convert(planned)
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]


@pytest.mark.parametrize("damage", [cut, flipped, another])
@pytest.mark.parametrize("output", ["m.gguf", "m", "m.npz"])
def test_damage_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, damage: Callable[[Path], None]
) -> None:
    write = engine._write

    def damaged(conversion: Any, file: Any, path: Path, *rest: Any, hashed: bool) -> Any:
        digest = write(conversion, file, path, *rest, hashed=hashed)
        if output == "m.npz" and damage is flipped:
            data = path.read_bytes()
            path.write_bytes(data[:600] + bytes([data[600] ^ 1]) + data[601:])
        else:
            damage(path)
        return digest

    monkeypatch.setattr(engine, "_write", damaged)
    planned = prepare(Request(MODEL, tmp_path / output, verify=True))
    with pytest.raises(VerificationFailed):
        engine.convert(planned)
    assert list(tmp_path.iterdir()) == []
