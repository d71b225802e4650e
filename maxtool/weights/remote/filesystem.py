"""Ranges of files by fsspec, which knows s3://, gs://, hf:// and many more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.errors import InputError, MachineLacks, MissingFile, UsageError
from maxtool.weights.remote.store import Piece, Store
from maxtool.weights.remote.url import redacted, scheme

# What fsspec needs for a protocol, by the name in the package index; for http:// nothing is.
PACKAGES: Mapping[str, str] = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "hf": "huggingface_hub",
    "oci": "ocifs",
    "oss": "ossfs",
    "smb": "smbprotocol",
    "webdav": "webdav4",
}


class FilesystemStore(Store):
    """Files of whatever fsspec has a filesystem for; it takes credentials from its own settings."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, int] = {}

    def _read(self, url: str, start: int, count: int) -> Piece:
        system, path = _located(url)
        try:
            if url not in self._sizes:
                self._sizes[url] = int(system.info(path)["size"])
            total = self._sizes[url]
            data = bytes(system.cat_file(path, start=start, end=min(start + count, total)))
        except FileNotFoundError:
            raise MissingFile("no such file", file=redacted(url)) from None
        except PermissionError:
            raise MissingFile("access is refused", file=redacted(url)) from None
        except ImportError as error:
            raise _lacking(url, error) from None
        except Exception as error:  # every filesystem has errors of its own, with secrets in them
            what = f"cannot be read: {type(error).__name__}"
            raise InputError(what, file=redacted(url)) from None
        if len(data) != max(min(start + count, total) - start, 0):
            what = f"asked for bytes {start} to {start + count - 1} of {total}, {len(data)} came"
            raise InputError(what, file=redacted(url))
        return Piece(data, total)


def _located(url: str) -> tuple[Any, str]:
    """The filesystem of a URL, and its name for the file."""
    try:
        from fsspec.core import url_to_fs

        located: tuple[Any, str] = url_to_fs(url)
    except ImportError as error:
        raise _lacking(url, error) from None
    except ValueError:
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
