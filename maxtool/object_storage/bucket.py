"""Objects of a store: listed, written, copied by it, removed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from maxtool.errors import MissingFile, TransferFailed, UsageError
from maxtool.urls import redacted
from maxtool.weights.remote.filesystem import FilesystemStore
from maxtool.weights.remote.filesystems import ABSENT, filesystem
from maxtool.weights.remote.store import Described

MAX_BYTES = 1 << 26
# Of a copy that the store makes by and by: seconds between looks, and for each GiB of it at most.
LOOK, PER_GIB, AT_LEAST = 0.5, 120.0, 60.0


@contextmanager
def writable(url: str, done: str = "written") -> Iterator[tuple[Any, str]]:
    """Yield the filesystem of a URL, and its name for the object, to change what is there.

    ``UsageError`` if there is no such bucket; otherwise as ``filesystem``.
    """
    try:
        with filesystem(url, done) as found:
            yield found
    except MissingFile as error:
        if error.what != ABSENT:
            raise
        raise UsageError("there is no such bucket", file=redacted(url)) from None


def below(url: str) -> dict[str, int]:
    """The sizes of all objects whose names begin with that of a folder, by the rest of the name."""
    with filesystem(url, "listed") as (system, path):
        system.invalidate_cache()
        found = system.find(path, detail=True)
    start = f"{path.strip('/')}/"
    named = {name.strip("/"): info for name, info in found.items() if info["type"] == "file"}
    return {
        name.removeprefix(start): int(info["size"])
        for name, info in sorted(named.items())
        if name.startswith(start)
    }


def names_in(url: str) -> set[str]:
    """The names of the objects in a folder, without those in folders of it."""
    with filesystem(url, "listed") as (system, path):
        system.invalidate_cache()
        found = system.find(path, maxdepth=1, detail=True)
    start = f"{path.strip('/')}/"
    names = {name.strip("/") for name, info in found.items() if info["type"] == "file"}
    rest = {name.removeprefix(start) for name in names if name.startswith(start)}
    return {name for name in rest if "/" not in name}


def described(url: str) -> Described | None:
    """An object as its store describes it; None if there is none."""
    try:
        return FilesystemStore().describe(url)
    except MissingFile as error:
        if error.what != ABSENT:
            raise
        return None


def content(url: str) -> bytes:
    """The bytes of a small object, as far as such an object is ever long."""
    with filesystem(url) as (system, path):
        system.invalidate_cache()
        return bytes(system.cat_file(path))[:MAX_BYTES]


def write(url: str, data: bytes) -> None:
    """Write a small object."""
    with writable(url) as (system, path):
        system.pipe_file(path, data)


def copy(source: str, target: str, size: int) -> None:
    """Let the store copy an object of so many bytes; ``TransferFailed`` if it is not there then."""
    with writable(target) as (system, path):
        system.cp_file(located_path(source), path)
        _await_copy(system, path, size)
    told = described(target)
    if told is None or told.size != size:
        what = f"the store was to copy {size} bytes, and has {told.size if told else 'nothing'}"
        raise TransferFailed(what, file=redacted(target))


def located_path(url: str) -> str:
    """The filesystem's name for an object."""
    with filesystem(url) as (_, path):
        return path


def remove(url: str) -> None:
    """Remove an object, if it is there."""
    try:
        with filesystem(url, "removed") as (system, path):
            system.invalidate_cache()
            (system.rm_file if system.async_impl else system.rm)(path)
    except MissingFile as error:
        if error.what != ABSENT:
            raise


def remove_below(url: str) -> None:
    """Remove all objects in a folder and in folders of it."""
    for name in below(url):
        remove(f"{url}/{name}")


def end_uploads(url: str) -> None:
    """End uploads to an object of S3, or to those in a folder, that nobody will complete.

    They take space that no listing shows. Other stores drop theirs in a week. It is a matter of
    tidiness: where that is not allowed, they stay.
    """
    with writable(url) as (system, path):
        if not hasattr(system, "call_s3"):
            return
        bucket, key, _ = system.split_path(path)
        try:
            told = system.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
            keys = [one for one in told.get("Uploads", ()) if is_at(one["Key"], key)]
            for one in keys:
                named = {"Bucket": bucket, "Key": one["Key"], "UploadId": one["UploadId"]}
                system.call_s3("abort_multipart_upload", **named)
        except PermissionError:
            return


def is_at(key: str, place: str) -> bool:
    """Return whether an object has a name, or lies in a folder of that name."""
    return key == place or key.startswith(f"{place}/")


def _await_copy(system: Any, path: str, size: int) -> None:  # noqa: ANN401 - of fsspec
    """Wait for a copy that Azure makes by and by; other stores have made it when they answer."""
    client = getattr(system, "service_client", None)
    if client is None:
        return
    from fsspec.asyn import sync

    container, blob, _ = system.split_path(path)
    asked = client.get_blob_client(container, blob).get_blob_properties
    end = time.monotonic() + max(AT_LEAST, PER_GIB * size / (1 << 30))
    while (status := sync(system.loop, asked).copy.status) == "pending":
        if time.monotonic() > end:
            break
        time.sleep(LOOK)
    if status not in ("success", None):
        raise TransferFailed(f"the store's copy of an object is {status}", file=path)
