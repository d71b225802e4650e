"""Sources and outputs in Azure's Blob Storage, through adlfs and a server on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from tests.cli.blob_server import CONTAINER, Blobs, serving

pytestmark = pytest.mark.peers
MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"
SPLIT = ("--split-max-size", "40KB")


@pytest.fixture
def blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Blobs]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAXTOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("maxtool.weights.remote.patience.WAITS", (0.0,))
    monkeypatch.setattr("maxtool.object_storage.bucket.LOOK", 0.0)
    with serving() as held:
        yield held
        fsspec = pytest.importorskip("fsspec")
        fsspec.get_filesystem_class("az").clear_instance_cache()


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert "c2VzYW1l" not in result.output
    assert "sesame" not in result.output
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def fill(blobs: Blobs) -> None:
    for path in MODEL.iterdir():
        if path.is_file():
            blobs.blobs[f"models/llama/{path.name}"] = path.read_bytes()


@pytest.mark.parametrize("path", ["models/llama", "models/llama/model.safetensors"])
def test_a_model(blobs: Blobs, path: str) -> None:
    fill(blobs)
    assert run("convert", str(MODEL), "-o", "expected.gguf").exit_code == 0
    result = run("convert", f"az://{CONTAINER}/{path}", "-o", "out.gguf", "--json")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == Path("expected.gguf").read_bytes()
    told = json.loads(result.stdout)["origin"]["files"]["model.safetensors"]
    assert told["version"] == blobs.etag("models/llama/model.safetensors")
    inspected = run("inspect-weights", f"az://{CONTAINER}/{path}", "--json")
    assert inspected.exit_code == 0, inspected.output


def test_a_blob_that_is_replaced(blobs: Blobs) -> None:
    from maxtool.errors import ChangedFile
    from maxtool.weights.remote.filesystem import FilesystemStore

    fill(blobs)
    store, url = FilesystemStore(), f"az://{CONTAINER}/models/llama/config.json"
    store.describe(url)
    store.check_same(url)
    blobs.blobs["models/llama/config.json"] = b"{}"
    with pytest.raises(ChangedFile):
        store.check_same(url)


@pytest.mark.usefixtures("blobs")
def test_what_is_not_there() -> None:
    for path in (f"{CONTAINER}/none", "nowhere/none", f"{CONTAINER}/none/model.safetensors"):
        result = run("convert", f"az://{path}", "-o", "out.gguf")
        assert result.exit_code == 3, result.output


@pytest.mark.parametrize(
    ("name", "options"), [("x.gguf", ()), ("x.gguf", SPLIT), ("x", ("--sha256", "--verify"))]
)
def test_an_output(blobs: Blobs, name: str, options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    assert run("convert", str(MODEL), "-o", f"here/{name}", *options).exit_code == 0
    command = ["convert", str(MODEL), "-o", f"az://{CONTAINER}/out/{name}", *options]
    result = run(*command)
    assert result.exit_code == 0, result.output
    files = [path for path in (tmp_path / "here").rglob("*") if path.is_file()]
    here = {path.relative_to(tmp_path / "here").as_posix(): path.read_bytes() for path in files}
    assert blobs.blobs == {f"out/{name}": data for name, data in here.items()}
    assert not blobs.pending, "copies were waited for"
    assert bool(blobs.copies) == (len(here) > 1)
    again = run(*command)
    assert (again.exit_code, "the output exists" in again.stderr) == (2, True)
    assert run(*command, "--force").exit_code == 0
    assert {*blobs.blobs} == {f"out/{name}" for name in here}


@pytest.mark.usefixtures("blobs")
def test_no_container() -> None:
    result = run("convert", str(MODEL), "-o", "az://nowhere/x.gguf")
    assert result.exit_code == 2, result.output
    assert "there is no such bucket" in result.stderr


def test_no_permission(blobs: Blobs) -> None:
    blobs.refused = {"PUT"}
    result = run("convert", str(MODEL), "-o", f"az://{CONTAINER}/x.gguf")
    assert result.exit_code == 3, result.output
    assert "access is refused" in result.stderr
    assert not blobs.blobs
