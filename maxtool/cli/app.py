"""The command table, the options every command has, and the exit codes.

A command is a function ``command(out: Output, ...)`` in a file of its own, whose parameters are
options or groups of them. Registration gives it
``--json``, ``--quiet``, ``--verbose`` and ``--no-color``, and turns errors into one message and the
documented exit code.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Annotated, Any

import typer

from maxtool import __version__
from maxtool.cli import interrupts, manual, option_groups, options
from maxtool.cli.optional_values import CommandWithOptionalValues
from maxtool.cli.output import Output
from maxtool.errors import MachineLacks, MaxtoolError, UsageError

COMMON: dict[str, Any] = {
    "json_mode": Annotated[bool, options.flag("--json", help="Print one JSON object on stdout.")],
    "quiet": Annotated[bool, options.flag("--quiet", "-q", help="Only data, warnings and errors.")],
    "verbose": Annotated[bool, options.flag("--verbose", "-v", help="Show more detail.")],
    "no_color": Annotated[bool, options.flag("--no-color", help="No colours (also: NO_COLOR).")],
}

NO_MEMORY = "the machine has too little memory for this"

app = typer.Typer(
    name="maxtool",
    help="Look at a model checkpoint, convert it, or compile it into something that runs.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # drawing help with rich takes longer than everything else it does
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command(name: str, function: Callable[..., None]) -> None:
    """Register ``function`` as the command ``name``, of two words where it is in a group."""
    signature = inspect.signature(function, eval_str=True)
    own = [parameter for key, parameter in signature.parameters.items() if key != "out"]
    common = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for key, kind in COMMON.items()
    ]
    flat = option_groups.flattened(own)

    @wraps(function)
    def wrapped(
        *, json_mode: bool, quiet: bool, verbose: bool, no_color: bool, **arguments: object
    ) -> None:
        out = Output(json_mode=json_mode, quiet=quiet, verbose=verbose, color=not no_color)
        _guard(out, lambda: function(out, **option_groups.gathered(own, arguments)))

    wrapped.__signature__ = inspect.Signature([*flat, *common])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {
        parameter.name: parameter.annotation for parameter in [*flat, *common]
    }
    summary = (inspect.getdoc(function) or "").partition(".")[0]
    group, _, leaf = name.rpartition(" ")
    parent = _group(group) if group else app
    hint = CommandWithOptionalValues if name == "compile" else None
    parent.command(leaf, cls=hint, short_help=summary, epilog=manual.epilog(name))(wrapped)


@cache
def _group(name: str) -> typer.Typer:
    """The commands that share their first word."""
    group = typer.Typer(help=f"{GROUPS[name]}.", short_help=GROUPS[name])
    group.callback(invoke_without_command=True)(_help_without_command)
    app.add_typer(group, name=name)
    return group


def _help_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        sys.stderr.write(f"{context.get_help()}\n")
        raise typer.Exit(UsageError.exit_code)


def _guard(out: Output, work: Callable[[], None]) -> None:
    """Run ``work``; end with the exit code its error documents."""
    from maxtool import files

    files.forget_written()
    try:
        with interrupts.raised():
            work()
    except MaxtoolError as error:
        raise ended(out, error) from None
    except KeyboardInterrupt:
        done = " and ".join(str(path) for path in files.written())
        out.warn(f"interrupted; {done} was written" if done else "interrupted; nothing was written")
        raise typer.Exit(interrupts.INTERRUPTED) from None
    except (OSError, MemoryError) as error:
        raise ended(out, refused(error)) from None


def ended(out: Output, error: MaxtoolError) -> typer.Exit:
    """Show an error; what ends the process with its exit code."""
    if out.verbose and error.__cause__ is not None:
        out.note(f"cause: {error.__cause__!r}")
    if out.json_mode:
        out.data("maxtool.error/1", {"error": as_json(error)})
    out.error(error)
    return typer.Exit(error.exit_code)


def refused(error: OSError | MemoryError) -> MachineLacks:
    """The error for what the system refuses to do."""
    if isinstance(error, MemoryError):
        return MachineLacks(NO_MEMORY)
    reason = f"the system refuses: {error.strerror or error}"
    return MachineLacks(reason, file=error.filename)


def as_json(error: MaxtoolError) -> dict[str, object]:
    """An error as ``maxtool.error/1`` has it."""
    fields = ("what", "file", "tensor", "offset", "problems", "hint", "exit_code")
    content: dict[str, object] = {field: getattr(error, field) for field in fields}
    return json.loads(json.dumps({"class": type(error).__name__, **content}))  # type: ignore[no-any-return]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, options.flag("--version", help="Print the version and exit.")] = False,
) -> None:
    """Look at a model checkpoint, convert it, or compile it into something that runs."""
    if version:
        sys.stdout.write(f"maxtool {__version__}\n")
        raise typer.Exit
    _help_without_command(context)


GROUPS: dict[str, str] = {"recipes": "List, show, check and propose recipes"}
# The function of each command has the name of its module.
COMMANDS: dict[str, str] = {
    "inspect-weights": "inspect_weights",
    "convert": "convert",
    "compile": "compile",
    "build": "build",
    "run": "run",
    "embed": "embed",
    "serve": "serve",
    "compare": "compare",
    "imatrix": "imatrix",
    "verify": "verify",
    "bench": "bench",
    "recipes list": "recipes_list",
    "recipes show": "recipes_show",
    "recipes check": "recipes_check",
    "recipes new": "recipes_new",
}

for _name, _module in COMMANDS.items():
    command(_name, getattr(importlib.import_module(f"maxtool.cli.{_module}"), _module))
