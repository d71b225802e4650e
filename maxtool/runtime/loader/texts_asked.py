"""The texts that a command is given, and what is said of them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .options import EmbedOptions
from .terminal import note
from .text_lines import lines_of
from .text_rows import Text, TextRows
from .tokens import most_bytes


def texts_of(
    options: EmbedOptions, rows: TextRows, show: Callable[[float], None]
) -> Iterable[Text]:
    """The texts that are asked for; ``show`` is told the share of a file that was read."""
    most = 4 * most_bytes(rows.context) + 4  # so that what is cut off is noticed
    if options.ids is not None:
        return [options.ids]
    if options.file is None:
        return options.texts or []
    return lines_of(options.file, "the texts", most, show)


def count_of(rows: TextRows) -> str:
    """The number of texts that were read, in words."""
    return "1 text" if rows.texts == 1 else f"{rows.texts} texts"


def told_cuts(options: EmbedOptions, rows: TextRows) -> None:
    """Note how many texts were longer than the context."""
    if rows.truncated:
        were = "was" if rows.truncated == 1 else "were"
        note(
            options, f"{rows.truncated} of {count_of(rows)} {were} cut to the context of the model"
        )
