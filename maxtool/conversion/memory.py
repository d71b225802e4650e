"""The memory that a conversion takes, from its plan."""

from __future__ import annotations

from maxtool.conversion.engine import Conversion
from maxtool.conversion.output_tensors import Origin
from maxtool.conversion.streaming import CHUNK_BYTES
from maxtool.recipe import OutputTensor
from maxtool.recipe.gathered_rows import gathered
from maxtool.weights import TensorInfo, TensorSpec
from maxtool.weights.composite import CompositeTensor

# Of Python with NumPy and maxtool, of the compiler that quantizes, and of the parts of tensors that
# a few threads have in work; resident sizes on x86-64, rounded up.
BASE, COMPILER = 256 << 20, 256 << 20
# What is held of a tensor that is made whole: as it is read, as it becomes, and a copy between.
COPIES, WIDEST = 3, 4
# What each thread more than a few has: a part that is made, one that waits, and float32 of it.
FEW, THREAD = 4, 4 * CHUNK_BYTES


def needed_memory(conversion: Conversion) -> int:
    """The bytes of memory that a conversion takes at most, roughly.

    Tensors whose rows are only moved are read and written a few rows at a time by each thread; any
    other is made whole, in float32 at the widest, and so is one that several stored tensors make.
    """
    whole = max((_held(conversion, *pair) for pair in conversion.tensors), default=0)
    base = BASE + (COMPILER if conversion.quantized_elements else 0)
    return base + max(0, conversion.maker.jobs - FEW) * THREAD + whole


def _held(conversion: Conversion, spec: TensorSpec, origin: Origin) -> int:
    """The bytes of a tensor that is made whole; none of any other."""
    if not isinstance(origin, OutputTensor | str):
        return 0
    sources = _sources(conversion, origin)
    composed = [source for source in sources if isinstance(source, CompositeTensor)]
    unpacked = [source for source in sources if source.unpack is not None]
    rearranged = isinstance(origin, OutputTensor) and _is_rearranged(conversion, origin)
    if not composed and not unpacked and not rearranged:
        return 0
    return COPIES * WIDEST * spec.size + sum(source.nbytes for source in composed)


def _sources(conversion: Conversion, origin: OutputTensor | str) -> list[TensorInfo]:
    """The tensors of the checkpoint that make a tensor."""
    if isinstance(origin, str):
        return [conversion.checkpoint.tensors[origin]]
    assert conversion.plan is not None  # noqa: S101 - for the type checker
    names = origin.parameters
    return [source for name in names for source in conversion.plan.parameters[name].sources]


def _is_rearranged(conversion: Conversion, origin: OutputTensor) -> bool:
    return conversion.plan is not None and gathered(conversion.plan, origin) is None
