"""Output of a transposed convolution: what each phase computes lies a stride apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from tvm import tirx

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.image_matrix import pixels_from
from maxtool.compiler.kernels.cuda.product_output import Output, Rows
from maxtool.compiler.kernels.kernel_options import Phases


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedOutput(Output):
    """The result of one phase after the other; ``rows`` counts the pixels of a phase."""

    phases: Phases
    outputs: Sequence[b.Expr]  # sizes of a phase
    result: Sequence[b.Expr]  # sizes of the whole result
    own: Sequence[b.Expr] = ()  # which phase it is, along each dimension

    def of(self, index: b.Expr) -> PhasedOutput:
        """The result of one phase."""
        steps = [b.integer(step) for step in self.phases.stride]
        return replace(self, own=b.unravel(index, steps))

    def rows_from(self, first: b.Expr) -> Rows:
        """Return what gives a row of the result for one of a part that begins at ``first``."""
        pixel = pixels_from(first, self.rows, self.outputs)

        def row(offset: b.Expr) -> tuple[b.Expr, b.Expr]:
            whole, places = pixel(offset)
            exists = [b.index(first + offset) < self.rows]
            axes = zip(places, self.phases.stride, self.own, self.phases.before, strict=True)
            for size, (place, step, own, before) in zip(self.result, axes, strict=True):
                at = b.index(place * step + own - before)
                exists += [at >= 0, at < size]
                whole = whole * size + at
            return tirx.all(*exists), b.index(whole)

        return row


def phased(
    output: Output, phases: Phases, outputs: Sequence[b.Expr], result: Sequence[b.Expr]
) -> PhasedOutput:
    """The output of phases whose sizes are ``outputs``, given that of one without."""
    own = {field.name: getattr(output, field.name) for field in fields(output)}
    return PhasedOutput(**own, phases=phases, outputs=outputs, result=result)
