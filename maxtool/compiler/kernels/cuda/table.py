"""The kernels of NVIDIA GPUs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from maxtool.compiler.kernels.cuda.cache import (
    cache_write_key,
    cache_write_value,
    rope_into_cache,
)
from maxtool.compiler.kernels.cuda.positions import add_positions, rope, rope_angles

KERNELS: tuple[Callable[..., Any], ...] = (
    add_positions,
    cache_write_key,
    cache_write_value,
    rope,
    rope_angles,
    rope_into_cache,
)


def kernels(target: Any) -> dict[str, Callable[..., Any]]:  # noqa: ANN401, ARG001
    """What builds each kernel for GPUs, by its name."""
    return {one.__name__: one for one in KERNELS}
