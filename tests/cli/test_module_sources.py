"""Models of several modules by name: of each that has a folder of its own, what is needed comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hub_server import NAME, serve_hub
from tests.cli.url_models import run, tagged
from tests.data.dense_folders import IN_GGUF, write
from tests.weights.range_server import Server, serve

TWO = IN_GGUF[0]
LAYERS = ("2_Dense", "3_Dense")
OTHERS = ("onnx/config.json", "onnx/model.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = write(tmp_path / "site" / "model", TWO)
    for name in OTHERS:
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text("{}")
    return made


@pytest.fixture(params=["url", "hub"])
def named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[tuple[str, list[Server]]]:
    """The name of the model, and the servers that are asked for its files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAXTOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("maxtool.weights.remote.patience.WAITS", (0.0, 0.0))
    if request.param == "url":
        with serve(folder.parent, tagged) as running:
            yield f"{running.url}/model", [running]
        return
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with serve_hub(folder) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = f"{running.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield NAME, [running, running.files]


def asked(servers: list[Server]) -> set[str]:
    return {path.partition("?")[0] for server in servers for path, _ in server.asked}


def test_layers_come_with_the_model(named: tuple[str, list[Server]], folder: Path) -> None:
    name, servers = named
    for source, output in ((name, "brought.gguf"), (str(folder), "here.gguf")):
        result = run("convert", source, "-o", output, "--name", "Model")
        assert result.exit_code == 0, result.output
    assert Path("brought.gguf").read_bytes() == Path("here.gguf").read_bytes()
    paths = asked(servers)
    for layer in LAYERS:
        assert any(path.endswith(f"{layer}/model.safetensors") for path in paths)
    assert not any("/onnx/" in path for path in paths)


@pytest.mark.parametrize("command", ["convert", "compile"])
def test_a_dry_run_reads_headers_of_layers(
    named: tuple[str, list[Server]], folder: Path, tmp_path: Path, command: str
) -> None:
    plans: list[dict[str, Any]] = []
    for source in (named[0], str(folder)):
        result = run(command, source, "-o", "planned", "--dry-run", "--json")
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        plans.append({key: told[key] for key in told.keys() - {"source", "origin", "sources"}})
    assert plans[0] == plans[1]
    sizes = {(folder / layer / "model.safetensors").stat().st_size for layer in LAYERS}
    blobs = [blob for blob in (tmp_path / "cache").rglob("*") if blob.is_file()]
    assert not {blob.stat().st_size for blob in blobs} & sizes


def test_weights_of_torch_come_too(named: tuple[str, list[Server]], folder: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    for layer in LAYERS:
        file = folder / layer / "model.safetensors"
        torch.save(load_file(file), file.with_name("pytorch_model.bin"))
        file.unlink()
    for options in (("--dry-run",), ()):
        result = run("convert", named[0], "-o", "brought.gguf", *options)
        assert result.exit_code == 0, result.output
