"""The filesystems of fsspec, which knows s3://, gs://, az:// and many more; its errors as ours."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from maxtool.errors import (
    AccessRefused,
    MachineLacks,
    MaxtoolError,
    MissingFile,
    TransferFailed,
    UsageError,
)
from maxtool.urls import redacted, scheme

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
# Packages whose warnings Python would print where nobody says what becomes of them.
LOGGING = ("fsspec", "s3fs", "aiobotocore", "botocore", "gcsfs", "adlfs", "azure")
_SILENT = logging.NullHandler()
REFUSED, ABSENT = "access is refused", "no such file"
SETTINGS = "its package reads them from its own environment variables and files: credentials, and "
SETTINGS += "what else it needs, such as AZURE_STORAGE_ACCOUNT_NAME"
# Errors by the HTTP status of an answer.
REFUSALS: Mapping[int | None, tuple[type[MissingFile], str]] = {
    **dict.fromkeys((401, 403), (AccessRefused, REFUSED)),
    404: (MissingFile, ABSENT),
}
# Names of the errors of packages, all of one kind: nobody said who asks.
NO_CREDENTIALS = re.compile(r".*(Credential|Authentication|TokenRetrieval|SSOToken|Refresh).*Error")
_ALONE = threading.RLock()  # for filesystems that are not made for threads


@contextmanager
def filesystem(url: str, done: str = "read") -> Iterator[tuple[Any, str]]:
    """Yield the filesystem of a URL, and its name for the file; its errors in words of ours.

    Args:
        url: The URL.
        done: What errors say cannot be done.

    Raises:
        MissingFile: If there is no such file, or settings are missing.
        AccessRefused: If whoever has it does not let this user.
        TransferFailed: For any other failure, which may be right another time.
        MachineLacks: If a package is not installed.
        UsageError: If fsspec knows no such protocol.
    """
    system, path = located(url)
    try:
        with nullcontext() if getattr(system, "async_impl", False) else _ALONE:
            yield system, path
    except MaxtoolError:
        raise
    except FileNotFoundError:
        raise MissingFile(ABSENT, file=redacted(url)) from None
    except PermissionError:
        raise AccessRefused(REFUSED, file=redacted(url)) from None
    except ImportError as error:
        raise _lacking(url, error) from None
    except Exception as error:  # every filesystem has errors of its own, with secrets in them
        kind = type(error).__name__
        if NO_CREDENTIALS.fullmatch(kind):
            what, hint = f"no credentials were found for {scheme(url)}://: {kind}", SETTINGS
            raise AccessRefused(what, file=redacted(url), hint=hint) from None
        if (refusal := REFUSALS.get(_status(error))) is not None:
            raise refusal[0](refusal[1], file=redacted(url)) from None
        raise TransferFailed(f"cannot be {done}: {kind}", file=redacted(url)) from None


def cancel_waiting() -> None:
    """Cancel what filesystems of this process wait for; who asked for it gets an error.

    fsspec's filesystems for networks share an event loop, in a thread of its own.
    """
    from fsspec.asyn import loop

    if loop[0] is not None:
        loop[0].call_soon_threadsafe(_cancel, loop[0])


def _cancel(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


def _status(error: BaseException | None) -> int | None:
    """The HTTP status that Azure's errors have, or those that they were made of."""
    while error is not None:
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            return status
        error = error.__cause__
    return None


def located(url: str) -> tuple[Any, str]:
    """The filesystem of a URL, and its name for the file."""
    for name in LOGGING:  # what matters of it is told by our errors
        logging.getLogger(name).addHandler(_SILENT)
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import known_implementations

        found: tuple[Any, str] = url_to_fs(url)
    except ImportError as error:
        raise _lacking(url, error) from None
    except Exception as error:  # as of all that filesystems do
        if scheme(url) in known_implementations:
            what = f"settings of {scheme(url)}:// are missing or wrong: {type(error).__name__}"
            raise MissingFile(what, file=redacted(url), hint=SETTINGS) from None
        what = f"{scheme(url)}:// is not a protocol that fsspec knows"
        raise UsageError(what, file=redacted(url)) from None
    return found


def _lacking(url: str, error: ImportError) -> MachineLacks:
    """The error saying what to install for a protocol; fsspec explains those not in the table."""
    protocol = scheme(url)
    hint = f"pip install fsspec {PACKAGES.get(protocol, '')}".rstrip()
    if protocol not in PACKAGES and error.name != "fsspec":
        hint = f"{hint}, and what it needs for {protocol}://: {str(error).partition(chr(10))[0]}"
    what = f"{protocol}:// needs a package that is not installed"
    return MachineLacks(what, file=redacted(url), hint=hint)
