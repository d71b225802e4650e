"""Damage to recipes that changes nothing that a recording could show, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

EQUIVALENT: Mapping[str, tuple[str, ...]] = {}
"""Patterns of a recipe's name and a mutation, by the reason."""
