"""Every error maxtool raises on purpose, with the exit code it ends a command with."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maxtool.runtime.loader import RunError


class MaxtoolError(Exception):
    """An error with one clear message: what, where, why, and what to do next.

    Args:
        what: One sentence on what is wrong.
        file: The file it was found in.
        tensor: The tensor it concerns.
        offset: The byte offset in ``file``.
        hint: What the reader can do about it.
        problems: Several findings of one kind, reported together.
    """

    exit_code = 1

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
        """The whole message on one line, for logs and tests; the command line lays it out."""
        text = "\n".join([self.what, *(f"  - {problem}" for problem in self.problems)])
        if where := self.where:
            text = f"{text} ({where})"
        return f"{text}. {self.hint}" if self.hint else text

    @property
    def where(self) -> str:
        """File, tensor and byte offset, those that are known, separated by commas."""
        known = {"file": self.file, "tensor": self.tensor, "byte": self.offset}
        return ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)


class NegativeAnswer(MaxtoolError):
    """The question was answered, and the answer is no."""


class ParityFailed(NegativeAnswer):
    """Compiled and reference outputs differ by more than the recipe's tolerance."""


class VerificationFailed(NegativeAnswer):
    """A file does not match its recorded checksum, or a written one what it was to hold."""


class UsageError(MaxtoolError):
    """The command line asks for something impossible."""

    exit_code = 2


class OutputExists(UsageError):
    """The output exists and ``--force`` was not given."""


class UnknownRecipe(UsageError):
    """The named recipe does not exist."""


class InputError(MaxtoolError):
    """An input file cannot be used."""

    exit_code = 3


class MissingFile(InputError):
    """An input file is not there, or cannot be opened."""


class AccessRefused(MissingFile):
    """An input file may be there, and whoever has it does not give it."""


class MalformedFile(InputError):
    """The bytes of an input file are not what its format demands."""


class ChangedFile(InputError):
    """An input file was written, cut or replaced while it was read."""


class TransferFailed(InputError):
    """A server did not send what it was to send; another attempt may succeed.

    Attributes:
        wait: The seconds that the server asks to wait before it, if it does.
    """

    wait: float | None = None


class ModelMismatch(MaxtoolError):
    """Configuration, tensors and recipe do not fit together."""

    exit_code = 4


class UnknownArchitecture(ModelMismatch):
    """The model matches no recipe."""


class ConfigurationError(ModelMismatch):
    """A configuration key is missing, wrong or not supported."""


class MissingWeight(ModelMismatch, KeyError, ValueError):
    """A weight that the module needs is not there."""

    __str__ = MaxtoolError.__str__


class UnexpectedWeight(ModelMismatch, ValueError):
    """A weight is there that the module does not use."""


class MisshapenWeight(ModelMismatch, ValueError):
    """A weight has another shape or dtype than the module declares."""


class CompilationFailed(MaxtoolError):
    """The compiler gave up."""

    exit_code = 5


class MachineLacks(MaxtoolError):
    """The machine has no linker, driver, extra package or disk space that the work needs."""

    exit_code = 6


class MissingDevice(MachineLacks, ValueError):
    """The machine has no such device, or its driver does not work."""


def translated(error: RunError) -> MaxtoolError:
    """Return the loader's error, which cannot know these classes, as the class that it names."""
    kind: type[MaxtoolError] = globals()[error.kind]
    where = {"file": error.file, "tensor": error.tensor, "offset": error.offset}
    return kind(error.what, **where, hint=error.hint, problems=error.problems)  # type: ignore[arg-type]
