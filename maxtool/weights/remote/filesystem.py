"""Ranges of files by fsspec, which knows s3://, gs://, az:// and many more."""

from __future__ import annotations

import base64
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from maxtool.errors import (
    AccessRefused,
    ChangedFile,
    InputError,
    MachineLacks,
    MaxtoolError,
    MissingFile,
    TransferFailed,
    UsageError,
)
from maxtool.urls import redacted, scheme
from maxtool.weights.remote.store import Described, Piece, Store

# What fsspec needs for a protocol, by the name in the package index; for http:// nothing is.
PACKAGES: Mapping[str, str] = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "oci": "ocifs",
    "oss": "ossfs",
    "smb": "smbprotocol",
    "webdav": "webdav4",
}


# Checksums of objects by their names in the header, and in what gcsfs tells of them.
HASHES = {"md5": "md5Hash", "crc32c": "crc32c"}
# Packages whose warnings Python would print where nobody says what becomes of them.
LOGGING = ("fsspec", "s3fs", "aiobotocore", "botocore", "gcsfs", "adlfs", "azure")
_SILENT = logging.NullHandler()
REFUSED = "access is refused"
SETTINGS = "its package reads them from its own environment variables and files: credentials, and "
SETTINGS += "what else it needs, such as AZURE_STORAGE_ACCOUNT_NAME"
# Names of the errors of packages, all of one kind: nobody said who asks.
NO_CREDENTIALS = re.compile(r".*(Credential|Authentication|TokenRetrieval|SSOToken|Refresh).*Error")
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
        self._alone = threading.Lock()  # of filesystems that are not made for threads

    def describe(self, url: str) -> Described:
        """Look a file up; headers are those that a server of its kind would send."""
        told = self._described[url] = self._look(url)
        return told

    def listed(self, url: str) -> dict[str, int] | None:
        """The sizes of files in a folder and in folders in it; None where that is not allowed."""
        try:
            with self._filesystem(url) as (system, path):
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
        with self._filesystem(url) as (system, path):
            system.invalidate_cache()
            if hasattr(system, "call_s3"):
                return _of_s3(system, path)
            info = system.info(path)
            if info["type"] != "file":
                raise FileNotFoundError
            return Described(int(info["size"]), _version(info), _headers(info), b"")

    def _read(self, url: str, start: int, count: int) -> Piece:
        known = self._described.get(url) or self.describe(url)
        with self._filesystem(url) as (system, path):
            end = min(start + count, known.size)
            data = bytes(system.cat_file(path, start=start, end=end)) if start < end else b""
        if len(data) != max(end - start, 0):
            what = f"asked for bytes {start} to {end - 1} of {known.size}, {len(data)} came"
            raise InputError(what, file=redacted(url))
        return Piece(data, known.size)

    @contextmanager
    def _filesystem(self, url: str) -> Iterator[tuple[Any, str]]:
        """The filesystem of a URL, and its name for the file; its errors in words of ours."""
        system, path = _located(url)
        try:
            with nullcontext() if getattr(system, "async_impl", False) else self._alone:
                yield system, path
        except MaxtoolError:
            raise
        except FileNotFoundError:
            raise MissingFile("no such file", file=redacted(url)) from None
        except PermissionError:
            raise AccessRefused(REFUSED, file=redacted(url)) from None
        except ImportError as error:
            raise _lacking(url, error) from None
        except Exception as error:  # every filesystem has errors of its own, with secrets in them
            kind = type(error).__name__
            if NO_CREDENTIALS.fullmatch(kind):
                what, hint = f"no credentials were found for {scheme(url)}://: {kind}", SETTINGS
                raise AccessRefused(what, file=redacted(url), hint=hint) from None
            raise TransferFailed(f"cannot be read: {kind}", file=redacted(url)) from None


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


def _located(url: str) -> tuple[Any, str]:
    """The filesystem of a URL, and its name for the file."""
    for name in LOGGING:  # what matters of it is told by our errors
        logging.getLogger(name).addHandler(_SILENT)
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import known_implementations

        located: tuple[Any, str] = url_to_fs(url)
    except ImportError as error:
        raise _lacking(url, error) from None
    except Exception as error:  # as of all that filesystems do
        if scheme(url) in known_implementations:
            what = f"settings of {scheme(url)}:// are missing or wrong: {type(error).__name__}"
            raise MissingFile(what, file=redacted(url), hint=SETTINGS) from None
        what = f"{scheme(url)}:// is not a protocol that fsspec knows"
        raise UsageError(what, file=redacted(url)) from None
    return located


def _lacking(url: str, error: ImportError) -> MachineLacks:
    """The error saying what to install for a protocol; fsspec explains those not in the table."""
    protocol = scheme(url)
    hint = f"pip install fsspec {PACKAGES.get(protocol, '')}".rstrip()
    if protocol not in PACKAGES and error.name != "fsspec":
        hint = f"{hint}, and what it needs for {protocol}://: {str(error).partition(chr(10))[0]}"
    what = f"{protocol}:// needs a package that is not installed"
    return MachineLacks(what, file=redacted(url), hint=hint)
