"""Fusing: a chain of elementwise operations becomes one kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maxtool.compiler.kernels.formulas import CHAINED
from maxtool.compiler.kernels.kernel_options import ChainStep
from maxtool.compiler.lowering.chain import Chain, Columns
from maxtool.compiler.lowering.function_lowering import FunctionLowering
from maxtool.dtype import DType
from maxtool.graph import Node, Tensor

# A longer chain would run out of vector registers.
MAX_INPUTS = 8
MAX_STEPS = 16


def chain(function: FunctionLowering, node: Node) -> Chain | None:
    """The chain that ends in ``node``, its producers taken in; None if a kernel cannot run it.

    That is when it is no float32 operation of the table, an operand must be broadcast that is
    neither a number nor one row, or the width is not known.
    """
    result = node.outputs[0]
    known = result.rank > 0 and result.shape[-1].is_static and result.shape[-1] != 0
    if node.op not in CHAINED or result.dtype is not DType.float32 or not known:
        return None
    constants = [_number(function, operand) for operand in node.inputs]
    tensors = [
        operand for operand, number in zip(node.inputs, constants, strict=True) if number is None
    ]
    wide = [operand for operand in tensors if operand.shape == result.shape]
    if not wide or any(not _fits(operand, result) for operand in tensors):
        return None
    parts = [_part(function, operand, result) for operand in tensors]
    joined = _join(node.op, constants, parts, int(result.shape[-1]))
    if len(joined.inputs) <= MAX_INPUTS and len(joined.steps) <= MAX_STEPS:
        return joined
    alone = [_alone(function, operand, result) for operand in tensors]
    return _join(node.op, constants, alone, int(result.shape[-1]))


def _number(function: FunctionLowering, operand: Tensor) -> str | None:
    """The value of a scalar constant, as a step has it."""
    constant = function.constants.get(id(operand))
    if constant is None or operand.rank:
        return None
    return float(np.asarray(constant).item()).hex()


def _fits(operand: Tensor, result: Tensor) -> bool:
    """Return whether it has the shape of the result, or is one row for all of its rows."""
    width = result.shape[-1]
    is_row = operand.rank > 0 and operand.shape.is_static and operand.shape.volume == width
    return operand.shape == result.shape or (is_row and operand.shape[-1] == width)


def _part(function: FunctionLowering, operand: Tensor, result: Tensor) -> Chain:
    """The chain of an operand that only this operation reads, else the operand itself."""
    pending = function.chains.get(id(operand))
    same = operand.shape == result.shape
    if pending is not None and same and function.index.uses(operand) == 1:
        return pending
    return _alone(function, operand, result)


def _alone(function: FunctionLowering, operand: Tensor, result: Tensor) -> Chain:
    """A chain of no operation: the operand itself."""
    width = int(operand.shape[-1])
    if operand.shape == result.shape:
        return Chain((function.get_flat(operand),), (), width)
    whole = function.get(operand)
    row = whole if operand.rank == 1 else function.reshaped(whole, [width])
    return Chain((Columns(row),), (), width)


def _join(op: str, constants: Sequence[str | None], parts: Sequence[Chain], width: int) -> Chain:
    """One chain that runs the parts and then ``op`` on their results."""
    inputs = list(dict.fromkeys(expr for part in parts for expr in part.inputs))
    steps: list[ChainStep] = []
    results: list[int] = []
    for part in parts:
        indices = [inputs.index(expr) for expr in part.inputs]
        indices += range(len(inputs) + len(steps), len(inputs) + len(steps) + len(part.steps))
        steps += [_moved(step, indices) for step in part.steps]
        results.append(indices[-1])
    remaining = iter(results)
    operands = tuple(next(remaining) if number is None else number for number in constants)
    return Chain(tuple(inputs), (*steps, ChainStep(op, operands)), width)


def _moved(step: ChainStep, indices: Sequence[int]) -> ChainStep:
    """``step`` with its operands where the joined chain has them; constants have none."""
    operands = (each if isinstance(each, str) else indices[each] for each in step.operands)
    return ChainStep(step.op, tuple(operands))
