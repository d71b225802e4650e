"""Outputs in object stores, whole or not at all: S3 as moto speaks it, and fsspec's memory."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.object_storage.upload import block_size
from tests.cli.s3_server import BUCKET, Cutter, serving

fsspec = pytest.importorskip("fsspec")
ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "data" / "tiny-llama"
SPLIT = ("--split-max-size", "40KB")
SMALLEST = 5 << 20  # of a part of S3, but for the last


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert "sesame" not in result.output
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def convert(output: str, *options: str) -> Result:
    return run("convert", str(MODEL), "-o", output, *options)


def written(folder: Path, output: str, *options: str) -> dict[str, bytes]:
    """The files that the same command writes on this machine, by name."""
    folder.mkdir()
    assert convert(str(folder / output), *options).exit_code == 0
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


# In memory, for what is the same in all stores.


@pytest.fixture
def memory() -> Iterator[dict[str, Any]]:
    """The content of fsspec's filesystem in memory, by name."""
    store = fsspec.filesystem("memory").store
    yield store
    store.clear()


def held(store: dict[str, Any]) -> dict[str, bytes]:
    return {name.removeprefix("/out/"): file.getvalue() for name, file in store.items()}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.gguf", ()),
        ("x.gguf", ("--sha256",)),
        ("x.gguf", SPLIT),
        ("x.safetensors", ("--shard-size", "40KB", "--sha256")),
        ("x.npz", ()),
        ("x", ()),
        ("x", ("--shard-size", "40KB", "--sha256", "--verify")),
    ],
)
def test_the_bytes_are_those_of_one_machine(
    name: str, options: tuple[str, ...], tmp_path: Path, memory: dict[str, Any]
) -> None:
    result = convert(f"memory://out/{name}", *options, "--json")
    assert result.exit_code == 0, result.output
    assert held(memory) == written(tmp_path / "here", name, *options)
    told = json.loads(result.stdout)
    assert told["output"] == f"memory://out/{name}"
    inside = f"{name}/" if name == "x" else ""
    for file, digest in told["sha256"].items():
        assert hashlib.sha256(held(memory)[inside + file]).hexdigest() == digest
    assert len(told["files"]) == len(memory)


def test_shares(tmp_path: Path, memory: dict[str, Any]) -> None:
    begun = convert("memory://out/x.gguf", *SPLIT, "--shards", "1/2")
    assert begun.exit_code == 0, begun.output
    assert "share 1/2 of memory://out/x.gguf" in begun.stdout
    assert all(name.startswith("/out/.x.gguf.maxtool-shares/") for name in memory)
    early = convert("memory://out/x.gguf", *SPLIT, "--shards", "finish")
    assert early.exit_code == 3
    assert "share 2/2" in early.stderr
    assert "memory://out/.x.gguf.maxtool-shares" in early.stderr
    other = convert("memory://out/x.gguf", *SPLIT, "--shards", "2/2", "--dtype", "float16")
    assert other.exit_code == 2
    assert "made of something else" in other.stderr
    assert convert("memory://out/x.gguf", *SPLIT, "--shards", "2/2").exit_code == 0
    ended = convert("memory://out/x.gguf", *SPLIT, "--shards", "finish", "--sha256")
    assert ended.exit_code == 0, ended.output
    assert held(memory) == written(tmp_path / "here", "x.gguf", *SPLIT, "--sha256")


def test_what_is_there_is_replaced_only_with_force(memory: dict[str, Any]) -> None:
    assert convert("memory://out/x.gguf", *SPLIT).exit_code == 0
    before = held(memory)
    for options in (SPLIT, ("--split-max-size", "40KB", "--dry-run")):
        refused = convert("memory://out/x.gguf", *options)
        assert refused.exit_code == 2
        assert "the output exists" in refused.stderr
    assert held(memory) == before
    assert convert("memory://out/x.gguf", "--force", "--split-max-size", "100KB").exit_code == 0
    names = [*held(memory)]
    assert all("-of-00002" in name for name in names), "none of the splits before is left"
    assert len(names) == 2


def test_a_folder_of_other_things_is_not_replaced(memory: dict[str, Any]) -> None:
    fsspec.filesystem("memory").pipe_file("/out/x/thesis.txt", b"years")
    refused = convert("memory://out/x", "--force")
    assert refused.exit_code == 2
    assert "thesis.txt" in refused.stderr
    assert held(memory) == {"x/thesis.txt": b"years"}


