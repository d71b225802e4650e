"""The folder in which several processes, on as many machines, put the parts of one output.

``.NAME.maxtool-shares`` lies beside the output and holds ``plan.json``, which says what the output
is made of, and of each finished part the part itself and ``PART.json``: its size and SHA-256, who
made it, and of which plan. Each of these files appears by a rename, so that whoever makes a part a
second time, or at the same time, replaces it with the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from maxtool.errors import MissingFile, OutputExists, UsageError, VerificationFailed
from maxtool.files.finished import MAX_BYTES, FinishedPart, MadeOf
from maxtool.files.journal import differences
from maxtool.files.outputs import place
from maxtool.files.staging import staged

PLAN, RECORD = "plan.json", ".json"
MARK = "maxtool-shares"


@dataclass(frozen=True)
class SharedPart:
    """A finished part in the folder.

    Attributes:
        part: Its name, size and checksum, and what was to be said about it.
        share: The share that it belonged to where it was made.
        verified: Whether it was read back and compared there.
    """

    part: FinishedPart
    share: str
    verified: bool


@dataclass(frozen=True)
class PartFolder:
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

    @cached_property
    def plan(self) -> str:
        """The SHA-256 of what the output is made of, which records name."""
        return hashlib.sha256(self._said.encode()).hexdigest()

    @property
    def _said(self) -> str:
        return json.dumps(list(self.made_of.items()), indent=1) + "\n"

    def begin(self) -> None:
        """Make the folder if there is none; ``UsageError`` if it is of another plan."""
        self.folder.mkdir(exist_ok=True)
        if not (self.folder / PLAN).exists():
            try:
                with staged(self.folder / PLAN, replace=False, told=False) as path:
                    path.write_text(self._said)
            except OutputExists:  # another process was first
                pass
        self.check()

    def check(self) -> None:
        """Check that the folder is of this plan.

        Raises:
            MissingFile: If there is none.
            UsageError: If it was begun for other options, or another source; it lists which.
        """
        if not (self.folder / PLAN).exists():
            what = "no share of this output has been written"
            raise MissingFile(what, file=self.folder, hint="run the shares first: --shards 1/N")
        if found := differences(self._planned(), self.made_of):
            what = "the shares that are there are made of something else"
            over = f"or start over, after rm -r {shlex.quote(str(self.folder))}"
            hint = f"give the options and the source of the other shares, {over}"
            raise UsageError(what, problems=found, hint=hint)

    def part(self, name: str) -> SharedPart | None:
        """The finished part of a name; None where it is not there, or was made by another plan."""
        try:
            said = json.loads(_beginning(self.folder / f"{name}{RECORD}"))
            found = SharedPart(
                FinishedPart.parse(said), str(said["share"]), said["verified"] is True
            )
            is_ours = (said["plan"], found.part.name) == (self.plan, name)
        except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
            return None
        return found if is_ours and (self.folder / name).is_file() else None

    def is_verified(self, name: str) -> bool:
        """Return whether a part was read back where it was made."""
        found = self.part(name)
        return found is not None and found.verified

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a path to write a part to; put it in its place when the block succeeds."""
        with staged(self.folder / name, told=False) as path:
            yield path

    def add(self, found: SharedPart) -> None:
        """Say that a part that is in its place is finished."""
        line: dict[str, Any] = {**found.part.line, "share": found.share, "plan": self.plan}
        with staged(self.folder / f"{found.part.name}{RECORD}", told=False) as record:
            record.write_text(json.dumps({**line, "verified": found.verified}) + "\n")

    def bring(self, path: Path, progress: Callable[[int], None] | None = None) -> SharedPart:
        """Put the part that belongs at a path there, as a link where there are links.

        ``VerificationFailed`` if it is not what its record says.
        """
        found, source = self.part(path.name), self.folder / path.name
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

    def _planned(self) -> MadeOf:
        """Return what the folder was begun for; ``UsageError`` if that cannot be read."""
        file = self.folder / PLAN
        try:
            return {str(key): str(value) for key, value in json.loads(_beginning(file))}
        except (OSError, ValueError, TypeError, RecursionError):
            hint = f"start over, after rm -r {shlex.quote(str(self.folder))}"
            raise UsageError("the plan of the shares is damaged", file=file, hint=hint) from None


def _beginning(file: Path) -> bytes:
    """The bytes of a file, as far as such a file is ever long."""
    with file.open("rb") as stream:
        return stream.read(MAX_BYTES)
