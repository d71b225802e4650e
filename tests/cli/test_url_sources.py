"""Sources by URL, from a server on this machine that behaves and misbehaves."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from maxtool import conversion, sources
from maxtool.cli.app import app
from maxtool.cli.progress import Meter
from maxtool.weights import open_checkpoint
from maxtool.weights.header_copies import PayloadNeeded, header_copies
from tests.weights.range_server import Answer, Handler, Server, ranges, serve

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


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    output = tmp_path_factory.mktemp("expected") / "out.gguf"
    assert run("convert", str(MODEL), "-o", str(output)).exit_code == 0
    return output.read_bytes()


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


def test_a_server_without_ranges(server: Server, expected: bytes) -> None:
    attempts: list[str | None] = []

    def whole(handler: Handler, data: bytes, _start: int, _last: int) -> None:
        attempts.append(handler.headers.get("Range"))
        if attempts.count(None) == 1:
            handler.send(200, data[:50], Content_Length=len(data))
            handler.close_connection = True
        else:
            handler.send(200, data)

    server.answer = whole
    result = convert(f"{server.url}/model")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == expected
    assert json.loads(result.stdout)["origin"]["files"][WEIGHTS]["version"] is None
    before = attempts.count(None)
    assert convert(f"{server.url}/model").exit_code == 0
    assert attempts.count(None) > before, "nothing tells that it is the same: it is fetched anew"


def test_a_dropped_connection_is_resumed(server: Server, expected: bytes, tmp_path: Path) -> None:
    dropped: list[int] = []

    def drop(handler: Handler, data: bytes, start: int, last: int) -> None:
        if last > 1000 and not dropped:
            dropped.append(start)
            span = f"bytes {start}-{last}/{len(data)}"
            handler.send(206, data[:99], Content_Length=last + 1 - start, Content_Range=span)
            handler.close_connection = True
        else:
            tagged(handler, data, start, last)

    server.answer = drop
    assert convert(f"{server.url}/model").exit_code == 0
    assert dropped
    assert Path("out.gguf").read_bytes() == expected
    assert not incomplete(tmp_path)


def test_what_another_process_left_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch, expected: bytes, tmp_path: Path
) -> None:
    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 16)

    def stop(handler: Handler, data: bytes, start: int, last: int) -> None:
        if start >= 1 << 16:
            handler.refuse(500)
        else:
            tagged(handler, data, start, last)

    server.answer = stop
    assert convert(f"{server.url}/model").exit_code == 3
    (part,) = incomplete(tmp_path)
    assert part.stat().st_size == 1 << 16
    server.answer = tagged
    server.asked.clear()
    assert convert(f"{server.url}/model").exit_code == 0
    assert all(int(span[6:].partition("-")[0]) >= 1 << 16 for span in asked(server))
    assert Path("out.gguf").read_bytes() == expected


@pytest.mark.parametrize("honours_versions", [True, False])
def test_a_file_that_is_replaced_midway(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, honours_versions: bool
) -> None:
    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 16)

    def replaced(handler: Handler, data: bytes, start: int, last: int) -> None:
        if start and not honours_versions:
            del handler.headers["If-Range"]
        tagged(handler, data[:-1] + b"!" if start else data, start, last)

    server.answer = replaced
    result = convert(f"{server.url}/model")
    assert result.exit_code == 3
    assert "was replaced while it was read" in result.stderr
    assert not incomplete(tmp_path)
    assert not Path("out.gguf").exists()


def encoded(name: str, data: bytes) -> str:
    return base64.b64encode(hashlib.new(name, data).digest()).decode()


HEADERS: dict[str, Any] = {
    "Repr-Digest": lambda data: f"sha-256=:{encoded('sha256', data)}:",
    "Digest": lambda data: f"md5=x, SHA-256={encoded('sha256', data)}",
    "Content-MD5": lambda data: encoded("md5", data),
    "x-goog-hash": lambda data: f"crc32c=AAAA, md5={encoded('md5', data)}",
    "x-ms-blob-content-md5": lambda data: encoded("md5", data),
    "x-amz-checksum-sha256": lambda data: encoded("sha256", data),
    "x-amz-checksum-sha1": lambda data: encoded("sha1", data),
}


@pytest.mark.parametrize("header", HEADERS)
def test_checksums_of_servers_are_checked(server: Server, tmp_path: Path, header: str) -> None:
    def announcing(handler: Handler, data: bytes, start: int, last: int) -> None:
        tagged(handler, data, start, last, **{header: HEADERS[header](announced or data)})

    server.answer = announcing
    announced = b""
    assert convert(f"{server.url}/model").exit_code == 0
    shutil.rmtree(tmp_path / "cache")
    announced = b"another"
    result = convert(f"{server.url}/model")
    assert result.exit_code == 3
    assert "what came is not the file that is listed" in result.stderr
    assert not incomplete(tmp_path)


def test_checksums_of_parts_and_of_parts_of_objects_are_not_taken(server: Server) -> None:
    def odd(handler: Handler, data: bytes, start: int, last: int) -> None:
        part = data[start : last + 1]
        more = {"Content-MD5": encoded("md5", part), "x-amz-checksum-sha256": "YWI=-2"}
        tagged(handler, data, start, last, **more, **{"x-amz-checksum-type": "COMPOSITE"})

    server.answer = odd
    assert convert(f"{server.url}/model").exit_code == 0


@pytest.mark.parametrize("encryption", ["AES256", "aws:kms"])
def test_the_etag_of_s3_is_a_checksum_unless_keys_encrypt(server: Server, encryption: str) -> None:
    def of_s3(handler: Handler, data: bytes, start: int, last: int) -> None:
        span = f"bytes {start}-{last}/{len(data)}"
        more = {"x-amz-request-id": "1", "x-amz-server-side-encryption": encryption}
        tag = f'"{"0" * 32}"'
        handler.send(206, data[start : last + 1], Content_Range=span, ETag=tag, **more)

    server.answer = of_s3
    assert convert(f"{server.url}/model").exit_code == (3 if encryption == "AES256" else 0)


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


def test_a_busy_server_is_asked_again(server: Server, expected: bytes) -> None:
    busy = threading.Semaphore(2)

    def answer(handler: Handler, data: bytes, start: int, last: int) -> None:
        if busy.acquire(blocking=False):
            handler.refuse(429, Retry_After="0")
        else:
            tagged(handler, data, start, last)

    server.answer = answer
    assert convert(f"{server.url}/model").exit_code == 0
    assert Path("out.gguf").read_bytes() == expected


def page(handler: Handler, *_: object) -> None:
    handler.send(200, b"<html>log in</html>", Content_Type="text/html; charset=utf-8")


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


def test_ranges_of_servers_that_say_no_version(server: Server, expected: bytes) -> None:
    server.answer = ranges
    assert convert(f"{server.url}/model").exit_code == 0
    assert Path("out.gguf").read_bytes() == expected


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


def is_weights(blob: Path) -> bool:
    return blob.stat().st_size == (MODEL / WEIGHTS).stat().st_size


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


def without_locks(*_: object) -> None:
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.mark.parametrize("said", [tagged, ranges], ids=["a version", "no version"])
def test_two_at_once_where_there_are_no_locks(
    server: Server, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Answer
) -> None:
    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 13)
    monkeypatch.setattr("maxtool.sources.locking.fcntl.flock", without_locks)
    both = threading.Barrier(2, timeout=10)

    def together(handler: Handler, data: bytes, start: int, last: int) -> None:
        if start == 0 < last and len(data) > 1 << 16:
            both.wait()
        said(handler, data, start, last)

    def bring() -> bytes:
        url = f"{server.url}/model/{WEIGHTS}"
        return sources.bring(url, lambda _: nullcontext(Meter()), "file").path.read_bytes()

    server.answer = together
    with ThreadPoolExecutor(2) as pool:
        brought = [pool.submit(bring) for _ in range(2)]
    assert {one.result() for one in brought} == {(model / WEIGHTS).read_bytes()}
    assert not incomplete(tmp_path)


def test_what_another_process_writes_to_a_part_is_not_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddled(handler: Handler, data: bytes, start: int, last: int) -> None:
        for part in incomplete(tmp_path):
            with part.open("ab") as stream:
                stream.write(b"more")
        tagged(handler, data, start, last)

    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 16)
    server.answer = meddled
    result = convert(f"{server.url}/model")
    assert result.exit_code == 3
    assert "bytes, and the file has" in result.stderr
    assert not incomplete(tmp_path)
    server.answer = tagged
    assert convert(f"{server.url}/model").exit_code == 0


def test_contents_of_another_size_are_brought_again(
    server: Server, tmp_path: Path, expected: bytes
) -> None:
    assert convert(f"{server.url}/model").exit_code == 0
    (blob,) = filter(is_weights, (tmp_path / "cache").rglob("blobs/*"))
    with blob.open("ab") as stream:
        stream.write(b"more")
    assert convert(f"{server.url}/model").exit_code == 0
    assert Path("out.gguf").read_bytes() == expected


def test_what_killed_processes_left_is_removed_after_a_day(server: Server, tmp_path: Path) -> None:
    server.answer = ranges  # tells no versions, by which parts would have names
    assert convert(f"{server.url}/model").exit_code == 0
    (blobs,) = (tmp_path / "cache").rglob("blobs")
    old, young = (blobs / f"{name * 32}.maxtool.new" for name in "ab")
    for left, age in ((old, 90_000), (young, 3000)):
        left.write_bytes(b"part")
        os.utime(left, (time.time() - age,) * 2)
    assert convert(f"{server.url}/model").exit_code == 0
    assert incomplete(tmp_path) == [young]


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


def dated(
    handler: Handler, data: bytes, start: int, last: int, modified: float = 1e9, tag: str = ""
) -> None:
    """Answer with a time, in seconds since 1970."""
    more = {"Last-Modified": formatdate(modified, usegmt=True)} | ({"ETag": tag} if tag else {})
    span = f"bytes {start}-{last}/{len(data)}"
    handler.send(206, data[start : last + 1], Content_Range=span, **more)


@pytest.mark.parametrize("tag", ["", 'W/"1"'])
@pytest.mark.parametrize("age", [-100, 0, 70])
def test_a_time_is_a_version_once_it_is_past(
    server: Server, expected: bytes, age: int, tag: str
) -> None:
    modified = time.time() - age
    server.answer = partial(dated, modified=modified, tag=tag)
    brought = []
    for _ in range(2):
        server.asked.clear()
        result = convert(f"{server.url}/model")
        assert result.exit_code == 0, result.output
        brought.append(bool(asked(server)))
    assert brought == [True, age < 60]
    assert Path("out.gguf").read_bytes() == expected
    assert age >= 60 or not any("If-Range" in headers for _, headers in server.asked)


def test_a_file_with_a_recent_time_that_is_replaced_midway(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 16)
    now = time.time()

    def replaced(handler: Handler, data: bytes, start: int, last: int) -> None:
        dated(handler, data, start, last, now + bool(start))

    server.answer = replaced
    result = convert(f"{server.url}/model")
    assert result.exit_code == 3
    assert "was replaced while it was read" in result.stderr


def test_a_part_need_not_repeat_what_it_is_of(server: Server, expected: bytes) -> None:
    """RFC 9110, section 15.3.7: nothing that the request had in If-Range."""

    def terse(handler: Handler, data: bytes, start: int, last: int) -> None:
        if "If-Range" in handler.headers:
            ranges(handler, data, start, last)
        else:
            dated(handler, data, start, last)

    server.answer = terse
    result = convert(f"{server.url}/model")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == expected
    assert asked(server)


def test_a_part_may_repeat_another_header(server: Server, expected: bytes) -> None:
    def other(handler: Handler, data: bytes, start: int, last: int) -> None:
        dated(handler, data, start, last, tag="" if "If-Range" in handler.headers else '"1"')

    server.answer = other
    assert convert(f"{server.url}/model").exit_code == 0
    assert Path("out.gguf").read_bytes() == expected


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
