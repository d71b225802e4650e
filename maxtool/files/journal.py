"""The journal of an output that is made in several runs, as the process that makes it writes it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maxtool.errors import UsageError
from maxtool.files.finished import JOURNAL, NEW, FinishedPart, MadeOf, Remarks, found

MAX_SHOWN, ABSENT = 40, "not there"


@dataclass
class Journal:
    """The journal in the hidden folder of an output.

    Attributes:
        made_of: What the output is made of.
        hidden: That folder, once there is one.
        parts: The parts that this run found finished.
    """

    made_of: MadeOf
    hidden: Path = field(default_factory=Path, init=False)
    parts: Mapping[str, FinishedPart] = field(default_factory=dict, init=False)

    def start(self, hidden: Path) -> None:
        """Begin in a hidden folder."""
        self.hidden = hidden
        self._append({"made of": list(self.made_of.items())})

    def go_on(self, hidden: Path) -> None:
        """Continue what an earlier run began; ``UsageError`` if that was made of other things."""
        earlier = found(hidden)
        if problems := differences(earlier.made_of, self.made_of):
            what = "what an earlier run with --resume has finished was made of something else"
            over = f"without --resume, or after rm -r {shlex.quote(str(hidden))}"
            hint = f"give the command that was interrupted, or start over: {over}"
            raise UsageError(what, problems=problems, hint=hint)
        self.hidden, self.parts = hidden, earlier.parts
        os.truncate(hidden / JOURNAL, earlier.nbytes)

    def part(self, path: Path) -> FinishedPart | None:
        """The part to be written at a path, if an earlier run has finished it."""
        return self.parts.get(self._name(path))

    def add(self, path: Path, sha256: str, remarks: Remarks) -> FinishedPart:
        """Flush a part that has been written, and say that it is finished."""
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
        part = FinishedPart(self._name(path), path.stat().st_size, sha256, remarks)
        self._append(part.line)
        return part

    def placing(self, entry: Path) -> None:
        """Say what is about to be renamed; once it is gone, the output is in place."""
        self._append({"entry": self._name(entry), "inode": entry.lstat().st_ino})

    def drop(self) -> None:
        """Keep nothing."""
        (self.hidden / JOURNAL).unlink(missing_ok=True)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.hidden / NEW).as_posix()

    def _append(self, line: Mapping[str, object]) -> None:
        with (self.hidden / JOURNAL).open("ab") as stream:
            stream.write(json.dumps(line).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def differences(then: MadeOf, now: MadeOf) -> list[str]:
    """The differences of two outputs in what they are made of, in words."""
    keys = dict.fromkeys((*now, *then))
    return [_said(key, then, now) for key in keys if then.get(key) != now.get(key)]


def _said(key: str, then: MadeOf, now: MadeOf) -> str:
    before, after = then.get(key, ""), now.get(key, "")
    if max(len(before), len(after)) > MAX_SHOWN:
        return f"{key}: not the same"
    return f"{key}: {before or ABSENT} then, {after or ABSENT} now"
