"""The programs of an artifact's loader, with the errors and exit codes of this program.

Their options stand in the loader's table. Each command shows and completes them; what was given
goes to the loader's own parser, which reads it as ``run.py`` would.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxtool import runtime
from maxtool.cli import complete
from maxtool.cli.interrupts import INTERRUPTED
from maxtool.cli.output import Output
from maxtool.errors import translated

if TYPE_CHECKING:
    from maxtool.runtime.loader.option_table import Option
    from maxtool.runtime.loader.options import EmbedOptions, TextOptions


def _option_table() -> Any:  # noqa: ANN401 - a module
    """The loader's table of options, without the loader, whose package imports NumPy."""
    file = Path(runtime.__path__[0], "loader", "option_table.py")
    spec = spec_from_file_location("maxtool_option_table", file)
    if spec is None or spec.loader is None:  # never so for a name that ends in .py
        raise ImportError(f"cannot load {file}")
    table = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(table)
    return table


TABLE = _option_table()
# By the type of an option; what typer does not read is left to the loader's parser.
TYPES: dict[str, Any] = {
    "flag": bool,
    "path": Path | None,
    "texts": list[str] | None,
    "integer": int | None,
    "number": float | None,
}
COMPLETIONS = {"device": complete.one_of("cpu", "cuda")}

Command = Callable[..., None]


def with_options(table: Sequence[Option]) -> Callable[[Command], Command]:
    """Give a command, in the place of its keywords, the options of a table."""

    def decorate(function: Command) -> Command:
        out, folder, _ = inspect.signature(function, eval_str=True).parameters.values()
        keywords = [
            inspect.Parameter(
                option.name.replace("-", "_"),
                inspect.Parameter.KEYWORD_ONLY,
                default=False if option.type == "flag" else option.default,
                annotation=Annotated[TYPES.get(option.type, str | None), _shown(option)],
            )
            for option in table
        ]
        function.__signature__ = inspect.Signature([out, folder, *keywords])  # type: ignore[attr-defined]
        return function

    return decorate


def _shown(option: Option) -> Any:  # noqa: ANN401 - typer's class is private
    names = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    text = f"{option.help[0].upper()}{option.help[1:]}."
    metavar = "" if option.type == "flag" else option.metavar or TABLE.METAVARS[option.type]
    completion = COMPLETIONS.get(option.name)
    return typer.Option(*names, help=text, metavar=metavar, autocompletion=completion)


def execute(
    parse: Callable[[Path, Sequence[str]], TextOptions | EmbedOptions],
    folder: Path,
    table: Sequence[Option],
    given: Mapping[str, Any],
    out: Output,
) -> None:
    """Run the artifact as its own ``run.py`` would: options of ``table``, as they were ``given``.

    An error has the exit code of the loader's own.
    """
    from maxtool.runtime import loader

    argv = [word for option in table for word in _words(option, given)]
    argv += ["--json"] * out.json_mode + ["--quiet"] * out.quiet
    try:
        loader.execute(parse(folder, argv))
    except loader.RunError as error:
        raise translated(error) from error
    except KeyboardInterrupt:  # a user who has read enough is told nothing
        raise typer.Exit(INTERRUPTED) from None


def _words(option: Option, given: Mapping[str, Any]) -> Iterator[str]:
    """An option as it stands in a command line; nothing where it is not given."""
    value = given[option.name.replace("-", "_")]
    if option.type == "flag":
        yield from [f"--{option.name}"] * value
    elif value is not None:
        values = value if isinstance(value, list) else [value]
        yield from (f"--{option.name}={one}" for one in values)
