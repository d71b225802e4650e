"""``Chain``: elementwise operations that become one kernel when their result is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maxtool.compiler.kernels.kernel_options import ChainStep
from maxtool.compiler.kernels.requests import Pointwise
from maxtool.dtype import DType


@dataclass(frozen=True)
class Chain:
    """Elementwise operations on flat tensors of one shape, not emitted yet."""

    inputs: tuple[Any, ...]
    steps: tuple[ChainStep, ...]  # operands count the inputs first
    width: int  # the last dimension, which must be known

    def kernel(self, dtype: DType) -> Pointwise:
        """The kernel of the chain, which rounds its result to ``dtype``."""
        inputs = len(self.inputs)
        return Pointwise(dim=self.width, inputs=inputs, steps=self.steps, out=dtype.value)
