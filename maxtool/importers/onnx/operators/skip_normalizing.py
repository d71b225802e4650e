"""Normalizations of sums, as blocks of exported transformers have them (com.microsoft)."""

from __future__ import annotations

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.operators.constants import full
from maxtool.importers.onnx.operators.normalizing import rms_normalization
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

STATISTICS = "the mean and the deviation as results are not supported"


def _sum(call: OperatorCall, bias: int) -> Tensor:
    """The input, what skips the layers before, and a bias if there is one."""
    x, skip = call.x(0), call.x(1)
    total = x + skip
    require(total.rank == x.rank, f"{skip.type} cannot be added to {x.type}")
    return total if (more := call.maybe(bias)) is None else total + more


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(call: OperatorCall) -> list[Tensor | None]:
    """The layer norm of a sum; and the sum."""
    call.only("epsilon", 5)
    require(not (call.wants(1) or call.wants(2)), STATISTICS)
    total = _sum(call, 4)
    normal = ops.layer_norm(total, call.x(2), call.maybe(3), call.real("epsilon", 1e-12))
    return [normal, None, None, total]


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_normalization(call: OperatorCall) -> list[Tensor | None]:
    """The root mean square norm of a sum; and the sum."""
    call.only("epsilon", 4)
    require(not (call.wants(1) or call.wants(2)), STATISTICS)
    total = _sum(call, 3)
    return [ops.rms_norm(total, call.x(2), call.real("epsilon", 1e-12)), None, None, total]


@operator("SimplifiedLayerNormalization")
def simplified_layer_normalization(call: OperatorCall) -> Tensor:
    """The root mean square norm, which onnxruntime has in ONNX's own domain."""
    call.only("axis epsilon stash_type", 2)
    require(not call.wants(1), STATISTICS)
    return rms_normalization(call)


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(call: OperatorCall) -> list[Tensor | None]:
    """The layer norm of rows for tokens, positions and segments; tokens in masks; and the sum."""
    call.only("epsilon mask_index_type", 9)
    ids, words, places = call.x(0), call.x(2), call.x(3)
    if call.has(8):
        positions = ops.gather(places, call.x(8), 0)
    else:
        positions = ops.slice_tensor(places, (slice(ids.shape[1]),))
    total = ops.gather(words, ids, 0) + positions
    if call.has(1) and call.has(4):
        total = total + ops.gather(call.x(4), call.x(1), 0)
    normal = ops.layer_norm(total, call.x(5), call.x(6), call.real("epsilon", 1e-12))
    return [normal, _counted(call), total]


def _counted(call: OperatorCall) -> Tensor:
    """The tokens of each row that its mask does not hide, int32; zeros without a mask."""
    if not call.has(7):
        return full(known(np.zeros((), np.int32)), [call.x(0).shape[0]])
    mask = ops.cast(ops.equal(call.x(7), 1), DType.int32)
    return ops.reshape(ops.sum(mask, 1), [mask.shape[0]])
