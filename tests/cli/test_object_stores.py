"""Sources in object stores: S3 as moto's server speaks it, and filesystems of fsspec in memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.errors import ChangedFile, TransferFailed
from maxtool.weights.remote.announced import announced
from maxtool.weights.remote.filesystem import FilesystemStore
from tests.cli.s3_server import BUCKET, serving

fsspec = pytest.importorskip("fsspec")
MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"
WEIGHTS = "model.safetensors"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAXTOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("maxtool.weights.remote.patience.WAITS", (0.0, 0.0))
    return tmp_path / "cache"


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    for path in MODEL.iterdir():
        if path.is_file():
            system.pipe_file(f"/models/llama/{path.name}", path.read_bytes())
    yield system
    system.store.clear()


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert "sesame" not in result.output
    return result


def convert(url: str) -> Result:
    return run("convert", url, "-o", "out.gguf", "--json", "--force")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    output = tmp_path_factory.mktemp("expected") / "out.gguf"
    assert run("convert", str(MODEL), "-o", str(output)).exit_code == 0
    return output.read_bytes()


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("path", ["models/llama", f"models/llama/{WEIGHTS}"])
def test_a_filesystem_of_fsspec(expected: bytes, path: str) -> None:
    result = convert(f"memory://{path}")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == expected
    told = json.loads(result.stdout)["origin"]["files"][WEIGHTS]
    assert told["bytes"] == (MODEL / WEIGHTS).stat().st_size
    assert told["version"]
    inspected = run("inspect-weights", f"memory://{path}", "--json")
    assert inspected.exit_code == 0, inspected.output


def test_a_folder_is_listed(memory: Any) -> None:
    for name in (WEIGHTS, "model-a.gguf", "model-b.gguf"):
        memory.pipe_file(f"/models/several/{name}", bytes(9))
    memory.rm(f"/models/several/{WEIGHTS}")
    result = convert("memory://models/several")
    assert result.exit_code == 3
    assert "name the one that is meant, such as memory://models/several/model-a.gguf" in (
        result.stderr
    )
    assert "no weights are there" in convert("memory://models/nothing").stderr


@pytest.mark.usefixtures("memory")
def test_names_that_lead_out_of_a_folder_are_not_followed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = FilesystemStore.listed
    odd = {"../config.json": 3, "/etc/config.json": 3, "modules.json": 3, "../x.gguf": 3}
    monkeypatch.setattr(
        FilesystemStore, "listed", lambda self, url: (listed(self, url) or {}) | odd
    )
    result = convert("memory://models/llama")
    assert result.exit_code == 3
    assert "modules.json" in result.stderr  # which is not there after all
    assert not list(cache.rglob("snapshots"))


def test_an_object_that_is_replaced(memory: Any) -> None:
    store, url = FilesystemStore(), f"memory://models/llama/{WEIGHTS}"
    store.describe(url)
    store.check_same(url)
    memory.pipe_file(f"/models/llama/{WEIGHTS}", b"another")
    with pytest.raises(ChangedFile, match="was replaced"):
        store.check_same(url)


# What Google's and Azure's filesystems tell of an object, and what is announced then.
TOLD: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"md5Hash": "AA==", "crc32c": "BB=="}, {"x-goog-hash": "md5=AA==,crc32c=BB=="}),
    ({"content_settings": {"content_md5": b"ab"}}, {"x-ms-blob-content-md5": "YWI="}),
    ({"content_settings": {"content_md5": None}}, {}),
    ({}, {}),
]


@pytest.mark.parametrize(("info", "headers"), TOLD)
def test_checksums_of_objects(
    info: dict[str, Any], headers: dict[str, str], memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = {"size": 3, "type": "file", "generation": "7", "etag": "x"}
    monkeypatch.setattr(type(memory), "info", lambda *_: common | info)
    told = FilesystemStore().describe("memory://models/x")
    assert (told.size, told.version, told.headers) == (3, "7", headers)


class Nobody(Exception):
    """An error of a package that finds no credentials."""


Nobody.__name__ = "NoCredentialsError"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Nobody("sesame"), "no credentials were found for memory://"),
        (PermissionError("sesame"), "access is refused"),
        (RuntimeError("sesame"), "cannot be read: RuntimeError"),
    ],
)
def test_errors_of_filesystems(
    error: Exception, message: str, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for name in ("info", "find"):
        monkeypatch.setattr(type(memory), name, fail)
    result = convert("memory://models/llama")
    assert result.exit_code == 3
    assert message in result.stderr


def test_settings_that_a_filesystem_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise ValueError("sesame")

    monkeypatch.setattr("fsspec.core.url_to_fs", fail)
    result = convert("az://container/llama")
    assert result.exit_code == 3
    assert "settings of az:// are missing or wrong: ValueError" in result.stderr
    assert convert("nope://container/llama").exit_code == 2


# S3.


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A client of a server on this machine, which has a bucket with a model."""
    with serving() as client:
        for path in MODEL.iterdir():
            if path.is_file():
                client.put_object(Bucket=BUCKET, Key=f"llama/{path.name}", Body=path.read_bytes())
        yield client


