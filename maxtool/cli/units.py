"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

TIMES = "\N{MULTIPLICATION SIGN}"


def binary_size(nbytes: int) -> str:
    """Bytes with a binary unit and three digits: ``18 B``, ``1.12 MiB``."""
    return _scaled(nbytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"), " ")


def count(number: int) -> str:
    """A count with a decimal unit and three digits: ``512``, ``32.8k``, ``1.10B``."""
    return _scaled(number, 1000, ("", "k", "M", "B", "T"), "")


def share(part: int, whole: int) -> str:
    """A part in percent: ``12.5%``; blank if there is nothing to share."""
    return f"{100 * part / whole:.1f}%" if whole else ""


def shape(dims: Sequence[int]) -> str:
    """Dimensions, slowest first: ``512x64`` with a multiplication sign; a scalar has none."""
    return TIMES.join(map(str, dims)) or "scalar"


def plural(number: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _scaled(number: int, base: int, units: Sequence[str], gap: str) -> str:
    value, power = float(number), 0
    while value >= base * 0.9995 and power < len(units) - 1:
        value, power = value / base, power + 1
    if not power:
        return f"{number}{gap}{units[0]}"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}{gap}{units[power]}"
