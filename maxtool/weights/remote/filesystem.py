"""Ranges of files by a filesystem of fsspec."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from maxtool.errors import AccessRefused, ChangedFile, InputError
from maxtool.urls import redacted
from maxtool.weights.remote.filesystems import REFUSED, cancel_waiting, filesystem
from maxtool.weights.remote.store import Described, Piece, Store

# Checksums of objects by their names in the header, and in what gcsfs tells of them.
HASHES = {"md5": "md5Hash", "crc32c": "crc32c"}
# Fields of what a filesystem tells of a file that tell it from later ones, the best first.
VERSIONS = (
    *("VersionId", "version_id", "generation", "ETag", "etag", "sha"),
    *("LastModified", "last_modified", "updated", "modified", "mtime", "created"),
)
# Buckets of S3 in one zone, whose ETags are no checksums.
ONE_ZONE = "--x-s3"


class FilesystemStore(Store):
    """Files of whatever fsspec has a filesystem for; it takes credentials from its own settings."""

    def __init__(self) -> None:
        super().__init__()
        self._described: dict[str, Described] = {}

    def stop(self) -> None:
        """Cancel what filesystems wait for, so that every read in flight ends at once."""
        super().stop()
        cancel_waiting()

    def describe(self, url: str) -> Described:
        """Look a file up; headers are those that a server of its kind would send."""
        told = self._described[url] = self._look(url)
        return told

    def listed(self, url: str) -> dict[str, int] | None:
        """The sizes of files in a folder and in folders in it; None where that is not allowed."""
        try:
            with filesystem(url) as (system, path):
                found = system.find(path, maxdepth=2, detail=True)
        except AccessRefused as error:
            if error.what == REFUSED:
                return None
            raise
        start = f"{path.rstrip('/')}/"
        return {
            name.removeprefix(start): int(info["size"])
            for name, info in sorted(found.items())
            if name.startswith(start) and info.get("size") is not None
        }

    def check_same(self, url: str) -> None:
        """Look a file up again; ``ChangedFile`` if it is another one."""
        if url in self._described and self._look(url)[:2] != self._described[url][:2]:
            what, hint = "the file was replaced while it was read", "run this again"
            raise ChangedFile(what, file=redacted(url), hint=hint)

    def _look(self, url: str) -> Described:
        with filesystem(url) as (system, path):
            system.invalidate_cache()
            if hasattr(system, "call_s3"):
                return _of_s3(system, path)
            info = system.info(path)
            if info["type"] != "file":
                raise FileNotFoundError
            return Described(int(info["size"]), _version(info), _headers(info), b"")

    def _read(self, url: str, start: int, count: int) -> Piece:
        known = self._described.get(url) or self.describe(url)
        with filesystem(url) as (system, path):
            end = min(start + count, known.size)
            data = bytes(system.cat_file(path, start=start, end=end)) if start < end else b""
        if len(data) != max(end - start, 0):
            what = f"asked for bytes {start} to {end - 1} of {known.size}, {len(data)} came"
            raise InputError(what, file=redacted(url))
        return Piece(data, known.size)


def _of_s3(system: Any, path: str) -> Described:  # noqa: ANN401 - an s3fs.S3FileSystem
    """An object as S3 describes it, with the checksum that it was stored with."""
    bucket, key, version = system.split_path(path)
    named = {"Bucket": bucket, "Key": key} | ({"VersionId": version} if version else {})
    if not key:
        raise FileNotFoundError
    told = system.call_s3("head_object", **named, ChecksumMode="ENABLED")
    headers = {str(k).lower(): str(v) for k, v in told["ResponseMetadata"]["HTTPHeaders"].items()}
    headers.setdefault("x-amz-request-id", "")  # some servers that speak S3 leave it out
    if bucket.endswith(ONE_ZONE):
        headers.pop("etag", None)
    return Described(int(told["ContentLength"]), _version(told), headers, b"")


def _version(info: Mapping[str, Any]) -> str | None:
    """The field that tells a file from later ones; S3 calls the version null where none is kept."""
    known = (info.get(name) for name in VERSIONS)
    return next((str(one) for one in known if one not in (None, "", "null")), None)


def _headers(info: Mapping[str, Any]) -> dict[str, str]:
    """The checksums that Google's and Azure's filesystems tell, as their servers' headers."""
    hashes = [f"{name}={info[key]}" for name, key in HASHES.items() if info.get(key)]
    settings = info.get("content_settings") or {}
    md5 = settings.get("content_md5") if hasattr(settings, "get") else None
    return {
        **({"x-goog-hash": ",".join(hashes)} if hashes else {}),
        **({"x-ms-blob-content-md5": base64.b64encode(bytes(md5)).decode()} if md5 else {}),
    }
