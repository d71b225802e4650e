"""Crashes of what reads damaged recipes, told from those of the tests themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from maxtool.errors import ConfigurationError, MaxtoolError


@contextmanager
def crashes_refuse() -> Iterator[None]:
    """Take a crash of the product for a refusal: either fails a test.

    Raises:
        MaxtoolError: For any exception.
    """
    try:
        yield
    except MaxtoolError:
        raise
    except Exception as crash:
        raise ConfigurationError(f"crashed: {crash!r}") from crash
