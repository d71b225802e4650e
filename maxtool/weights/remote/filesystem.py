"""Ranges of files by fsspec, which knows s3://, gs://, hf:// and many more."""

from __future__ import annotations

from typing import Any

from maxtool.errors import InputError, MachineLacks, MissingFile, UsageError
from maxtool.weights.remote.store import Piece, Store
from maxtool.weights.remote.url import redacted, scheme

EXTRA = "pip install 'maxtool[remote]'"


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
            raise InputError(
                f"cannot be read: {type(error).__name__}", file=redacted(url)
            ) from None
        if len(data) != max(min(start + count, total) - start, 0):
            what = f"asked for bytes {start} to {start + count - 1} of {total}, {len(data)} came"
            raise InputError(what, file=redacted(url))
        return Piece(data, total)


def _located(url: str) -> tuple[Any, str]:
    """The filesystem of a URL, and its name for the file."""
    try:
        from fsspec.core import url_to_fs

        found: tuple[Any, str] = url_to_fs(url)
    except ImportError as error:
        raise _lacking(url, error) from None
    except ValueError:
        what = f"{scheme(url)}:// is no protocol that fsspec knows"
        raise UsageError(what, file=redacted(url)) from None
    return found


def _lacking(url: str, error: ImportError) -> MachineLacks:
    """``error`` names the package: fsspec itself, or what it needs for one protocol."""
    package = f", and then the package {error.name!r}" if error.name not in (None, "fsspec") else ""
    what = f"{scheme(url)}:// needs a package that is not installed"
    return MachineLacks(what, file=redacted(url), hint=f"{EXTRA}{package}")
