"""The kernels of NVIDIA GPUs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KERNELS: tuple[Callable[..., Any], ...] = ()


def kernels(target: Any) -> dict[str, Callable[..., Any]]:  # noqa: ANN401, ARG001
    """What builds each kernel for GPUs, by its name."""
    return {one.__name__: one for one in KERNELS}
