"""``Chain``: elementwise operations that become one kernel when their result is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from maxtool.compiler.kernels.kernel_options import ChainStep
from maxtool.compiler.kernels.requests import Pointwise
from maxtool.dtype import DType

Expr: TypeAlias = Any  # tvm ships no types


@dataclass(frozen=True, slots=True)
class Columns:
    """A vector that every row of a chain is computed with."""

    expr: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A tensor whose kernel runs a chain on its result before it is stored.

    ``emit`` calls the kernel for a result of a type, in the tensor's own shape. A chain counts that
    result first, then the other inputs.
    """

    emit: Callable[[Sequence[Expr | Columns], tuple[ChainStep, ...], DType], Expr]

    def alone(self) -> Expr:
        """Call the kernel for the result itself, in float32."""
        return self.emit((), (), DType.float32)


@dataclass(frozen=True)
class Chain:
    """Elementwise operations on flat tensors of one shape, not emitted yet."""

    inputs: tuple[Expr | Columns | Pending, ...]
    steps: tuple[ChainStep, ...]  # operands count the inputs first
    width: int  # the last dimension, which must be known
    out: DType = DType.float32  # of the result; its last step gives whole numbers if that has them

    def kernel(self, dtype: DType) -> Pointwise:
        """The kernel of the chain, which rounds its result to ``dtype``."""
        types = tuple(str(each.ty.dtype) for each in self.operands)
        columns = tuple(isinstance(each, Columns) for each in self.inputs)
        inputs = len(self.inputs)
        return Pointwise(
            dim=self.width,
            inputs=inputs,
            steps=self.steps,
            columns=columns if any(columns) else (),
            out=dtype.value,
            types=types if {*types} != {"float32"} else (),
        )

    @property
    def pending(self) -> Pending | None:
        """The last of the inputs whose kernel can run the chain."""
        found = [each for each in self.inputs if isinstance(each, Pending)]
        return found[-1] if found else None

    @property
    def is_of_rows(self) -> bool:
        """Return whether all inputs are tensors of its shape, computed already."""
        return not any(isinstance(each, Columns | Pending) for each in self.inputs)

    @property
    def operands(self) -> list[Expr]:
        """The inputs as a kernel takes them."""
        return [each.expr if isinstance(each, Columns) else each for each in self.inputs]

    def after(self, first: Pending) -> Chain:
        """Return the same chain with one of its inputs in front."""
        at = self.inputs.index(first)
        order = [at, *(i for i in range(len(self.inputs)) if i != at)]
        places = {old: new for new, old in enumerate(order)}
        steps = tuple(
            ChainStep(
                step.op,
                tuple(
                    places.get(each, each) if isinstance(each, int) else each
                    for each in step.operands
                ),
            )
            for step in self.steps
        )
        return Chain(tuple(self.inputs[i] for i in order), steps, self.width, self.out)
