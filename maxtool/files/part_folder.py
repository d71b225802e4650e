"""The folder beside an output in which several processes put its parts.

It is called ``.NAME.maxtool-shares``. Each of its files appears by a rename, so that whoever makes
a part a second time, or at the same time, replaces it with the same bytes.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from maxtool.errors import MissingFile, OutputExists, VerificationFailed
from maxtool.files.finished import MAX_BYTES, MadeOf
from maxtool.files.outputs import place
from maxtool.files.shared_parts import MARK, RECORD, SharedPart, SharedParts
from maxtool.files.staging import staged


@dataclass(frozen=True)
class PartFolder(SharedParts):
    """The folder of an output's parts.

    Attributes:
        output: The output.
        made_of: What it is made of, which all processes have to agree on.
    """

    output: Path
    made_of: MadeOf

    @cached_property
    def folder(self) -> Path:
        """The folder's path, beside the output."""
        where = place(self.output)
        return where.parent / f".{where.name}.{MARK}"

    @property
    def shown(self) -> str:
        """The folder as messages name it."""
        return str(self.folder)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a path to write a part to; put it in its place when the block succeeds.

        ``OutputExists`` if the folder is gone by then.
        """
        try:
            if self.folder.exists():
                (self.folder / name).parent.mkdir(exist_ok=True)
            with staged(self.folder / name, told=False) as path:
                yield path
        except FileNotFoundError:
            if self.folder.exists():
                raise
            what = "the output was finished, or its shares were removed, by another process"
            raise OutputExists(what, file=self.output) from None

    def add(self, found: SharedPart) -> None:
        """Say that a part that is in its place is finished."""
        with staged(self.folder / f"{found.part.name}{RECORD}", told=False) as record:
            record.write_bytes(found.record(self.plan))

    def is_whole(self, found: SharedPart, progress: Callable[[int], None] | None = None) -> bool:
        """Return whether a finished part has its checksum."""
        return found.part.is_at(self.folder / found.part.name, progress)

    def bring(
        self, name: str, path: Path, progress: Callable[[int], None] | None = None
    ) -> SharedPart:
        """Put a part at a path, as a link where there are links.

        ``VerificationFailed`` if it is not what its record says.
        """
        found, source = self.part(name), self.folder / name
        if found is None:
            raise MissingFile("a finished part is no longer there", file=source)
        try:
            path.hardlink_to(source)
        except OSError:  # another user's file, or a file system without links
            shutil.copyfile(source, path)
        if not found.part.is_at(path, progress):
            hint = f"run its share again, which writes it anew: --shards {found.share}"
            raise VerificationFailed("a finished part is damaged", file=source, hint=hint)
        return found

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _over(self) -> str:
        return f"after rm -r {shlex.quote(str(self.folder))}"

    def _has(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def _content(self, name: str) -> bytes:
        """The bytes of a file, as far as such a file is ever long."""
        with (self.folder / name).open("rb") as stream:
            return stream.read(MAX_BYTES)

    def _put_new(self, name: str, data: bytes) -> None:
        self.folder.mkdir(exist_ok=True)
        with (
            suppress(OutputExists),  # another process was first
            staged(self.folder / name, replace=False, told=False) as path,
        ):
            path.write_bytes(data)
