"""The type of keys and values in a decoder's cache, and how they lie on each kind of target."""

from __future__ import annotations

from maxtool.architectures import CacheLayout
from maxtool.artifact.request import Request
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.errors import UsageError

# Instruction sets with a conversion between float16 and float32: without one it is a call for each
# element.
CONVERTING = frozenset({"f16c", "neon"})


def cache_layout(request: Request, dtype: DType, target: Target, *, is_wide: bool) -> CacheLayout:
    """The cache of a decoder whose matrices are of ``dtype`` where they are not quantized.

    ``is_wide`` is whether all are stored as float32.

    Raises:
        UsageError: If a GPU is to have another type in the cache than in the matrices, which its
            kernels multiply each other with.
    """
    asked = request.kv_dtype
    if target.kind == "cpu":
        chosen = asked or _usual(target.processor.features, is_wide=is_wide)
        return CacheLayout(chosen, slides=True, slots=request.batch)
    if asked not in (None, dtype):
        raise UsageError(
            f"--kv-dtype {asked.value}: on GPUs the cache is {dtype.value}, as the matrices are",
            hint=f"leave it out, or store the matrices so too: --dtype {asked.value}",
        )
    return CacheLayout(dtype, transposed=False)


def _usual(features: tuple[str, ...], *, is_wide: bool) -> DType:
    """The type when none is asked for: half as large unless the matrices are float32 themselves."""
    is_half = not is_wide and CONVERTING.intersection(features)
    return DType.float16 if is_half else DType.float32
