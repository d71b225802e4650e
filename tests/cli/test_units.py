"""Numbers as people read them."""

from __future__ import annotations

import pytest

from maxtool.cli import units

SIZES = [
    (0, "0 B"),
    (1023, "1023 B"),
    (1024, "1.00 KiB"),
    (10229, "9.99 KiB"),
    (10240, "10.0 KiB"),
    (1024 * 1023, "1023 KiB"),
    (1024 * 1024 - 1, "1.00 MiB"),
    (5 << 30, "5.00 GiB"),
    (3 << 60, "3072 PiB"),
]
COUNTS = [(0, "0"), (999, "999"), (1000, "1.00k"), (32768, "32.8k"), (1_100_000_000, "1.10B")]


@pytest.mark.parametrize(("number", "text"), SIZES)
def test_binary_sizes(number: int, text: str) -> None:
    assert units.binary_size(number) == text


@pytest.mark.parametrize(("number", "text"), COUNTS)
def test_counts(number: int, text: str) -> None:
    assert units.count(number) == text


def test_the_rest() -> None:
    assert (units.share(1, 8), units.share(0, 0)) == ("12.5%", "")
    assert units.shape((2, 3)) == f"2{units.TIMES}3"
    assert units.shape(()) == "scalar"
    assert (units.plural(1, "file"), units.plural(2000, "file")) == ("1 file", "2,000 files")
