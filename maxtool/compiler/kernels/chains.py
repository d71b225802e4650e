"""Chains of elementwise operations, computed step by step."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.formulas import CHAINED, Arithmetic
from maxtool.compiler.kernels.kernel_options import ChainStep


def run_chain(m: Arithmetic, steps: Sequence[ChainStep], values: Sequence[b.Expr]) -> b.Expr:
    """Compute a chain, each of whose steps is one of ``CHAINED``, from its inputs."""
    known = list(values)
    for step in steps:
        operands = [
            known[operand] if isinstance(operand, int) else m.number(float.fromhex(operand))
            for operand in step.operands
        ]
        known.append(b.let(CHAINED[step.op](m, *operands)))
    return known[-1]
