"""Modules that are lists of modules."""

from __future__ import annotations

from typing import Any, TypeVar

from maxtool.nn import containers
from maxtool.nn import module as base
from maxtool.nn.eager.module import Module

M = TypeVar("M", bound="base.Module[..., Any]")


class ModuleList(containers.ModuleList[M], Module[..., Any]):
    """A list whose items are children named by their positions. It cannot be called."""


class Sequential(containers.Sequential, ModuleList[base.Module[..., Any]]):
    """Modules applied one after the other.

    Args:
        modules: Each takes what the one before it returns. A list of them is given as ``*list``.

    Raises:
        TypeError: If one is no module.
    """

    def __init__(self, *modules: base.Module[..., Any]) -> None:
        ModuleList.__init__(self, modules)
