"""The name of an output in an object store."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.errors import UsageError
from maxtool.urls import HTTP, redacted, scheme
from maxtool.weights.remote.filesystems import located

# Stores in which an object appears once all of it has come. ``memory`` is fsspec's, of one process.
WRITABLE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")
SHOWN = ", ".join(f"{name}://" for name in ("s3", "gs", "az"))
LOCAL_FIRST = "write it to a path of this machine, and copy it from there"


@dataclass(frozen=True, slots=True)
class Destination:
    """An output in an object store.

    Attributes:
        url: Its URL, without a slash at its end.
    """

    url: str

    @classmethod
    def parse(cls, text: str) -> Destination:
        """The destination that a user names; ``UsageError`` if nothing is written there."""
        protocol = scheme(text)
        if protocol in HTTP:
            what = f"{protocol}:// is only read, and outputs are written to paths and to {SHOWN}"
            raise UsageError(what, file=redacted(text), hint=LOCAL_FIRST)
        if protocol not in WRITABLE:
            what = f"outputs are written to paths and to {SHOWN}, not to {protocol}://"
            raise UsageError(what, file=redacted(text), hint=LOCAL_FIRST)
        found = cls(text.rstrip("/"))
        found._check()
        return found

    @property
    def name(self) -> str:
        """The last segment."""
        return self.url.rpartition("/")[2]

    @property
    def shown(self) -> str:
        """The URL as it may be printed."""
        return redacted(self.url)

    def beside(self, name: str) -> str:
        """The URL of another object in the same folder."""
        return f"{self.url.rpartition('/')[0]}/{name}"

    def _check(self) -> None:
        """Refuse a name that is none, or of which stores and paths would make something else."""
        bucket, slash, key = self.url.partition("://")[2].partition("/")
        hint = f"name it {scheme(self.url)}://BUCKET/NAME"
        if not bucket or not slash or not key:
            what = "the name of the output is to follow that of the bucket"
            raise UsageError(what, file=self.shown, hint=hint)
        odd = {*key.split("/")} & {"", ".", ".."}
        if odd or any(sign in key for sign in "?#*[]\0"):
            what = "the name of the output has an empty segment, a dot alone, or one of ? # * [ ]"
            raise UsageError(what, file=self.shown, hint=hint)
        located(self.url)