@pytest.mark.peers
@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("path", ["llama", "llama/", f"llama/{WEIGHTS}"])
def test_a_model_in_s3(expected: bytes, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"s3://bucket/{path}"
    result = convert(url)
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == expected
    told = json.loads(result.stdout)["origin"]
    assert told["name"] == url
    assert len(told["files"][WEIGHTS]["version"].strip('"')) == 32  # its ETag
    inspected = run("inspect-weights", url, "--json")
    assert inspected.exit_code == 0, inspected.output
    monkeypatch.setattr("maxtool.sources.url_origin.transfer", None)
    assert convert(url).exit_code == 0, "it is in the cache"


@pytest.mark.peers
@pytest.mark.usefixtures("s3")
def test_a_wrong_checksum_of_s3(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    from s3fs import S3FileSystem

    read = S3FileSystem._cat_file

    async def damaged(self: Any, path: str, **more: Any) -> bytes:
        data = bytes(await read(self, path, **more))
        return data[:-1] + bytes([data[-1] ^ 1])

    with monkeypatch.context() as patch:
        patch.setattr(S3FileSystem, "_cat_file", damaged)
        S3FileSystem.clear_instance_cache()  # an instance has its methods from when it was made
        result = convert("s3://bucket/llama")
    S3FileSystem.clear_instance_cache()
    assert result.exit_code == 3
    assert "what came is not the file that is listed" in result.stderr
    assert not list(cache.rglob("*.incomplete"))


@pytest.mark.peers
@pytest.mark.usefixtures("s3")
def test_what_s3_has_not() -> None:
    for url in ("s3://bucket/none", "s3://nowhere/none", f"s3://bucket/none/{WEIGHTS}"):
        result = convert(url)
        assert result.exit_code == 3, result.output
        assert "no such file" in result.stderr or "no weights are there" in result.stderr


@pytest.mark.peers
def test_objects_of_several_parts(s3: Any, expected: bytes) -> None:
    key = f"parts/{WEIGHTS}"
    begun = s3.create_multipart_upload(Bucket="bucket", Key=key)
    named = {"Bucket": "bucket", "Key": key, "UploadId": begun["UploadId"]}
    data = (MODEL / WEIGHTS).read_bytes()
    part = s3.upload_part(**named, PartNumber=1, Body=data)
    parts = [{"ETag": part["ETag"], "PartNumber": 1}]
    s3.complete_multipart_upload(**named, MultipartUpload={"Parts": parts})
    for path in MODEL.iterdir():
        if path.is_file() and path.name != WEIGHTS:
            s3.put_object(Bucket="bucket", Key=f"parts/{path.name}", Body=path.read_bytes())
    result = convert("s3://bucket/parts")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == expected
    told = json.loads(result.stdout)["origin"]["files"][WEIGHTS]
    assert told["version"].strip('"').endswith("-1")  # no MD5, and not taken for one


@pytest.mark.peers
def test_an_object_that_a_client_put_in_parts_of_its_own(s3: Any, expected: bytes) -> None:
    """Read what boto3 makes of large files: with a checksum of the parts' checksums."""
    transfer = pytest.importorskip("boto3.s3.transfer")
    small = transfer.TransferConfig(multipart_threshold=1 << 10, multipart_chunksize=5 << 20)
    for path in MODEL.iterdir():
        if path.is_file():
            s3.upload_file(str(path), "bucket", f"client/{path.name}", Config=small)
    head = s3.head_object(Bucket="bucket", Key=f"client/{WEIGHTS}", ChecksumMode="ENABLED")
    assert head["ETag"].endswith('-1"')
    assert head["ChecksumCRC32"]
    result = convert("s3://bucket/client")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == expected


@pytest.mark.peers
def test_the_checksums_that_objects_are_stored_with(s3: Any) -> None:
    for algorithm in ("CRC32", "SHA1", "SHA256"):
        name = f"x-amz-checksum-{algorithm.lower()}"
        s3.put_object(Bucket="bucket", Key="x", Body=b"x", ChecksumAlgorithm=algorithm)
        told = FilesystemStore().describe("s3://bucket/x")
        assert announced(told.headers, b"", 1) is not None
        assert told.headers[name]


@pytest.mark.peers
@pytest.mark.usefixtures("s3")
def test_a_read_that_waits_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    waits = threading.Event()

    async def wait(*_: object, **__: object) -> bytes:
        waits.set()
        await asyncio.sleep(600)
        return b""

    monkeypatch.setattr(S3FileSystem, "_cat_file", wait)
    S3FileSystem.clear_instance_cache()
    store, url = FilesystemStore(), f"s3://bucket/llama/{WEIGHTS}"
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(store.read, url, 0, 10)
        assert waits.wait(60)
        store.stop()
        with pytest.raises(TransferFailed):
            reading.result(60)
    S3FileSystem.clear_instance_cache()
