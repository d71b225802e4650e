"""The programs of an artifact's loader, with the errors and exit codes of this program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from maxtool import errors
from maxtool.cli.interrupts import INTERRUPTED
from maxtool.errors import MaxtoolError, UsageError

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
    except KeyboardInterrupt:  # a user who has read enough is told nothing
        raise typer.Exit(INTERRUPTED) from None


def _ours(error: RunError) -> MaxtoolError:
    """The loader's error, which cannot know our classes, as the one that it says it is."""
    kind: type[MaxtoolError] = getattr(errors, error.kind)
    where = {"file": error.file, "tensor": error.tensor, "offset": error.offset}
    return kind(error.what, **where, hint=error.hint, problems=error.problems)  # type: ignore[arg-type]


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
