"""Checks of buckets of distances between tokens."""

from __future__ import annotations

from collections.abc import Iterator

# One for each direction, and one more in each for what is far.
LEAST_BUCKETS = 4


def bucket_problems(count: int, farthest: int) -> Iterator[str]:
    """Yield a line where there are too few buckets, or distances too short for so many."""
    if count < LEAST_BUCKETS or farthest <= count // 2:
        need = f"{LEAST_BUCKETS} buckets at least, and a distance beyond half of them"
        yield f"relative_buckets {count} with relative_distance {farthest}: there must be {need}"
