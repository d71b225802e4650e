"""The kernels of each kind of target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from maxtool.compiler.kernels.cpu import table as cpu
from maxtool.compiler.kernels.cuda import table as cuda
from maxtool.compiler.targets import Target

OF_KIND: dict[str, Callable[[Any], Mapping[str, Callable[..., Any]]]] = {
    "cpu": cpu.kernels,
    "cuda": cuda.kernels,
}


def kernels(target: Target) -> Mapping[str, Callable[..., Any]]:
    """What builds each kernel for a target, by its name.

    A kernel of one name has the same parameters and options for every target, but for how keys of
    attention and weights are laid out, and for the options of products, which GPUs' own rules give.
    """
    return OF_KIND[target.kind](target)
