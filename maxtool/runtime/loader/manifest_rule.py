"""Rules that what a manifest says keeps to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from .manifest_parser import ManifestParser

# Yields what is wrong.
Rule: TypeAlias = Callable[[ManifestParser], Iterator[str]]


def for_tasks(tasks: Collection[str | None], *rules: Rule) -> tuple[Rule, ...]:
    """Return rules that manifests of some tasks keep, and others need not."""
    return tuple(_for(tasks, rule) for rule in rules)


def _for(tasks: Collection[str | None], rule: Rule) -> Rule:
    return lambda manifest: rule(manifest) if manifest.task in tasks else iter(())
