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


def duration(seconds: float) -> str:
    """A time with three digits: ``350 µs``, ``1.25 ms``, ``90.0 s``."""
    power = next((p for p in range(2) if seconds >= 1000**-p * 0.9995), 2)
    return f"{_three(seconds * 1000**power)} {('s', 'ms', 'µs')[power]}"


def rate(value: float) -> str:
    """A number with three digits at least: ``0.85``, ``12.5``, ``1,590``."""
    return f"{value:,.0f}" if value >= 99.95 else _three(value)


def percent(share: float) -> str:
    """A share of 1 in percent: ``12.5%``."""
    return f"{100 * share:.1f}%"


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
    return f"{_three(value)}{gap}{units[power]}"


def _three(value: float) -> str:
    """A number with three digits."""
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
