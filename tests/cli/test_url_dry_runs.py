"""Plans of sources by URL, made from headers alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from maxtool import conversion
from maxtool.weights import open_checkpoint
from maxtool.weights.header_copies import PayloadNeeded, header_copies
from tests.cli.url_models import MODEL, WEIGHTS, is_weights, model, run, server
from tests.weights.range_server import Server

__all__ = ["model", "server"]  # fixtures


def plan_of(command: str, source: str) -> Any:
    """The plan of a dry run, without where it is from and goes to."""
    result = run(command, source, "-o", "planned", "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    return told, {key: told[key] for key in told.keys() - {"source", "origin", "sources"}}


@pytest.mark.parametrize("command", ["convert", "compile"])
@pytest.mark.parametrize("path", ["", f"/{WEIGHTS}"])
def test_a_dry_run_reads_headers(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, path: str
) -> None:
    monkeypatch.setattr("maxtool.weights.remote.headers.FIRST_BYTES", 1 << 12)
    told, plan = plan_of(command, f"{server.url}/model{path}")
    assert plan == plan_of(command, str(MODEL))[1]
    assert told["source"] == f"{server.url}/model{path}"
    assert not [blob for blob in (tmp_path / "cache").rglob("blobs/*") if is_weights(blob)]
    assert server.sent < (MODEL / WEIGHTS).stat().st_size // 2


def test_a_dry_run_reads_the_header_of_a_base_model(
    server: Server, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxtool.weights.remote.headers.FIRST_BYTES", 1 << 12)
    base, adapter = model / "base.gguf", str(MODEL.parent / "lora" / "patterns")
    assert run("convert", str(MODEL), "-o", str(base)).exit_code == 0
    command = ["convert", adapter, "-o", "out.gguf", "--json", "--base"]
    sent = server.sent
    planned = run(*command, f"{server.url}/model/base.gguf", "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert server.sent - sent < base.stat().st_size // 2
    whole = run(*command, f"{server.url}/model/base.gguf")
    assert whole.exit_code == 0, whole.output
    plans = [json.loads(result.stdout) for result in (planned, whole)]
    for key in ("files", "tensors", "types", "bytes", "recipe"):
        assert plans[0][key] == plans[1][key]


def test_a_dry_run_of_what_has_no_header_in_front(server: Server, model: Path) -> None:
    npz = run("convert", str(MODEL), "--no-recipe", "-o", str(model / "m.npz"))
    assert npz.exit_code == 0
    url = f"{server.url}/model/m.npz"
    planned = run("convert", url, "--no-recipe", "-o", "out.safetensors", "--dry-run", "--json")
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["types"] == {"F32": 21}


def test_payloads_of_copies_of_headers_are_not_read(tmp_path: Path) -> None:
    copy = Path(shutil.copyfile(MODEL / WEIGHTS, tmp_path / WEIGHTS))
    with header_copies([copy]), pytest.raises(PayloadNeeded):
        opened = open_checkpoint(copy)
        opened.read(next(iter(opened.tensors)))
    open_checkpoint(copy).view(next(iter(opened.tensors)))


def test_a_plan_that_needs_payloads_brings_the_files(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = conversion.prepare

    def reading(request: Any) -> Any:
        planned = prepare(request)
        planned.checkpoint.read(next(iter(planned.checkpoint.tensors)))
        return planned

    monkeypatch.setattr(conversion, "prepare", reading)
    result = run("convert", f"{server.url}/model", "-o", "out.gguf", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "the files are brought" in result.stderr
