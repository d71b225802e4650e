"""The one object commands print through: data on stdout, everything else on stderr.

Rich is imported when something is drawn, so that ``--help`` and ``--json`` stay quick.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from maxtool.cli.progress import Meter, shown, unseen
from maxtool.errors import MaxtoolError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(kw_only=True, eq=False)
class Output:
    """Destination of a command's results, notes, warnings, errors and progress."""

    json_mode: bool = False  # print one JSON object on stdout instead of drawing
    quiet: bool = False  # keep notes and progress bars away; warnings and errors stay
    verbose: bool = False  # show details that help to understand a failure
    color: bool = True  # use colours on a terminal, unless NO_COLOR is set
    _printed: bool = field(default=False, init=False)

    @cached_property
    def stdout(self) -> Console:
        """The console for data. Piped output is never wrapped to a guessed terminal width."""
        return self._console(sys.stdout)

    @cached_property
    def stderr(self) -> Console:
        """The console for everything that is not data."""
        return self._console(sys.stderr)

    def print(self, renderable: RenderableType) -> None:
        """Draw data on stdout. Text from files must have gone through :meth:`escape`."""
        self._printed = True
        self.stdout.print(renderable)

    def text(self, text: str) -> None:
        """Write one line of data as it is, without markup and without wrapping."""
        self._printed = True
        sys.stdout.write(f"{printable(text)}\n")

    def say(self, text: str) -> None:
        """Write a sentence on stdout, broken between words where a terminal is narrower."""
        self._printed = True
        self._broken(self.stdout, "", text)

    def gap(self) -> None:
        """A blank line between this and what was printed before, if anything was."""
        if self._printed:
            self.text("")

    def data(self, schema: str, content: Mapping[str, object]) -> None:
        """Write one JSON object, its first field ``schema``, on stdout."""
        sys.stdout.write(json.dumps({"schema": schema, **content}, indent=2) + "\n")

    def note(self, text: str) -> None:
        """Print a note on stderr; silent with ``--quiet``."""
        if not self.quiet:
            self._say("", text)

    def command(self, text: str) -> None:
        """A command to try, on stderr and in one line; silent with ``--quiet``."""
        if not self.quiet:
            self.stderr.print(self.escape(text), soft_wrap=True, highlight=False)

    def warn(self, text: str) -> None:
        """Print a warning on stderr."""
        self._say("[yellow]warning:[/] ", text)

    def error(self, error: MaxtoolError) -> None:
        """One error, laid out on stderr: what, where, the list of problems, what to do next."""
        self._say("[bold red]error:[/] ", error.what)
        rows = [("", f"- {problem}") for problem in error.problems]
        rows += [("at: ", error.where)] if error.where else []
        rows += [("help: ", error.hint)] if error.hint else []
        for label, text in rows:
            self._say(f"  [dim]{label}[/]", text)

    def escape(self, text: str) -> str:
        """Untrusted text made safe to draw: no control characters, no markup."""
        from rich.markup import escape

        return escape(printable(text))

    @contextmanager
    def progress(self, label: str, total: int = 0) -> Iterator[Meter]:
        """Show how far the work in the block is; call what it yields with the bytes just done.

        The label says what is done, unless it is told in stages; the total is 0 if not known.
        """
        meter = Meter()
        meter.stage(label, total)
        if self.quiet or self.json_mode:
            with unseen(meter):
                yield meter
            return
        width = (lambda: self.stderr.width) if sys.stderr.isatty() else None
        with shown(meter, sys.stderr, width):
            yield meter

    def _say(self, prefix: str, text: str) -> None:
        self._broken(self.stderr, prefix, text)

    @staticmethod
    def _broken(console: Console, prefix: str, text: str) -> None:
        """Print a sentence behind some markup; paths stay whole, so that they can be copied."""
        from rich.markup import escape
        from rich.text import Text

        shown = printable(text)
        if console.is_terminal:
            taken = Text.from_markup(prefix).cell_len
            shown = _filled(" " * taken + shown, console.width)[taken:]
        console.print(prefix + escape(shown), soft_wrap=True, highlight=False)

    def _console(self, stream: object) -> Console:
        from rich.console import Console

        terminal = stream is not None and getattr(stream, "isatty", lambda: False)()
        width = None if terminal or "COLUMNS" in os.environ else 100
        return Console(
            file=stream,  # type: ignore[arg-type]
            no_color=not self.color or bool(os.environ.get("NO_COLOR")),
            highlight=False,
            width=width,
        )


def _filled(text: str, width: int) -> str:
    """A text in lines of at most ``width`` characters, but for longer words."""
    whole = {"break_long_words": False, "break_on_hyphens": False}
    return "\n".join(textwrap.wrap(text, width, **whole)) or text  # type: ignore[arg-type]


def printable(text: str) -> str:
    """``text`` with everything a terminal might act on written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
