"""Sources by URL, from a server on this machine that behaves and misbehaves."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from maxtool import sources
from maxtool.cli.progress import Meter
from maxtool.weights import open_checkpoint
from tests.cli.url_models import (
    MODEL,
    WEIGHTS,
    asked,
    convert,
    expected,
    incomplete,
    model,
    page,
    run,
    server,
    tagged,
)
from tests.weights.range_server import Answer, Handler, Server, serve

__all__ = ["expected", "model", "server"]  # fixtures


@pytest.mark.parametrize("path", ["model", "model/", f"model/{WEIGHTS}"])
def test_a_folder_and_a_file_are_converted_as_those_here_are(
    server: Server, expected: bytes, path: str
) -> None:
    result = convert(f"{server.url}/{path}")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == expected
    origin = json.loads(result.stdout)["origin"]
    assert origin["name"] == f"{server.url}/{path}"
    told = origin["files"][WEIGHTS]
    assert told["bytes"] == (MODEL / WEIGHTS).stat().st_size
    assert told["version"] == f'"{hashlib.sha256((MODEL / WEIGHTS).read_bytes()).hexdigest()[:16]}"'
    assert asked(server)
    server.asked.clear()
    assert convert(f"{server.url}/{path}").exit_code == 0
    assert asked(server) == [], "it is in the cache"


def test_a_changed_file_is_brought_again(server: Server, model: Path, expected: bytes) -> None:
    url = f"{server.url}/model"
    assert convert(url).exit_code == 0
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    server.asked.clear()
    assert convert(url).exit_code == 0
    assert Path("out.gguf").read_bytes() != expected
    assert asked(server) == []
    assert asked(server, "config.json")


def test_shards_are_brought_and_no_other_files(server: Server, model: Path) -> None:
    shutil.rmtree(model)
    sharded = run("convert", str(MODEL), "--no-recipe", "-o", str(model), "--shard-size", "60kB")
    assert sharded.exit_code == 0, sharded.output
    (model / "pytorch_model.bin").write_bytes(bytes(9))
    (model / "stray.safetensors").write_bytes(bytes(9))
    assert len([*model.glob("model-*")]) > 1
    result = convert(f"{server.url}/model", "--no-recipe")
    assert result.exit_code == 0, result.output
    for one in model.glob("model-*.safetensors"):
        assert asked(server, one.name)
    assert not asked(server, "pytorch_model.bin")
    assert not [path for path, _ in server.asked if "stray" in path]


def test_parts_of_a_split_file(server: Server, model: Path, expected: bytes) -> None:
    split = run("convert", str(MODEL), "-o", str(model / "m.gguf"), "--split-max-size", "60K")
    assert split.exit_code == 0, split.output
    first = min(model.glob("m-*.gguf")).name
    assert run("convert", str(MODEL), "-o", "joined.npz", "--no-recipe").exit_code == 0
    result = convert(f"{server.url}/model/{first}")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").stat().st_size == len(expected)


def test_credentials_are_sent_and_never_told(server: Server, tmp_path: Path) -> None:
    server.asks_for = base64.b64encode(b"user:sesame").decode()
    place = server.url.removeprefix("http://")
    url = f"http://user:sesame@{place}/model?X-Amz-Signature=sesame"
    result = convert(url, "--verbose")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["origin"]["name"] == f"{server.url}/model"
    server.asked.clear()
    assert convert(url.replace("Signature=sesame", "Signature=2")).exit_code == 0
    assert asked(server) == [], "another signature, the same file"
    assert "sesame" not in "".join(map(str, (tmp_path / "cache").rglob("*")))
    refused = convert(f"{server.url}/model")
    assert refused.exit_code == 3
    assert "the server asks for credentials" in refused.stderr


def test_another_query_is_another_file(server: Server) -> None:
    assert convert(f"{server.url}/model?version=1").exit_code == 0
    server.asked.clear()
    assert convert(f"{server.url}/model?version=2").exit_code == 0
    assert asked(server)


def test_redirects_lead_without_credentials(
    server: Server, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxtool.weights.remote.visit.is_public", lambda _: True)

    def elsewhere(handler: Handler, *_: object) -> None:
        handler.refuse(302, Location=f"{other.url}{handler.path}")

    server.answer = elsewhere
    with serve(model.parent, tagged) as other:
        place = server.url.removeprefix("http://")
        assert convert(f"http://user:sesame@{place}/model").exit_code == 0
    assert all("Authorization" in sent for _, sent in server.asked)
    assert other.asked
    assert not any("Authorization" in sent for _, sent in other.asked)


def gone(handler: Handler, *_: object) -> None:
    handler.refuse(404)


def sizeless(handler: Handler, data: bytes, *_: object) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(data)
    handler.close_connection = True


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (page, "the server sends a page of HTML"),
        (gone, "the server has no such file"),
        (sizeless, "the server does not say how many bytes the file has"),
    ],
)
@pytest.mark.parametrize("path", ["model", f"model/{WEIGHTS}"])
def test_what_is_no_model(server: Server, answer: Answer, message: str, path: str) -> None:
    server.answer = answer
    result = convert(f"{server.url}/{path}")
    assert result.exit_code == 3
    assert message in result.stderr
    assert not Path("out.gguf").exists()


def test_an_output_that_exists_is_told_before_anything_is_asked_for(server: Server) -> None:
    Path("there.gguf").touch()
    result = run("convert", f"{server.url}/model", "-o", "there.gguf")
    assert result.exit_code == 2
    assert not server.asked


def test_a_folder_of_this_machine_as_a_url(
    model: Path, expected: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert convert(model.as_uri()).exit_code == 0
    assert Path("out.gguf").read_bytes() == expected
    assert run("inspect-weights", model.as_uri()).exit_code == 0
    assert convert("file://elsewhere/model").exit_code == 2


def test_modules_are_not_executed_from_elsewhere(server: Server, model: Path) -> None:
    (model / "net.py").write_text("raise SystemExit(99)")
    for url in (f"{server.url}/model/net.py:Net", (model / "net.py").as_uri() + ":Net"):
        result = run("compile", url, "-o", "out")
        assert result.exit_code == 2
        assert "a module is executed" in result.stderr
    assert not server.asked


def test_weights_are_compared_and_options_take_urls(server: Server) -> None:
    compared = run("compare", f"{server.url}/model", str(MODEL), "--json")
    assert compared.exit_code == 0, compared.output
    checked = run("recipes", "check", "llama", f"{server.url}/model")
    assert checked.exit_code == 0, checked.output


def test_options_that_name_sources(server: Server, model: Path) -> None:
    """Importance of columns, and weights of a module."""
    missing = f"{server.url}/model/none.dat"
    result = convert(f"{server.url}/model", "--quantize", "Q8_0", "--imatrix", missing)
    assert (result.exit_code, "the server has no such file" in result.stderr) == (3, True)
    (model / "some.dat").write_bytes(b"no matrix")
    result = convert(str(MODEL), "--quantize", "Q8_0", "--imatrix", missing.replace("none", "some"))
    assert result.exit_code == 3
    assert "some.dat" in result.stderr
    for option in ("--base", "--merge-lora"):
        result = convert(str(MODEL), option, f"{server.url}/none")
        assert (result.exit_code, "the server has no such file" in result.stderr) == (3, True)


@pytest.mark.long
def test_a_build_brings_a_url_once_and_records_no_secret(server: Server, tmp_path: Path) -> None:
    place = server.url.removeprefix("http://")
    url = f"http://user:sesame@{place}/model?sig=sesame"
    table = {"kind": "convert", "source": url, "output": "x.gguf"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    Path("x.toml").write_text("\n".join(["[targets.x]", *lines]))
    for status in ("done", "up to date"):
        result = run("build", "x.toml", "--json")
        steps = json.loads(result.stdout)["steps"]
        assert [step["status"] for step in steps] == [status], result.output
        assert bool(server.asked) == (status == "done")
        server.asked.clear()
    records = (tmp_path / ".maxtool-build").rglob("*")
    assert "sesame" not in "".join(file.read_text() for file in records if file.is_file())
    Path("x.toml").write_text(Path("x.toml").read_text().replace("sig=sesame", "file=2"))
    again = json.loads(run("build", "x.toml", "--dry-run", "--json").stdout)
    assert again["steps"][0]["status"] == "would run"


def test_of_a_base_model_the_configuration_is_brought(server: Server, model: Path) -> None:
    name = f"{server.url}/model"
    brought = sources.bring(name, lambda _: nullcontext(Meter()), "configuration")
    assert [file.name for file in brought.path.iterdir()] == ["config.json"]
    assert asked(server) == []
    assert (brought.name, brought.record["name"]) == (name, name)
    (model / "config.json").unlink()
    brought = sources.bring(name, lambda _: nullcontext(Meter()), "configuration")
    assert asked(server)


NO_NAMES = {
    "a%00.safetensors": "is not a file's name",
    "..": "is not a file's name",
    "": "the URL is a folder's",
    f"{'a' * 300}.safetensors": "a file's name of 312 bytes; here it has 255 at most",
}


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_files_cannot_have_here(server: Server, tmp_path: Path, name: str) -> None:
    url = f"{server.url}/model/x/{name}"
    results = [convert(str(MODEL), "--quantize", "Q8_0", "--imatrix", url)]
    if name.endswith(WEIGHTS[-12:]):
        results += [convert(url), run("inspect-weights", url)]
    for result in results:
        assert result.exit_code == 2, result.output
        assert NO_NAMES[name] in result.stderr
    assert not server.asked
    assert not (tmp_path / "cache").exists()


def test_shards_whose_names_a_url_writes_otherwise(server: Server, model: Path) -> None:
    odd = "a b#c?d%41.safetensors"
    names = open_checkpoint(model / WEIGHTS).tensors
    (model / WEIGHTS).rename(model / odd)
    index = {"weight_map": dict.fromkeys(names, odd)}
    (model / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    assert convert(f"{server.url}/model").exit_code == 0
    inspected = run("inspect-weights", f"{server.url}/model", "--json")
    assert inspected.exit_code == 0, inspected.output


def test_shards_whose_names_are_too_long(server: Server, model: Path, tmp_path: Path) -> None:
    index = {"weight_map": {"a": f"{'é' * 150}.safetensors"}}
    (model / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    for result in (convert(f"{server.url}/model"), run("inspect-weights", f"{server.url}/model")):
        assert result.exit_code == 2
        assert "a file's name of 312 bytes" in result.stderr
    assert not incomplete(tmp_path)


@pytest.mark.parametrize("path", ["model", f"model/{WEIGHTS}?X-Amz-Signature=sesame"])
@pytest.mark.parametrize("code", [401, 403, 0])
def test_files_that_are_refused_are_told(server: Server, model: Path, code: int, path: str) -> None:
    (model / "generation_config.json").write_text("{}")

    def refusing(handler: Handler, data: bytes, start: int, last: int) -> None:
        if not handler.path.partition("?")[0].endswith("/generation_config.json"):
            tagged(handler, data, start, last)
        elif code:
            handler.refuse(code)
        else:
            page(handler)

    server.answer = refusing
    for more in ((), ("--dry-run",)):
        result = convert(f"{server.url}/{path}", *more)
        assert result.exit_code == 0, result.output
        told = " ".join(result.stderr.split())
        start = f"warning: taken for absent in {server.url}/model: generation_config.json ("
        assert (f"HTTP {code}" if code else "a page of HTML") in told.partition(start)[2]
        assert told.count("taken for absent") == 1


def test_files_that_are_absent_are_not_told(server: Server) -> None:
    assert "taken for absent" not in convert(f"{server.url}/model").stderr


def test_a_shard_that_is_refused_is_an_error(server: Server, model: Path) -> None:
    names = open_checkpoint(model / WEIGHTS).tensors
    (model / WEIGHTS).rename(model / "x.safetensors")
    index = {"weight_map": dict.fromkeys(names, "x.safetensors")}
    (model / f"{WEIGHTS}.index.json").write_text(json.dumps(index))

    def refusing(handler: Handler, data: bytes, start: int, last: int) -> None:
        if handler.path.endswith("x.safetensors"):
            handler.refuse(403)
        else:
            tagged(handler, data, start, last)

    server.answer = refusing
    result = convert(f"{server.url}/model")
    assert result.exit_code == 3
    assert "the server refuses access (HTTP 403)" in result.stderr
    assert f"{server.url}/model/x.safetensors" in result.stderr
