"""Architectures of installed packages.

A package brings one by an entry point of the group ``maxtool.architectures``, whose name is the
architecture's and whose value is the function that builds it::

    [project.entry-points."maxtool.architectures"]
    rwkv = "maxtool_rwkv.model:build"
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from maxtool.errors import ConfigurationError

GROUP = "maxtool.architectures"


def installed_names() -> list[str]:
    """The names of the architectures that packages bring."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def installed_builder(name: str) -> Callable[..., Any] | None:
    """Return the builder of a named architecture, from the first package by name, else None."""
    points = sorted(entry_points(group=GROUP, name=name), key=_package)
    return _loaded(points[0]) if points else None


def _loaded(point: EntryPoint) -> Callable[..., Any]:
    try:
        builder = point.load()
        reason = None if callable(builder) else "it is not a function"
    except Exception as error:  # whatever the code of a package raises
        reason = f"{type(error).__name__}: {error}"
    if reason is None:
        return builder  # type: ignore[no-any-return]
    raise ConfigurationError(
        f"the architecture {point.name!r} of {_package(point)} cannot be used "
        f"({point.value}): {reason}",
        hint=f"mend or uninstall {_package(point)}",
    )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module
