"""Written safetensors files are opened by the library before they get their names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxtool.cli.app import app
from maxtool.conversion import Request, convert, prepare
from maxtool.conversion.verification import verify_safetensors
from maxtool.dtype import DType
from maxtool.errors import VerificationFailed
from maxtool.weights import TensorSpec
from maxtool.weights.formats import safetensors

SOURCE = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"


def cut_off(content: bytes) -> bytes:
    return content[:-4]


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    """A change of the header, of which the payloads know nothing."""

    def edit(content: bytes) -> bytes:
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        change(header)
        raw = json.dumps(header).encode()
        return len(raw).to_bytes(8, "little") + raw + content[end:]

    return edit


def renamed(header: dict[str, Any]) -> None:
    header["another"] = header.pop("model.norm.weight")


def retyped(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["dtype"] = "I32"


def reshaped(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["shape"].append(1)


DAMAGE = {
    "cut off": (cut_off, "cannot read the output", []),
    "renamed": (
        edited(renamed),
        "reads other tensors",
        ["another: F32 [40], not in it", "model.norm.weight: missing, not F32 [40]"],
    ),
    "retyped": (
        edited(retyped),
        "reads other tensors",
        ["model.norm.weight: I32 [40], not F32 [40]"],
    ),
    "reshaped": (
        edited(reshaped),
        "reads other tensors",
        ["model.norm.weight: F32 [40, 1], not F32 [40]"],
    ),
}


@pytest.fixture
def damaging(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A writer whose files are not what they should be."""
    write = safetensors.write

    def damaged(path: Path, *arguments: Any) -> None:
        write(path, *arguments)
        path.write_bytes(DAMAGE[request.param][0](path.read_bytes()))

    monkeypatch.setattr(safetensors, "write", damaged)


@pytest.mark.parametrize("name", ["out", "out.safetensors"])
@pytest.mark.parametrize(
    ("damaging", "what", "problems"),
    [(name, what, problems) for name, (_, what, problems) in DAMAGE.items()],
    indirect=["damaging"],
    ids=[*DAMAGE],
)
@pytest.mark.usefixtures("damaging")
def test_what_the_library_does_not_read_is_not_left_behind(
    tmp_path: Path, name: str, what: str, problems: list[str]
) -> None:
    with pytest.raises(VerificationFailed, match=what) as caught:
        convert(prepare(Request(SOURCE, tmp_path / name)))
    assert list(caught.value.problems) == problems
    assert caught.value.file == str(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damaging", ["cut off"], indirect=True)
@pytest.mark.usefixtures("damaging")
def test_the_command_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        app(["convert", str(SOURCE), "-o", str(tmp_path / "out")])
    assert end.value.code == VerificationFailed.exit_code
    assert "cannot read the output" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_the_library_knows_every_type_that_is_written(tmp_path: Path, dtype: str) -> None:
    path, spec = tmp_path / "a.safetensors", TensorSpec("a", DType(dtype), (0, 3))
    path.write_bytes(safetensors.header([spec])[0])
    verify_safetensors(path, [spec], path)
