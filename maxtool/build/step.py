"""Kinds of targets, and steps: one command line each, with its dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OptionForm:
    """Form in which an option of a command is written.

    Attributes:
        on: The option, with its dashes.
        off: What says the opposite of a flag, if anything does.
        is_flag: Whether it stands without a value.
        may_be_bare: Whether its value may be left out.
        is_repeated: Whether it may be given several times, with a value each.
    """

    on: str
    off: str | None = None
    is_flag: bool = False
    may_be_bare: bool = False
    is_repeated: bool = False

    @property
    def takes(self) -> str:
        """The values of the key in a build file, in words."""
        if self.is_flag:
            return "true or false"
        several = ", or a list of these" if self.is_repeated else ""
        return f"true or a text{several}" if self.may_be_bare else f"a text or a number{several}"

    def words(self, value: object) -> list[str] | None:
        """The words of a command line that say a value; None if it is none of this option's."""
        if isinstance(value, bool):
            if not (self.is_flag or self.may_be_bare):
                return None
            return [self.on] if value else [self.off] if self.off else []
        if self.is_flag:
            return None
        values = value if self.is_repeated and isinstance(value, list) else [value]
        if any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in values):
            return None
        return [f"{self.on}={one}" for one in values]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of target.

    Attributes:
        command: What runs it.
        done: What was done then, in a word.
        options: The keys that a target may have beside those of all kinds, and how they are said.
        has_output: Whether it writes something.
        is_alone: Whether nothing else may run meanwhile, as it measures.
        takes_urls: Whether its source may be named by a URL.
        base_bytes: The memory that a step of it takes, whatever the model.
    """

    command: str
    done: str
    options: Mapping[str, OptionForm]
    has_output: bool = True
    is_alone: bool = False
    takes_urls: bool = False
    base_bytes: int = 1 << 28


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do.

    Attributes:
        name: What it is called, and addressed by.
        kind: The name of its kind.
        argv: The command line, of which paths are relative to the folder of the build file.
        source: What it reads.
        output: What it writes; None if that is nothing.
        after: The names of the steps that come before it.
    """

    name: str
    kind: str
    argv: tuple[str, ...]
    source: str
    output: str | None
    after: tuple[str, ...]
