"""Repositories by name, from a server on this machine that speaks the Hub's API."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.sources.hub_cache import HubCache
from maxtool.weights import hub
from tests.cli.hub_server import COMMIT, NAME, HubServer, serve_hub
from tests.weights.range_server import Handler, ranges

MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in MODEL.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    (folder / "pytorch_model.bin").write_bytes(bytes(9))
    return folder


@pytest.fixture
def server(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_sesame")
    monkeypatch.setattr("maxtool.weights.remote.patience.WAITS", (0.0, 0.0))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with serve_hub(model) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = f"{running.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert "sesame" not in result.output
    return result


def convert(name: str = NAME) -> Result:
    return run("convert", name, "-o", "out.gguf", "--json", "--sha256", "--force")


def test_a_repository_is_converted_as_its_files_are(server: HubServer, model: Path) -> None:
    result = convert()
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["origin"] == {"name": NAME, "commit": COMMIT}
    expected = run("convert", str(model), "-o", "local.gguf", "--json", "--sha256")
    assert Path("out.gguf").read_bytes() == Path("local.gguf").read_bytes(), expected.output
    asked = [path for path, _ in server.asked + server.files.asked]
    assert not [path for path in asked if ".bin" in path]
    assert not [sent for _, sent in server.files.asked if "Authorization" in sent]
    assert "Bearer hf_sesame" in {
        {key.lower(): value for key, value in sent.items()}.get("authorization")
        for _, sent in server.asked
    }
    before = len(server.files.asked)
    assert convert("org/model").exit_code == 0
    assert len(server.files.asked) == before


@pytest.mark.usefixtures("server")
def test_inspecting_reads_headers_alone(tmp_path: Path) -> None:
    result = run("inspect-weights", NAME, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["remote"]["commit"] == COMMIT
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


@pytest.mark.parametrize(("name", "digits"), [("model.safetensors", 64), ("config.json", 40)])
def test_a_wrong_checksum_is_an_error_and_nothing_stays(
    server: HubServer, tmp_path: Path, name: str, digits: int
) -> None:
    wrong = "0" * digits

    def changed(file: dict[str, Any]) -> dict[str, Any]:
        if file["rfilename"] == name:
            file["blobId"] = wrong
            file.get("lfs", {})["sha256"] = wrong
        return file

    server.change = changed
    result = convert()
    assert result.exit_code == 3
    assert name in result.stderr
    assert wrong in result.stderr
    assert not list((tmp_path / "cache").rglob("blobs/0000*"))
    assert not Path("out.gguf").exists()


def test_a_dropped_connection_is_resumed(server: HubServer) -> None:
    calls = []

    def dropped(handler: Handler, data: bytes, start: int, last: int) -> None:
        calls.append(start)
        if len(calls) == 1:
            body = data[start : last + 1]
            span = f"bytes {start}-{last}/{len(data)}"
            handler.send(206, body[:99], Content_Length=len(body), Content_Range=span)
            handler.close_connection = True
        else:
            ranges(handler, data, start, last)

    server.files.answer = dropped
    assert convert().exit_code == 0
    assert len(calls) > 1


@pytest.mark.parametrize(
    ("code", "error_code", "message"),
    [
        (404, "RepoNotFound", "no such repository, or it is private"),
        (403, "GatedRepo", "the repository is gated"),
        (404, "RevisionNotFound", "the repository has no revision main"),
        (429, "", "the Hub answers HTTP 429"),
    ],
)
def test_refusals(server: HubServer, code: int, error_code: str, message: str) -> None:
    server.failures = [(code, {"X_Error_Code": error_code})] * 9
    result = convert()
    assert result.exit_code == 3, result.output
    assert message in result.stderr


def test_offline_the_cache_is_used(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused = convert()
    assert (refused.exit_code, server.asked) == (3, [])
    assert "HF_HUB_OFFLINE is set" in refused.stderr
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert convert().exit_code == 0
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert convert().exit_code == 0


@pytest.mark.usefixtures("server")
def test_several_quantizations_are_listed(model: Path) -> None:
    for file in model.iterdir():
        file.unlink()
    for name in ("m-Q4_0.gguf", "m-Q8_0.gguf"):
        (model / name).write_bytes(bytes(1234))
    result = convert()
    assert result.exit_code == 3
    assert "m-Q4_0.gguf  1,234 bytes" in result.stderr
    assert f"{NAME}/m-Q4_0.gguf" in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://a/b", ("a/b", None, "")),
        ("hf://a/b@v1/x/y.gguf", ("a/b", "v1", "x/y.gguf")),
        ("hf://models/a/b@refs/pr/3/", ("a/b", "refs/pr/3", "")),
    ],
)
def test_names(text: str, expected: tuple[str, str | None, str]) -> None:
    assert tuple(hub.parse(text)) == expected


@pytest.mark.parametrize("text", ["hf://a", "hf://datasets/a/b", "hf://a/b/../../x"])
def test_malformed_names(text: str) -> None:
    assert run("convert", text, "-o", "out.gguf").exit_code == 2


def test_a_server_that_is_busy_is_asked_again(server: HubServer) -> None:
    busy = (503, {"Retry_After": "0"})
    server.failures = [busy, busy]
    calls: list[int] = []

    def answer(handler: Handler, data: bytes, start: int, last: int) -> None:
        calls.append(start)
        if len(calls) == 1:
            handler.refuse(429, Retry_After="0")
        else:
            ranges(handler, data, start, last)

    server.files.answer = answer
    assert convert().exit_code == 0
    assert len(calls) == 2
    assert not server.failures


def test_an_answer_that_trickles_is_not_waited_for(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxtool.sources.hub_store.PATIENCE", 0.2)
    monkeypatch.setattr("maxtool.sources.hub_store.BYTES_PER_SECOND", 1 << 40)
    ended = threading.Event()

    def trickling(handler: Handler, data: bytes, start: int, last: int) -> None:
        span = f"bytes {start}-{last}/{len(data)}"
        handler.send(206, b"", Content_Length=last + 1 - start, Content_Range=span)
        with suppress(OSError):
            while not ended.wait(0.02):
                handler.wfile.write(b"x")

    server.files.answer = trickling
    try:
        result = convert()
    finally:
        ended.set()
    assert result.exit_code == 3
    assert "the answer takes too long" in result.stderr


def test_what_another_process_has_brought_meanwhile_is_not_touched(
    server: HubServer, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cache" / "models--org--model" / "snapshots" / COMMIT / "model.safetensors"
    placed: list[int] = []

    @contextmanager
    def held(_: HubCache, digest: str) -> Iterator[bool]:
        """Hold a lock that another process held until it had brought the file."""
        if digest == hashlib.sha256((model / file.name).read_bytes()).hexdigest():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes((model / file.name).read_bytes())
            placed.append(file.stat().st_ino)
        yield True

    monkeypatch.setattr(HubCache, "held", held)
    assert convert().exit_code == 0
    assert placed == [file.stat().st_ino]
    assert server.files.sent == 0


@pytest.mark.usefixtures("server")
def test_a_link_that_is_there_is_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may open it at any moment: it is never removed first."""
    assert convert().exit_code == 0
    cache = HubCache("org/model")
    [digest] = [blob.name for blob in cache.blob("x").parent.iterdir() if len(blob.name) == 64]
    file = cache.snapshot(COMMIT) / "model.safetensors"
    removed: list[Path] = []
    unlink = Path.unlink

    def noted(path: Path, *, missing_ok: bool = False) -> None:
        removed.append(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    before = file.lstat().st_ino
    assert cache.link(digest, COMMIT, file.name) == file
    assert file not in removed
    assert file.lstat().st_ino != before
    assert file.resolve() == cache.blob(digest).resolve()


def test_an_output_that_exists_is_told_before_anything_is_brought(server: HubServer) -> None:
    Path("there.gguf").touch()
    result = run("convert", NAME, "-o", "there.gguf")
    assert result.exit_code == 2
    assert "the output exists" in result.stderr
    assert not server.asked


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    result = convert()
    assert result.exit_code == 6
    assert "help: pip install huggingface_hub" in result.stderr
    assert run("inspect-weights", NAME).exit_code == 6
    bare = convert("org/model")
    assert bare.exit_code == 3
    assert "hf download org/model" in bare.stderr
