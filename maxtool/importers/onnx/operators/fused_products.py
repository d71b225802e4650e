"""Products of matrices with what onnxruntime's optimizer joins to them (com.microsoft)."""

from __future__ import annotations

from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.operators.activations import NAMES, activated
from maxtool.importers.onnx.operators.dense import gemm_of_floats
from maxtool.importers.onnx.refusals import require


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(call: OperatorCall) -> Tensor:
    """``alpha * a @ b``, of matrices whose dimensions may be in another order."""
    call.only("alpha transA transB transBatchA transBatchB", 2)
    left, right = (_arranged(call, index, letter) for index, letter in enumerate("AB"))
    alpha = call.real("alpha", 1.0)
    product = ops.matmul(left, right)
    return product if alpha == 1.0 else product * alpha


def _arranged(call: OperatorCall, index: int, letter: str) -> Tensor:
    """An operand as the product takes it: its batch last but one, or its matrix transposed."""
    x = call.x(index)
    if call.flag(f"transBatch{letter}"):
        require(x.rank > 2, f"transBatch{letter} needs more than a matrix")
        x = ops.permute(x, (*range(1, x.rank - 1), 0, x.rank - 1))
    turned = call.flag(f"trans{letter}") and x.rank > 1
    return ops.transpose(x, -1, -2) if turned else x


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(call: OperatorCall) -> Tensor:
    """``activation(alpha * a @ b + beta * c)``."""
    call.only(f"alpha beta transA transB {NAMES}", 3)
    return activated(call, gemm_of_floats(call))
