"""The kernels of NVIDIA GPUs by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from maxtool.compiler.kernels.cuda.attention import attention
from maxtool.compiler.kernels.cuda.attention_split import attention_join, attention_split
from maxtool.compiler.kernels.cuda.cache import (
    cache_write_key,
    cache_write_value,
    rope_into_cache,
)
from maxtool.compiler.kernels.cuda.embedding import embedding
from maxtool.compiler.kernels.cuda.linear import linear
from maxtool.compiler.kernels.cuda.narrow import narrow
from maxtool.compiler.kernels.cuda.positions import add_positions, rope, rope_angles

KERNELS: tuple[Callable[..., Any], ...] = (
    add_positions,
    attention_join,
    attention_split,
    cache_write_key,
    cache_write_value,
    embedding,
    narrow,
    rope,
    rope_angles,
    rope_into_cache,
)
# Those whose tiles are as large as the shared memory of a block allows.
TILED: tuple[Callable[..., Any], ...] = (attention, linear)


def kernels(target: Any) -> dict[str, Callable[..., Any]]:  # noqa: ANN401
    """What builds each kernel for GPUs, by its name."""
    tiled = {one.__name__: partial(one, shared_memory=target.shared_memory) for one in TILED}
    return {**tiled, **{one.__name__: one for one in KERNELS}}
