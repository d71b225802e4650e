"""Products of matrices."""

from __future__ import annotations

from maxtool.graph import Tensor, Weight, ops
from maxtool.graph.ops.neural import WEIGHT_DTYPES
from maxtool.importers.onnx.initializers import ModelWeight
from maxtool.importers.onnx.operator_call import OperatorCall


def gemm_of_floats(call: OperatorCall) -> Tensor:
    """``alpha * a @ b + beta * c``, of matrices that may be transposed."""
    a, b, c = call.x(0), call.x(1), call.maybe(2)
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    left = ops.transpose(a, 0, 1) if call.flag("transA") else a
    result = product(left, b, transposed=call.flag("transB"))
    result = result if alpha == 1.0 else result * _factor(result, alpha)
    if c is None or beta == 0.0:
        return result
    return result + (c if beta == 1.0 else c * _factor(c, beta))


def product(x: Tensor, matrix: Tensor, *, transposed: bool = False) -> Tensor:
    """A product; with a weight it is that of a linear layer, which is stored as kernels read it."""
    fits = isinstance(matrix, Weight) and matrix.rank == 2 <= x.rank and x.dtype is matrix.dtype
    if fits and x.dtype in WEIGHT_DTYPES:
        if transposed:
            return ops.linear(x, matrix)
        if isinstance(matrix, ModelWeight):
            return ops.linear(x, matrix.turned())
    return ops.matmul(x, ops.transpose(matrix, -2, -1) if transposed else matrix)


def _factor(x: Tensor, factor: float) -> float:
    return factor if x.dtype.is_float() else int(factor)
