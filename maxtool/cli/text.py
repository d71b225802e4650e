"""Text as it fits a terminal: how wide it is, and how it is cut, folded and padded."""

from __future__ import annotations

ELLIPSIS = "…"


def width(text: str) -> int:
    """Cells on a terminal."""
    if text.isascii():  # asked of each cell of long tables, where an import counts
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fold(text: str, most: int) -> list[str]:
    """A text as lines of at most ``most`` cells, ended at spaces; longer words are elided."""
    lines: list[str] = []
    for word in filter(None, text.split(" ")):
        short = elided(word, most)
        if lines and width(lines[-1]) + 1 + width(short) <= most:
            lines[-1] += f" {short}"
        else:
            lines.append(short)
    return lines or [""]


def elided(text: str, most: int) -> str:
    """A text of at most ``most`` cells: of a longer one some of the beginning, and the end.

    Names of tensors differ at their end more than where they begin.
    """
    if width(text) <= most:
        return text
    if most < 3:
        return ELLIPSIS[:most]
    ahead = (most - 1) // 4
    return f"{_beginning(text, ahead)}{ELLIPSIS}{_beginning(text[::-1], most - 1 - ahead)[::-1]}"


def _beginning(text: str, most: int) -> str:
    """The first characters, as many as ``most`` cells hold."""
    kept = text[:most]
    while width(kept) > most:
        kept = kept[:-1]
    return kept


def padded(text: str, cells: int, justify: str) -> str:
    """A text with spaces, ``left`` or ``right`` justified."""
    spaces = " " * (cells - width(text))
    return text + spaces if justify == "left" else spaces + text
