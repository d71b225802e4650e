"""The programs of an artifact's loader, with the errors and exit codes of this program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from maxtool.cli.interrupts import INTERRUPTED
from maxtool.errors import (
    InputError,
    MachineLacks,
    MaxtoolError,
    ModelMismatch,
    NegativeAnswer,
    UsageError,
    VerificationFailed,
)

if TYPE_CHECKING:
    from maxtool.runtime.loader import EmbedOptions, Options, RunError


def execute(options: Options | EmbedOptions) -> None:
    """Do what the artifact's own ``run.py`` does.

    Raises:
        MaxtoolError: With the exit code of the loader's own error.
    """
    from maxtool.runtime import loader

    try:
        loader.execute(options)
    except loader.RunError as error:
        raise _ours(error) from error
    except MemoryError:
        raise MachineLacks("not enough memory") from None
    except KeyboardInterrupt:  # a user who has read enough is told nothing
        raise typer.Exit(INTERRUPTED) from None


def _ours(error: RunError) -> MaxtoolError:
    """The loader's error, which may not know our classes, as the one with its exit code."""
    from maxtool.runtime import loader

    classes: dict[type[RunError], type[MaxtoolError]] = {
        loader.NotVerified: VerificationFailed,
        loader.BadUsage: UsageError,
        loader.BadInput: InputError,
        loader.DoesNotFit: ModelMismatch,
        loader.MachineLacks: MachineLacks,
    }
    return classes.get(type(error), NegativeAnswer)(str(error))


def integers(text: str) -> list[int]:
    """What ``--ids`` takes; UsageError if it is no list of integers."""
    from maxtool.runtime import loader

    try:
        return loader.integers(text)
    except ValueError:
        raise UsageError(f"--ids takes integers, not {text!r}") from None


def json_object(text: str) -> dict[str, object]:
    """What ``--chat-template-kwargs`` takes; UsageError if it is no JSON object."""
    from maxtool.runtime import loader

    try:
        return loader.json_object(text)
    except ValueError:
        raise UsageError(f"--chat-template-kwargs takes a JSON object, not {text!r:.80}") from None
