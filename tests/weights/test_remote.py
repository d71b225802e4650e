"""Headers behind URLs, from real servers on this machine, honest and not."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from maxtool.errors import InputError, MachineLacks, MalformedFile, MissingFile, UsageError
from maxtool.urls import is_url, redacted
from maxtool.weights import TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf
from maxtool.weights.opened_checkpoint import OpenedCheckpoint, open_anywhere
from maxtool.weights.remote import headers, visit
from maxtool.weights.tensor_info import DType
from tests.effort import thinned
from tests.weights.range_server import Answer, Handler, Server, serve
from tests.weights.remote_model import save_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serve(folder) as running:
        yield running


def assert_like_local(opened: OpenedCheckpoint, local: Path) -> None:
    expected = open_checkpoint(local)
    assert list(opened.checkpoint.tensors) == list(expected.tensors)
    for name, tensor in opened.checkpoint.tensors.items():
        other = expected.tensors[name]
        assert (tensor.shape, tensor.dtype, tensor.offset) == (
            other.shape,
            other.dtype,
            other.offset,
        )
        assert opened.shown(tensor.file).endswith(f"/{other.file.name}")
        assert opened.nbytes(tensor.file) == other.file.stat().st_size
    assert opened.checkpoint.config == expected.config
    assert repr(opened.checkpoint.metadata) == repr(expected.metadata)


@pytest.mark.parametrize(
    ("name", "local", "requests"),
    [
        ("one.safetensors", "one.safetensors", 2),
        ("m.gguf", "m.gguf", 4),
        ("model.safetensors.index.json", "", 4),
        ("", "", 4),
        ("model-00001-of-00002.safetensors", "model-00001-of-00002.safetensors", 2),
    ],
)
def test_only_headers_are_transferred(
    server: Server, folder: Path, name: str, local: str, requests: int
) -> None:
    opened = open_anywhere(f"{server.url}/{name}")
    assert_like_local(opened, folder / local)
    assert opened.remote is not None
    assert opened.remote.requests == requests
    assert opened.remote.nbytes == server.sent
    payload = sum(tensor.nbytes for tensor in opened.checkpoint.tensors.values())
    largest = 3 << 20 if name == "m.gguf" else requests * headers.FIRST_BYTES
    assert server.sent < largest < payload + (1 << 20)


def test_a_long_header_is_fetched_in_growing_pieces(tmp_path: Path) -> None:
    arrays = {f"layer.{n}.weight": np.zeros(1, np.float32) for n in range(20_000)}
    safetensors.numpy.save_file(arrays, tmp_path / "x.safetensors")
    with serve(tmp_path) as server:
        opened = open_anywhere(f"{server.url}/x.safetensors")
    assert_like_local(opened, tmp_path / "x.safetensors")
    assert opened.remote is not None
    assert opened.remote.requests == 2  # with the attempt at config.json that is not counted


def test_payloads_are_not_read(server: Server) -> None:
    opened = open_anywhere(f"{server.url}/one.safetensors")
    with pytest.raises(InputError, match="only the headers of remote files are read"):
        opened.read("w")


def test_the_parts_of_a_split_file(tmp_path: Path) -> None:
    for number in (1, 2):
        metadata = {"split.count": np.uint16(2), "split.no": np.uint16(number - 1)}
        spec = TensorSpec(f"t{number}", DType.float32, (4,))
        path = tmp_path / f"m-0000{number}-of-00002.gguf"
        gguf.write(path, [spec], [np.ones(4, np.float32)], metadata)
    with serve(tmp_path) as server:
        opened = open_anywhere(f"{server.url}/m-00002-of-00002.gguf")
        assert list(opened.checkpoint.tensors) == ["t1", "t2"]
        (tmp_path / "m-00001-of-00002.gguf").unlink()
        with pytest.raises(MissingFile, match="no such file") as caught:
            open_anywhere(f"{server.url}/m-00002-of-00002.gguf")
        assert caught.value.file == f"{server.url}/m-00001-of-00002.gguf"


# Servers that do not do what they must.


def without_ranges(handler: Handler, data: bytes, _start: int, _last: int) -> None:
    handler.send(200, data)


def endless(handler: Handler, _data: bytes, _start: int, _last: int) -> None:
    handler.send(200, bytes(1 << 16), Content_Length=1 << 60)


def other_bytes(handler: Handler, data: bytes, start: int, last: int) -> None:
    handler.send(
        206,
        data[start + 1 : last + 2],
        Content_Range=f"bytes {start + 1}-{last + 1}/{len(data)}",
    )


def no_content_range(handler: Handler, data: bytes, start: int, last: int) -> None:
    handler.send(206, data[start : last + 1])


def unknown_size(handler: Handler, data: bytes, start: int, last: int) -> None:
    handler.send(206, data[start : last + 1], Content_Range=f"bytes {start}-{last}/*")


def too_large(handler: Handler, data: bytes, start: int, last: int) -> None:
    whole = f"bytes {start}-{last}/{len(data) + 4096}"
    handler.send(206, data[start : last + 1], Content_Range=whole)


def too_small(handler: Handler, data: bytes, start: int, last: int) -> None:
    whole = f"bytes {start}-{last}/{len(data) - 4096}"
    handler.send(206, data[start : last + 1], Content_Range=whole)


def absurdly_large(handler: Handler, data: bytes, start: int, last: int) -> None:
    whole = f"bytes {start}-{last}/{10**18 - 1}"
    handler.send(206, data[start : last + 1], Content_Range=whole)


def longer_than_announced(handler: Handler, data: bytes, start: int, last: int) -> None:
    body = data[start : last + 1] + bytes(1 << 20)
    handler.send(206, body, Content_Range=f"bytes {start}-{last}/{len(data)}")


def cut_off(handler: Handler, data: bytes, start: int, last: int) -> None:
    body = data[start : last + 1]
    size = f"bytes {start}-{last}/{len(data)}"
    handler.send(206, body[:100], Content_Range=size, Content_Length=len(body))
    handler.close_connection = True


def compressed(handler: Handler, data: bytes, start: int, last: int) -> None:
    size = f"bytes {start}-{last}/{len(data)}"
    handler.send(206, data[start : last + 1], Content_Range=size, Content_Encoding="gzip")


def broken(handler: Handler, _data: bytes, _start: int, _last: int) -> None:
    handler.send(503, b"")


def not_http(handler: Handler, _data: bytes, _start: int, _last: int) -> None:
    handler.wfile.write(b"\x00\x01\x02 what?\r\n\r\n")
    handler.close_connection = True


def to_a_file(handler: Handler, _data: bytes, _start: int, _last: int) -> None:
    handler.refuse(302, Location="file:///etc/passwd")


def around(handler: Handler, _data: bytes, _start: int, _last: int) -> None:
    handler.refuse(302, Location=handler.path)


def growing(handler: Handler, data: bytes, start: int, last: int) -> None:
    size = len(data) if start == 0 else len(data) + 1
    handler.send(206, data[start : last + 1], Content_Range=f"bytes {start}-{last}/{size}")


MISBEHAVING: dict[Answer, str] = {
    without_ranges: "does not support range requests",
    endless: "does not support range requests",
    other_bytes: "asked for bytes 0 to 262143, the server sends 1 to",
    no_content_range: "does not say which bytes",
    unknown_size: "does not say which bytes",
    too_large: "4096 bytes belong to no tensor",
    too_small: "outside 0 to|needs .* bytes and",
    absurdly_large: "more than any file can have here|belong to no tensor|cannot be read",
    longer_than_announced: "announced 262144 bytes and sent more",
    cut_off: "announced 262144 bytes and sent 100",
    compressed: "compresses what it sends",
    broken: "answers HTTP 503",
    not_http: "not valid HTTP",
    to_a_file: "redirects to something that is not HTTP|answers HTTP 302",
    around: "answers HTTP 302",
}


@pytest.mark.parametrize("answer", MISBEHAVING, ids=lambda answer: answer.__name__)
@pytest.mark.parametrize("name", thinned(["one.safetensors", "m.gguf"], "one.safetensors"))
def test_misbehaving_servers(folder: Path, answer: Answer, name: str) -> None:
    with serve(folder, answer) as server:
        url = f"http://user:sesame@127.0.0.1:{server.server_port}/{name}?token=sesame"
        with pytest.raises(InputError, match=MISBEHAVING[answer]) as caught:
            open_anywhere(url)
    assert caught.value.file == f"{server.url}/{name}"
    assert "sesame" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_file_that_changes_meanwhile(folder: Path) -> None:
    with (
        serve(folder, growing) as server,
        pytest.raises(InputError, match="bytes and now has"),
    ):
        open_anywhere(f"{server.url}/m.gguf")


def test_small_files_need_no_ranges(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"w": np.ones(4, np.float32)}, tmp_path / "x.safetensors")
    with serve(tmp_path, without_ranges) as server:
        assert list(open_anywhere(f"{server.url}/x.safetensors").checkpoint.tensors) == ["w"]


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_what_is_not_there(folder: Path, code: int) -> None:
    def refuse(handler: Handler, *_: object) -> None:
        handler.refuse(code)

    with serve(folder, refuse) as server, pytest.raises(MissingFile, match=f"HTTP {code}"):
        open_anywhere(f"{server.url}/one.safetensors")


def test_an_empty_folder_says_what_was_looked_for(tmp_path: Path) -> None:
    with serve(tmp_path) as server, pytest.raises(MissingFile) as caught:
        open_anywhere(f"{server.url}/models/llama")
    assert "model.safetensors.index.json or model.safetensors" in caught.value.what
    assert caught.value.file == f"{server.url}/models/llama"


def test_a_missing_shard_is_named(server: Server, folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(MissingFile, match="no such file") as caught:
        open_anywhere(server.url)
    assert caught.value.file == f"{server.url}/model-00002-of-00002.safetensors"


@pytest.mark.parametrize("shard", ["../up.safetensors", "/etc/passwd", "http://x/y.safetensors"])
def test_shards_outside_the_folder_are_not_asked_for(
    server: Server, folder: Path, shard: str
) -> None:
    index = {"weight_map": {"a": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises((MalformedFile, MissingFile)):
        open_anywhere(server.url)
    inside = {f"/{name}" for name in ("model.safetensors.index.json", "config.json")}
    assert all(path in inside or path.startswith("/http%3A") for path, _ in server.asked)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"PK\x03\x04" + bytes(100), "the header needs"), (b"", "needs 8 bytes"), (b"{}", "needs 8")],
)
def test_other_content(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with serve(tmp_path) as server, pytest.raises(MalformedFile, match=message) as caught:
        open_anywhere(f"{server.url}/x.safetensors")
    assert caught.value.file == f"{server.url}/x.safetensors"


def test_a_header_too_large_to_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "MAX_HEADER_BYTES", 1 << 19)
    metadata = {"k": np.zeros(1 << 20, np.uint8)}
    gguf.write(tmp_path / "m.gguf", [], [], metadata)
    with serve(tmp_path) as server, pytest.raises(MalformedFile, match="is not fetched"):
        open_anywhere(f"{server.url}/m.gguf")
    assert server.sent <= 1 << 19


# Credentials and redirects.


def test_credentials_are_sent_and_never_shown(server: Server) -> None:
    server.asks_for = base64.b64encode(b"user:ses:ame").decode()
    place = server.url.removeprefix("http://")
    opened = open_anywhere(f"http://user:ses%3Aame@{place}/one.safetensors?sig=s3cret#x")
    shown = [opened.location, opened.name, *map(opened.shown, opened.checkpoint.files)]
    assert shown == [
        f"{server.url}/one.safetensors",
        "one.safetensors",
        f"{server.url}/one.safetensors",
    ]
    assert server.asked[0][0].endswith("?sig=s3cret")
    with pytest.raises(MissingFile, match="asks for credentials"):
        open_anywhere(f"{server.url}/one.safetensors")


def test_redirects_are_followed_without_credentials(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit, "is_public", lambda _: True)

    def elsewhere(handler: Handler, *_: object) -> None:
        handler.refuse(302, Location=f"{other.url}{handler.path}")

    with serve(folder) as other, serve(folder, elsewhere) as server:
        place = server.url.removeprefix("http://")
        opened = open_anywhere(f"http://user:sesame@{place}/one.safetensors")
    assert_like_local(opened, folder / "one.safetensors")
    assert opened.shown(opened.checkpoint.files[0]) == f"{server.url}/one.safetensors"
    assert all("Authorization" in asked for _, asked in server.asked)
    assert other.asked
    assert not any("Authorization" in asked for _, asked in other.asked)


REDACTED = {
    "https://user:pw@host/a.gguf?token=x#y": "https://host/a.gguf",
    "https://user:p@w@host/a.gguf": "https://host/a.gguf",
    "https://host?key=secret": "https://host",
    "https://host/a@b/c.gguf": "https://host/a@b/c.gguf",
    "s3://key:secret@bucket/a": "s3://bucket/a",
    "https://user:p/w@host/x": "https://host/x",
    "https://host:8080/a@b/c.gguf": "https://host:8080/a@b/c.gguf",
    "abfss://container@account.dfs.core.windows.net/a?sig=x": (
        "abfss://container@account.dfs.core.windows.net/a"
    ),
    "abfss://user:secret@account/a": "abfss://account/a",
    "no url?": "no url?",
}


@pytest.mark.parametrize("url", REDACTED)
def test_redaction(url: str) -> None:
    assert redacted(url) == REDACTED[url]


def test_urls_are_told_from_paths() -> None:
    assert all(map(is_url, ("http://x", "HTTPS://x/y", "s3://b/k", "memory://a")))
    assert not any(map(is_url, ("/a/b", "a.gguf", "C:\\x", "./http:/x", "c://x", "")))


NO_URLS = {
    "http://[::1/x.gguf": "not a valid URL",
    "http://[sesame]/x.gguf": "not a valid URL",
    "http://127.0.0.1:99999/x.gguf": "its port is not a number from 1 to 65535",
    "http://127.0.0.1:0/x.gguf": "its port is not a number from 1 to 65535",
    "http://user:sesame:1@127.0.0.1:y/x.gguf": "its port is not a number from 1 to 65535",
    "http:///": "it names no host",
    "http:///m.gguf": "it names no host",
    "http://user:sesame@/m.gguf": "it names no host",
}


@pytest.mark.parametrize("url", NO_URLS)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(UsageError, match=NO_URLS[url]) as caught:
        open_anywhere(url)
    assert "sesame" not in caught.value.what


def test_nobody_listens(folder: Path) -> None:
    with serve(folder) as server:
        url = server.url
    with pytest.raises(InputError, match="cannot be read: Connection refused"):
        open_anywhere(f"{url}/one.safetensors")


# fsspec.


def test_fsspec_reads_headers_only(folder: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    for path in folder.iterdir():
        memory.pipe_file(f"/models/{path.name}", path.read_bytes())
    try:
        assert_like_local(open_anywhere("memory://models"), folder)
        opened = open_anywhere("memory://models/m.gguf")
        assert_like_local(opened, folder / "m.gguf")
        assert opened.remote is not None
        assert opened.remote.nbytes < 3 << 20
        with pytest.raises(MissingFile, match="no such file"):
            open_anywhere("memory://models/none.gguf")
    finally:
        memory.rm("/models", recursive=True)


def test_unknown_protocols() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UsageError, match="nope:// is not a protocol"):
        open_anywhere("nope://user:sesame@x/y.gguf")


PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}


@pytest.mark.parametrize("module", ["fsspec.core", "fsspec.implementations.sftp"])
@pytest.mark.parametrize("scheme", PACKAGES)
def test_missing_packages_are_named_as_the_index_has_them(
    scheme: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, PACKAGES[scheme], None)
    with pytest.raises(MachineLacks) as caught:
        open_anywhere(f"{scheme}://bucket/x.gguf")
    assert caught.value.hint == f"pip install fsspec {PACKAGES[scheme]}"


def test_what_fsspec_says_of_other_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, "wandbfs", None)
    with pytest.raises(MachineLacks) as caught:
        open_anywhere("wandb://user:sesame@bucket/x.gguf")
    hint = "pip install fsspec, and what it needs for wandb://: Install wandbfs to access wandb"
    assert caught.value.hint == hint


def test_connections_are_encrypted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (openssl := shutil.which("openssl")):
        pytest.skip("needs openssl, to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serve(folder) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http:", "https:") + "/one.safetensors"
        with pytest.raises(InputError, match=r"cannot be read: .*certificate"):
            open_anywhere(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert_like_local(open_anywhere(url), folder / "one.safetensors")
