"""Fusing: a chain of elementwise operations becomes one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from maxtool.compiler.kernels.formulas import CHAINED
from maxtool.compiler.kernels.kernel_options import ChainStep
from maxtool.compiler.lowering.chain import Chain, Columns
from maxtool.compiler.lowering.function_lowering import FunctionLowering
from maxtool.dtype import BYTES, DType
from maxtool.graph import BufferType, Node, Tensor

# A longer chain would run out of vector registers.
MAX_INPUTS = 8
MAX_STEPS = 24


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


def cast_chain(function: FunctionLowering, node: Node) -> Chain | None:
    """The chain that ends in a cast between float32 and whole numbers; None if there is none.

    What becomes bytes has been cut to numbers that they have. Such chains are for CPUs.
    """
    (x,), (result,) = node.inputs, node.outputs
    known = result.rank > 0 and result.shape[-1].is_static and result.shape[-1] != 0
    if function.target.kind != "cpu" or not known or isinstance(x.type, BufferType):
        return None
    before = function.chains.get(id(x)) if function.index.uses(x) == 1 else None
    if result.dtype is DType.float32 and x.dtype in (*BYTES, DType.int32):
        return _widened(function, before, x)
    if x.dtype is DType.float32 and result.dtype in BYTES and before is not None:
        return replace(before, out=result.dtype) if _is_cut(before, result.dtype) else None
    return None


def _widened(function: FunctionLowering, before: Chain | None, x: Tensor) -> Chain | None:
    """The chain of whole numbers as float32."""
    if before is not None and not before.steps:
        return replace(before, out=DType.float32)
    if x.dtype is DType.int32:
        return None
    if before is None or len(before.steps) == MAX_STEPS:
        return Chain((function.get_flat(x),), (), int(x.shape[-1]))
    last = len(before.inputs) + len(before.steps) - 1
    steps = (*before.steps, ChainStep("trunc", (last,)))
    return Chain(before.inputs, steps, before.width)


def _is_cut(chain: Chain, dtype: DType) -> bool:
    """Return whether the last two steps leave numbers that a type has."""
    limits = np.iinfo(dtype.to_numpy())
    bounds: dict[str, float] = {}
    last = len(chain.inputs) + len(chain.steps) - 1
    for at, step in enumerate(chain.steps[-2:][::-1]):
        numbers = [float.fromhex(one) for one in step.operands if isinstance(one, str)]
        follows = at or any(one == last - 1 for one in step.operands)
        if len(numbers) == 1 and follows:
            bounds[step.op] = numbers[0]
    low, high = bounds.get("maximum", -np.inf), bounds.get("minimum", np.inf)
    return limits.min <= low <= high <= limits.max


def _number(function: FunctionLowering, operand: Tensor) -> str | None:
    """The value of a constant of one element, as a step has it."""
    constant = function.constants.get(id(operand))
    if constant is None or operand.shape.volume() != 1:
        return None
    return float(np.asarray(constant).item()).hex()


def _fits(operand: Tensor, result: Tensor) -> bool:
    """Return whether it has the shape of the result, or is one row for all of its rows."""
    width = result.shape[-1]
    is_row = operand.rank > 0 and operand.shape.is_static and operand.shape.volume() == width
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
