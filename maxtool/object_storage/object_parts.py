"""The folder beside an output, in an object store, in which processes put its parts.

It is called ``.NAME.maxtool-shares``, or ``.NAME.maxtool-parts`` where one process writes all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from maxtool.errors import MissingFile, VerificationFailed
from maxtool.files import SharedPart, SharedParts
from maxtool.files.shared_parts import MARK, RECORD
from maxtool.object_storage import bucket
from maxtool.object_storage.destination import Destination
from maxtool.object_storage.upload import upload
from maxtool.weights.remote.filesystems import ABSENT

if TYPE_CHECKING:
    from maxtool.files.finished import MadeOf

ALONE = "maxtool-parts"


@dataclass(frozen=True)
class ObjectParts(SharedParts):
    """The parts of an output in an object store.

    Attributes:
        destination: The output.
        made_of: What it is made of, which all processes have to agree on.
        scratch: A folder of this machine, in which each part is made before it is uploaded.
        mark: How the folder's name ends.
        is_direct: Whether the one part is uploaded to the output's own place.
        again: Whether each part is read back from the store.
        uploaded: What is told the bytes that were sent since the last call.
    """

    destination: Destination
    made_of: MadeOf
    scratch: Path
    mark: str = MARK
    is_direct: bool = False
    again: bool = False
    uploaded: Callable[[int], None] | None = None
    _versions: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The folder's URL."""
        return self.destination.beside(f".{self.destination.name}.{self.mark}")

    @property
    def shown(self) -> str:
        """The folder as messages name it."""
        return replace(self.destination, url=self.url).shown

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a path of this machine to write a part to; upload it when the block succeeds."""
        path = self.scratch / name
        path.parent.mkdir(exist_ok=True)
        try:
            yield path
            self._versions[name] = upload(path, self._at(name), self.uploaded, again=self.again)
        finally:
            path.unlink(missing_ok=True)

    def add(self, found: SharedPart) -> None:
        """Say that a part that was uploaded is finished."""
        known = replace(found, version=self._versions[found.part.name])
        bucket.write(self._at(f"{found.part.name}{RECORD}"), known.record(self.plan))

    def is_whole(self, found: SharedPart, progress: Callable[[int], None] | None = None) -> bool:
        """Return whether a finished part is the version that was uploaded."""
        told = bucket.described(self._at(found.part.name))
        if progress is not None:
            progress(found.part.nbytes)
        expected = (found.part.nbytes, found.version)
        return told is not None and (told.size, str(told.version)) == expected

    def put(self, name: str, url: str) -> SharedPart:
        """Let the store copy a finished part to its place in the output.

        ``VerificationFailed`` if it is no longer what was uploaded.
        """
        found = self.part(name)
        if found is None:
            raise MissingFile("a finished part is no longer there", file=f"{self.shown}/{name}")
        if not self.is_whole(found):
            hint = f"run its share again, which writes it anew: --shards {found.share}"
            what, where = "a finished part was replaced", f"{self.shown}/{name}"
            raise VerificationFailed(what, file=where, hint=hint)
        if self._at(name) != url:
            bucket.copy(self._at(name), url, found.part.nbytes)
        return found

    def remove(self) -> None:
        """Remove the folder with all that is in it, and uploads into it that were broken off."""
        bucket.end_uploads(self.url)
        if self.is_direct:
            bucket.end_uploads(self.destination.url)
        bucket.remove_below(self.url)

    @property
    def _over(self) -> str:
        return f"after removing {self.shown}"

    def _at(self, name: str) -> str:
        is_output = self.is_direct and name == self.destination.name
        return self.destination.url if is_output else f"{self.url}/{name}"

    def _has(self, name: str) -> bool:
        return bucket.described(self._at(name)) is not None

    def _content(self, name: str) -> bytes:
        try:
            return bucket.content(self._at(name))
        except MissingFile as error:
            if error.what != ABSENT:
                raise
            raise FileNotFoundError(name) from None

    def _put_new(self, name: str, data: bytes) -> None:
        bucket.write(self._at(name), data)
