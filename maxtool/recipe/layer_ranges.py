"""Lines about tensors of many layers as few: ``blk.{0..31}.ffn_up.weight``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# A number, as numbers are written, that is a whole segment of a dotted name.
NUMBER = re.compile(r"(?<=[\w\]]\.)(0|[1-9][0-9]{0,8})(?=\.)")
# No name of a network has more; lines of names that do stay as they are.
MOST_NUMBERS = 8

Row = tuple[int, ...]
Sets = tuple[frozenset[int], ...]


def folded(lines: Iterable[str]) -> list[str]:
    """Lines that differ in numbers of dotted names alone as one, where the first of them is.

    Numbers that go together in all such lines, as a layer's in a tensor and in the parameter that
    it makes, are one. Lines are joined only where all combinations of the joined numbers are there.
    """
    alike: dict[tuple[str, ...], list[Row]] = {}
    for line in lines:
        parts = NUMBER.split(line)
        parts = parts if len(parts) < 2 * MOST_NUMBERS + 2 else [line]
        alike.setdefault(tuple(parts[::2]), []).append(tuple(map(int, parts[1::2])))
    return [line for texts, rows in alike.items() for line in _written(texts, rows)]


def _written(texts: tuple[str, ...], rows: list[Row]) -> Iterator[str]:
    columns = list(zip(*rows, strict=True))
    distinct = list(dict.fromkeys(columns))
    places = [distinct.index(column) for column in columns]
    sets: list[Sets] = [
        tuple(frozenset([number]) for number in row) for row in zip(*distinct, strict=True)
    ]
    for column in reversed(range(len(distinct))):
        sets = _merged(sets, column)
    for found in sets or [()]:
        numbers = [_ranges(found[place]) for place in places]
        yield "".join(map("".join, zip(texts, [*numbers, ""], strict=True)))


def _merged(rows: list[Sets], column: int) -> list[Sets]:
    """Rows that are alike but for one column as one, with all the numbers of that column."""
    merged: dict[Sets, frozenset[int]] = {}
    for row in rows:
        others = (*row[:column], *row[column + 1 :])
        merged[others] = merged.get(others, frozenset()) | row[column]
    return [(*others[:column], found, *others[column:]) for others, found in merged.items()]


def _ranges(numbers: frozenset[int]) -> str:
    """``7``, ``{0..3}`` or ``{0..3,7}``."""
    if len(numbers) == 1:
        return str(next(iter(numbers)))
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ends = (f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return "{" + ",".join(ends) + "}"
