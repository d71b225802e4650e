"""A model on a server of this machine, and commands that are given its URL."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from tests.weights.range_server import Handler, Server, serve

MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"
WEIGHTS = "model.safetensors"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODEL, tmp_path / "site" / "model"))


@pytest.fixture
def server(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAXTOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("maxtool.weights.remote.patience.WAITS", (0.0, 0.0))
    with serve(model.parent, tagged) as running:
        yield running


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    output = tmp_path_factory.mktemp("expected") / "out.gguf"
    assert run("convert", str(MODEL), "-o", str(output)).exit_code == 0
    return output.read_bytes()


def tagged(handler: Handler, data: bytes, start: int, last: int, **more: object) -> None:
    """Answer with an ETag, and as RFC 9110 has it to requests of a range of another version."""
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    if handler.headers.get("If-Range", tag) != tag:
        handler.send(200, data, ETag=tag, **more)
    elif start > last:
        handler.refuse(416, Content_Range=f"bytes */{len(data)}", ETag=tag)
    else:
        span = f"bytes {start}-{last}/{len(data)}"
        handler.send(206, data[start : last + 1], Content_Range=span, ETag=tag, **more)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert "sesame" not in result.output
    return result


def convert(url: str, *more: str) -> Result:
    return run("convert", url, "-o", "out.gguf", "--json", "--force", *more)


def asked(server: Server, name: str = WEIGHTS) -> list[str]:
    """The ranges that were asked for of a file, but for the first byte, which tells its version."""
    spans = [
        {key.lower(): value for key, value in sent.items()}.get("range", "all")
        for path, sent in server.asked
        if path.partition("?")[0].endswith(name)
    ]
    return [span for span in spans if span != "bytes=0-0"]


def incomplete(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "cache").rglob("*.incomplete"), *(tmp_path / "cache").rglob("*.new")]


def is_weights(blob: Path) -> bool:
    return blob.stat().st_size == (MODEL / WEIGHTS).stat().st_size


def page(handler: Handler, *_: object) -> None:
    handler.send(200, b"<html>log in</html>", Content_Type="text/html; charset=utf-8")
