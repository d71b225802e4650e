"""A whole process of the command line: its streams, and how it ends."""

from __future__ import annotations

import sys
from typing import Any

import typer

from maxtool.cli import streams
from maxtool.cli.app import app, ended
from maxtool.cli.output import Output
from maxtool.errors import MachineLacks, UsageError

BROKEN_PIPE = 141
# What all errors on how a command was called have in common; typer exports no more of them.
CalledWrongly: Any = typer.BadParameter.__base__


def main() -> None:
    """Run the command that the arguments of this process give, and exit with its code."""
    streams.prepare()
    sys.exit(_told(sys.argv[1:]))


def _told(arguments: list[str]) -> int:
    """The exit code of a command, when all that it wrote has reached its reader."""
    try:
        code = called(arguments)
        sys.stdout.flush()
    except streams.Unwritable as error:
        if error.gone:
            return BROKEN_PIPE
        lack = MachineLacks(f"stdout cannot be written: {error.reason}")
        return ended(Output(), lack).exit_code
    return code


def called(arguments: list[str]) -> int:
    """The exit code of a command, run in this process."""
    try:
        return app(arguments, prog_name="maxtool", standalone_mode=False) or 0
    except CalledWrongly as error:
        out = Output(json_mode="--json" in arguments)
        command = error.ctx.command_path if error.ctx else "maxtool"
        what = error.format_message().rstrip(".")
        return ended(out, UsageError(what, hint=f"see {command} --help")).exit_code
