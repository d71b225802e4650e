"""The memory that a conversion takes, from its plan."""

from __future__ import annotations

from maxtool.conversion.engine import Conversion
from maxtool.recipe import OutputTensor
from maxtool.recipe.gathered_rows import gathered

# Of Python with NumPy and maxtool, of the compiler that quantizes, and of the parts of tensors that
# are in work; resident sizes on x86-64, rounded up.
BASE, COMPILER = 256 << 20, 256 << 20
# What is held of a tensor that is made whole: as it is read, as it becomes, and a copy between.
COPIES, WIDEST = 3, 4


def needed_memory(conversion: Conversion) -> int:
    """The bytes of memory that a conversion takes at most, roughly.

    Tensors whose rows are only moved are read and written a few rows at a time; any other is made
    whole, in float32 at the widest.
    """
    whole = [
        spec.size
        for spec, origin in conversion.tensors
        if isinstance(origin, OutputTensor)
        and conversion.plan is not None
        and gathered(conversion.plan, origin) is None
    ]
    base = BASE + (COMPILER if conversion.quantized_elements else 0)
    return base + COPIES * WIDEST * max(whole, default=0)