def test_an_output_over_its_source(
    memory: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("MAXTOOL_CACHE", str(tmp_path))
    assert convert("memory://out/x").exit_code == 0
    before = held(memory)
    for output in ("memory://out/x", "memory://out/x/y.gguf"):
        refused = run("convert", "memory://out/x", "-o", output, "--force")
        assert refused.exit_code == 2
        assert "would overwrite the source" in refused.stderr
    assert held(memory) == before


REFUSED = [
    (("https://host/x.gguf",), "is only read"),
    (("sftp://user:sesame@host/x.gguf",), "not to sftp://"),
    (("memory://out",), "is to follow that of the bucket"),
    (("memory://out//x.gguf",), "empty segment"),
    (("memory://out/../x.gguf",), "a dot alone"),
    (("memory://out/x?y.gguf",), r"one of \? #"),
    (("memory://out/x.gguf", "--if-changed"), "--if-changed compares"),
    (("memory://out/x.onnx",), "no .onnx files are written"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_refused(arguments: tuple[str, ...], message: str, memory: dict[str, Any]) -> None:
    result = convert(*arguments)
    assert result.exit_code == 2
    assert re.search(message, result.stderr)
    assert "maxtool-" not in result.stderr, "no path of this machine is named"
    assert not memory


def test_a_failure_leaves_nothing(memory: dict[str, Any], monkeypatch: Any) -> None:
    from maxtool.object_storage import object_parts

    sent: list[str] = []

    def upload(path: Path, url: str, *_: object, **__: object) -> str:
        sent.append(url)
        if len(sent) > 2:
            raise PermissionError
        fsspec.filesystem("memory").pipe_file(url, path.read_bytes())
        return "1"

    monkeypatch.setattr(object_parts, "upload", upload)
    assert convert("memory://out/x.gguf", *SPLIT).exit_code != 0
    assert not memory


def test_resume(tmp_path: Path, memory: dict[str, Any], monkeypatch: Any) -> None:
    from maxtool.errors import TransferFailed
    from maxtool.object_storage import object_parts

    sent: list[str] = []
    whole = object_parts.upload

    def upload(path: Path, url: str, *more: Any, **named: Any) -> str:
        if len(sent) == 2:
            raise TransferFailed("the network is gone", file=url)
        sent.append(url)
        return whole(path, url, *more, **named)

    monkeypatch.setattr(object_parts, "upload", upload)
    failed = convert("memory://out/x.gguf", *SPLIT, "--resume")
    assert failed.exit_code == 3
    assert "2 of" in failed.stderr
    assert not [name for name in memory if "maxtool-parts" not in name]
    monkeypatch.setattr(object_parts, "upload", whole)
    ended = convert("memory://out/x.gguf", *SPLIT, "--resume", "--json")
    assert ended.exit_code == 0, ended.output
    assert len(json.loads(ended.stdout)["kept"]) == 2
    assert held(memory) == written(tmp_path / "here", "x.gguf", *SPLIT)


def test_copying_that_is_broken_off(
    tmp_path: Path, memory: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from maxtool.errors import TransferFailed
    from maxtool.object_storage import bucket

    copied: list[str] = []
    whole = bucket.copy

    def copy(source: str, target: str, size: int) -> None:
        if len(copied) == 2:
            raise TransferFailed("the network is gone", file=target)
        copied.append(target)
        whole(source, target, size)

    monkeypatch.setattr(bucket, "copy", copy)
    assert convert("memory://out/x.gguf", *SPLIT, "--resume").exit_code == 3
    first = next(name for name in written(tmp_path / "here", "x.gguf", *SPLIT) if "-00001-" in name)
    assert first not in held(memory), "nobody takes what is there for an output"
    monkeypatch.setattr(bucket, "copy", whole)
    again = convert("memory://out/x.gguf", *SPLIT, "--resume")
    assert (again.exit_code, "the output exists" in again.stderr) == (2, True)
    ended = convert("memory://out/x.gguf", *SPLIT, "--resume", "--force", "--json")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["kept"], "nothing was made again"
    assert held(memory) == written(tmp_path / "there", "x.gguf", *SPLIT)


def test_blocks_of_large_files() -> None:
    for size in (0, 1, 1 << 30, 48 << 40):
        assert size <= 10_000 * block_size(size)


# S3.


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with serving() as client:
        yield client


@pytest.fixture(autouse=True)
def empty(request: pytest.FixtureRequest) -> Iterator[None]:
    """Begin with an empty bucket, where there is one."""
    yield
    if "s3" in request.fixturenames:
        client = request.getfixturevalue("s3")
        for key in objects(client):
            client.delete_object(Bucket=BUCKET, Key=key)


def objects(client: Any) -> dict[str, bytes]:
    found = client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {
        one["Key"]: client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read() for one in found
    }


def uploads(client: Any) -> list[str]:
    return [one["Key"] for one in client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])]


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of several parts."""
    monkeypatch.setattr("maxtool.object_storage.upload.BLOCK", SMALLEST)
    monkeypatch.setattr("maxtool.weights.remote.patience.WAITS", (0.0,))
    source, path = tmp_path / "source.safetensors", tmp_path / "large.safetensors"
    save_file({"x": np.random.default_rng(0).random((3, 1 << 20), np.float32)}, source)
    assert copy(source, str(path)).exit_code == 0
    return path


def copy(source: Path, output: str, *options: str) -> Result:
    return run("convert", str(source), "-o", output, "--no-recipe", *options)


@pytest.mark.peers
@pytest.mark.parametrize("options", [(), ("--shard-size", "40KB", "--sha256", "--verify")])
def test_a_folder_in_s3(s3: Any, options: tuple[str, ...], tmp_path: Path) -> None:
    result = convert(f"s3://{BUCKET}/a/x/", *options)
    assert result.exit_code == 0, result.output
    here = written(tmp_path / "here", "x", *options)
    assert objects(s3) == {f"a/{name}": data for name, data in here.items()}


@pytest.mark.peers
def test_a_file_of_several_parts(s3: Any, large: Path) -> None:
    result = copy(large, f"s3://{BUCKET}/x.safetensors", "--verify")
    assert result.exit_code == 0, result.output
    assert objects(s3)["x.safetensors"] == large.read_bytes()
    etag = s3.head_object(Bucket=BUCKET, Key="x.safetensors")["ETag"]
    assert etag.strip('"').endswith("-3")
    assert not uploads(s3)


@pytest.mark.peers
def test_another_checksum_of_the_store(s3: Any, large: Path, monkeypatch: Any) -> None:
    from s3fs import S3File

    send = S3File.write

    def damaged(self: Any, data: bytes) -> int:
        return int(send(self, bytes([data[0] ^ 1]) + data[1:]))

    monkeypatch.setattr(S3File, "write", damaged)
    result = copy(large, f"s3://{BUCKET}/x.safetensors")
    assert result.exit_code == 3
    assert "what the store has is not what was sent" in result.stderr
    assert not objects(s3), "it is removed"


@pytest.mark.peers
@pytest.mark.parametrize(("times", "code"), [(2, 0), (1000, 3)])
def test_connections_that_break(
    s3: Any, large: Path, times: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3fs import S3FileSystem

    cutter = Cutter(os.environ["AWS_ENDPOINT_URL"], most=SMALLEST // 2, times=times)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", cutter.url)
        patch.setenv("AWS_MAX_ATTEMPTS", "2")
        patch.setattr(S3FileSystem, "retries", 2)
        S3FileSystem.clear_instance_cache()
        result = copy(large, f"s3://{BUCKET}/x.safetensors")
    S3FileSystem.clear_instance_cache()
    cutter.close()
    assert cutter.cut >= 2
    assert result.exit_code == code, result.output
    assert objects(s3) == ({"x.safetensors": large.read_bytes()} if code == 0 else {})
    assert not uploads(s3)


@pytest.mark.peers
@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("options", [(), SPLIT])
def test_no_bucket(options: tuple[str, ...]) -> None:
    result = convert("s3://nowhere/x.gguf", *options)
    assert result.exit_code == 2
    assert "there is no such bucket" in result.stderr


@pytest.mark.peers
def test_no_permission(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    asked = S3FileSystem._call_s3

    async def call(self: Any, method: str, *more: Any, **named: Any) -> Any:
        if method.startswith(("put", "create_multipart")):
            raise PermissionError("sesame")
        return await asked(self, method, *more, **named)

    monkeypatch.setattr(S3FileSystem, "_call_s3", call)
    result = convert(f"s3://{BUCKET}/x.gguf")
    assert result.exit_code == 3
    assert "access is refused" in result.stderr
    assert not objects(s3)


@pytest.mark.peers
@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_a_process_that_is_killed(s3: Any, tmp_path: Path, resume: tuple[str, ...]) -> None:
    url = f"s3://{BUCKET}/x.gguf"
    arguments = ["convert", str(MODEL), "-o", url, "--split-max-size", "20KB", *resume]
    process = subprocess.Popen(
        [sys.executable, "-m", "maxtool", *arguments], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    end = time.monotonic() + 60
    while sum(name.endswith(".gguf.json") for name in objects(s3)) < 2:
        assert time.monotonic() < end
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not [name for name in objects(s3) if name.startswith("x")]
    s3.create_multipart_upload(Bucket=BUCKET, Key=".x.gguf.maxtool-parts/x-00009-of-00009.gguf")
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert bool(json.loads(result.stdout)["kept"]) == bool(resume)
    assert objects(s3) == written(tmp_path / "here", "x.gguf", "--split-max-size", "20KB")
    assert not uploads(s3)
