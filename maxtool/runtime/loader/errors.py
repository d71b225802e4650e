"""Failures with one clear message, each with its exit code; they read as those of maxtool do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

FIELDS = ("what", "file", "tensor", "offset", "problems", "hint", "exit_code")


class RunError(Exception):
    """A failure with one clear message: what is wrong, where, and what the reader can do about it.

    Each class has its exit code. ``problems`` are findings of one kind, reported together.
    """

    exit_code = 1
    kind = "NegativeAnswer"  # what maxtool calls it, in its own errors and in JSON

    def __init__(
        self,
        what: str,
        *,
        file: str | PathLike[str] | None = None,
        tensor: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
        problems: Sequence[str] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.file = None if file is None else str(file)
        self.tensor = tensor
        self.offset = offset
        self.hint = hint
        self.problems = tuple(problems)

    def __str__(self) -> str:
        """The whole message on one line, for logs and tests; the program lays it out."""
        text = "\n".join([self.what, *(f"  - {problem}" for problem in self.problems)])
        if self.where:
            text = f"{text} ({self.where})"
        return f"{text}. {self.hint}" if self.hint else text

    @property
    def where(self) -> str:
        """File, tensor and byte offset, those that are known, separated by commas."""
        known = {"file": self.file, "tensor": self.tensor, "byte": self.offset}
        return ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)

    def lines(self) -> Iterator[str]:
        """The message laid out: what, the problems, where, what to do next."""
        yield f"error: {self.what}"
        yield from (f"  - {problem}" for problem in self.problems)
        if self.where:
            yield f"  at: {self.where}"
        if self.hint:
            yield f"  help: {self.hint}"

    def as_json(self) -> dict[str, object]:
        """The error as maxtool prints it with ``--json``."""
        content = {field: getattr(self, field) for field in FIELDS}
        return {"class": self.kind, **content, "problems": list(self.problems)}


class NotVerified(RunError):
    """A file does not match its recorded checksum."""

    kind = "VerificationFailed"


class Disagrees(RunError):
    """The model computes something else than was recorded of it."""

    kind = "ParityFailed"


class BadUsage(RunError):
    """The options ask for something impossible."""

    exit_code = 2
    kind = "UsageError"


class BadInput(RunError):
    """An input, or the manifest, is missing or malformed."""

    exit_code = 3
    kind = "InputError"


class DoesNotFit(RunError):
    """The request does not fit the model."""

    exit_code = 4
    kind = "ModelMismatch"


class TooLong(DoesNotFit):
    """A text, or token ids, that the context of the model cannot hold."""


class MachineLacks(RunError):
    """The machine has not what the model needs."""

    exit_code = 6
    kind = "MachineLacks"


@contextmanager
def reading(what: str, path: Path) -> Iterator[None]:
    """Report a file that the system does not read, or that is not UTF-8, as ``BadInput``."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{what} cannot be read: {error.strerror or error}", file=path) from None
    except UnicodeDecodeError as error:
        raise BadInput("no UTF-8 text", file=path, offset=error.start) from None


def last_line(error: object) -> str:
    """Return the last line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
