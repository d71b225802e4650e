"""Weights of squared errors, as ``quantization/weighing.py`` derives them from importance."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.quantizers.batches import Batch


def mean_square(batch: Batch, size: int, times: int) -> b.Expr:
    """The mean square of each block of ``size`` elements, times a number."""
    lanes = batch.lanes
    (squares,) = lanes.totals(
        size, lambda e: [lanes.product(batch.value(e), batch.value(e))], [0.0]
    )
    return b.let(lanes.product(squares, lanes.number(times)) / lanes.number(size))


def fill_tempered(batch: Batch, weights: b.Buffer, first: b.Index, power: b.Expr) -> None:
    """Fill in the weights of a group, from its first element on: ``weighing.tempered``."""
    lanes = batch.lanes
    with T.serial(weights.shape[0]) as element:
        value = b.let(batch.value(first + element))
        root = b.let(T.sqrt(b.let(lanes.product(value, value) + power)))
        importance = lanes.get(batch.importance, first + element)
        lanes.put(weights, lanes.product(root, importance), element)
