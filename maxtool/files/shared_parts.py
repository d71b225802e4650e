"""Parts of one output that several processes write, on as many machines, to a place of their own.

The place holds ``plan.json``, which says what the output is made of, and of each finished part the
part itself and ``PART.json``: its size and SHA-256, who made it, and of which plan.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from maxtool.errors import MissingFile, UsageError
from maxtool.files.finished import FinishedPart, MadeOf
from maxtool.files.journal import differences

PLAN, RECORD = "plan.json", ".json"
MARK = "maxtool-shares"


@dataclass(frozen=True)
class SharedPart:
    """A finished part in its place.

    Attributes:
        part: Its name, size and checksum, and what was to be said about it.
        share: The share that it belonged to where it was made.
        verified: Whether it was read back and compared there.
        version: What its store tells later objects of that name by, if it is in one.
    """

    part: FinishedPart
    share: str
    verified: bool
    version: str | None = None

    @classmethod
    def parse(cls, said: Any) -> SharedPart:  # noqa: ANN401 - JSON
        """The part that a record describes; ValueError, TypeError or LookupError if it does not."""
        part, version = FinishedPart.parse(said), said.get("version")
        return cls(part, str(said["share"]), said["verified"] is True, version)

    def record(self, plan: str) -> bytes:
        """The record of the part, which belongs to a plan."""
        line = {**self.part.line, "share": self.share, "plan": plan, "verified": self.verified}
        version = {} if self.version is None else {"version": self.version}
        return (json.dumps({**line, **version}) + "\n").encode()


class SharedParts(ABC):
    """The parts of an output.

    Attributes:
        made_of: What it is made of, which all processes have to agree on.
    """

    made_of: MadeOf

    @cached_property
    def plan(self) -> str:
        """The SHA-256 of what the output is made of, which records name."""
        return hashlib.sha256(self._said).hexdigest()

    @property
    def _said(self) -> bytes:
        return (json.dumps(list(self.made_of.items()), indent=1) + "\n").encode()

    def begin(self) -> None:
        """Say what the output is made of, unless it is said; ``UsageError`` if it is another."""
        if not self.is_begun():
            self._put_new(PLAN, self._said)
        self.check()

    def is_begun(self) -> bool:
        """Return whether the place says what the output is made of."""
        return self._has(PLAN)

    def check(self) -> None:
        """Check that the place is of this plan.

        Raises:
            MissingFile: If there is none.
            UsageError: If it was begun for other options, or another source; it lists which.
        """
        if not self.is_begun():
            what = "no share of this output has been written"
            raise MissingFile(what, file=self.shown, hint="run the shares first: --shards 1/N")
        if found := differences(self._planned(), self.made_of):
            what = "the shares that are there are made of something else"
            hint = "give the options and the source of the other shares, or start over, "
            raise UsageError(what, problems=found, hint=f"{hint}{self._over}")

    def part(self, name: str) -> SharedPart | None:
        """The finished part of a name; None where it is not there, or was made by another plan."""
        try:
            said = json.loads(self._content(f"{name}{RECORD}"))
            found = SharedPart.parse(said)
            is_ours = (said["plan"], found.part.name) == (self.plan, name)
        except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
            return None
        except AttributeError:  # JSON that is no object
            return None
        return found if is_ours and self._has(name) else None

    def is_verified(self, name: str) -> bool:
        """Return whether a part was read back where it was made."""
        found = self.part(name)
        return found is not None and found.verified

    def _planned(self) -> MadeOf:
        """Return what the place was begun for; ``UsageError`` if that cannot be read."""
        try:
            return {str(key): str(value) for key, value in json.loads(self._content(PLAN))}
        except (OSError, ValueError, TypeError, RecursionError):
            hint = f"start over, {self._over}"
            what = "the plan of the shares is damaged"
            raise UsageError(what, file=f"{self.shown}/{PLAN}", hint=hint) from None

    @property
    @abstractmethod
    def shown(self) -> str:
        """The place as messages name it."""

    @abstractmethod
    def writing(self, name: str) -> AbstractContextManager[Path]:
        """Yield a path to write a part to; put it in its place when the block succeeds."""

    @abstractmethod
    def add(self, found: SharedPart) -> None:
        """Say that a part that is in its place is finished."""

    @abstractmethod
    def is_whole(self, found: SharedPart, progress: Callable[[int], None] | None = None) -> bool:
        """Return whether a finished part is what was written; ``progress`` is told its bytes."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the place with all that is in it."""

    @property
    @abstractmethod
    def _over(self) -> str:
        """The end of a hint: when the place has been removed."""

    @abstractmethod
    def _has(self, name: str) -> bool: ...

    @abstractmethod
    def _content(self, name: str) -> bytes:
        """The bytes of a small file; ``OSError`` if there is none."""

    @abstractmethod
    def _put_new(self, name: str, data: bytes) -> None:
        """Write a small file, unless another process was first."""
