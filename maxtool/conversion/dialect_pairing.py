"""Tensors of two checkpoints of one model, paired whatever dialects they are in.

Tensors of another dialect have other names, other shapes and another order of rows. The second
checkpoint is read as its conversion into the dialect of the first would hold it, without its being
written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.conversion.output_tensors import plain
from maxtool.errors import ModelMismatch
from maxtool.quantization.codec import dequantize
from maxtool.recipe import OutputTensor, Plan, emissions, find_recipe, plan, written_by
from maxtool.recipe.gathered_rows import Gathered, gathered
from maxtool.recipe.load import dialect
from maxtool.recipe.plan import shown
from maxtool.weights import Checkpoint, TensorInfo, WeightData
from maxtool.weights.names import listed, natural_key, selected
from maxtool.weights.pairing import Pair, Pairing, by_names, storage_of
from maxtool.weights.weight_elements import Elements, FlatElements


def paired(left: Checkpoint, right: Checkpoint, pattern: str | None = None) -> Pairing:
    """Pair the tensors of two checkpoints, those whose names in the first match a shell pattern.

    Names decide within a dialect, where any is in both. Otherwise recipes do, if both checkpoints
    fit them.

    Raises:
        ModelMismatch: If no name is in both, and no recipe fits one of them.
    """
    apart = left.tensors.keys().isdisjoint(right.tensors)
    if dialect(left) == dialect(right) and not apart:
        return by_names(left, right, pattern)
    plans, problems = [], []
    for checkpoint in (left, right):
        try:
            plans.append(_planned(checkpoint))
        except ModelMismatch as error:
            problems += [f"{checkpoint.path}: {line}" for line in error.problems or (error.what,)]
    if not problems:
        return _by_recipes(plans[0], plans[1], pattern)
    if apart:
        what = "no tensor has the same name in both, and to pair them otherwise takes recipes"
        raise ModelMismatch(what, problems=listed(problems))
    return replace(by_names(left, right, pattern), notes=tuple(listed(problems)))


def _planned(checkpoint: Checkpoint) -> Plan:
    """A checkpoint matched with the recipe that it fits."""
    planned = plan(written_by(find_recipe(checkpoint), "gguf"), checkpoint)
    if problems := shown(planned.misfits()):
        what = f"the tensors do not fit the recipe {planned.recipe.name}"
        raise ModelMismatch(what, file=checkpoint.path, problems=problems)
    return planned


def _by_recipes(left: Plan, right: Plan, pattern: str | None) -> Pairing:
    """Pair the tensors of the first with what the second's recipe makes of it in that dialect."""
    shapes = {name: binding.shape for name, binding in right.parameters.items()}
    emitted = emissions(right.recipe, left.dialect, right.config, shapes)
    both = [(left.tensors[e.name], e) for e in emitted if e.name in left.tensors]
    both = [(own, e) for own, e in both if pattern is None or fnmatchcase(own.name, pattern)]
    both.sort(key=lambda entry: natural_key(entry[0].name))
    pairing = Pairing(
        pairs=tuple(_pair(left, right, *entry) for entry in both if _alike(*entry)),
        misshapen=tuple((own.name, own.shape, e.shape) for own, e in both if not _alike(own, e)),
        recipe=right.recipe.name,
    )
    if pattern is not None:
        return pairing
    return replace(
        pairing,
        only_first=_others(left, (own for own, _ in both)),
        only_second=_others(right, (one for _, e in both for one in _sources(right, e))),
    )


def _alike(own: TensorInfo, emission: OutputTensor) -> bool:
    return own.shape == emission.shape


def _others(planned: Plan, used: Iterable[TensorInfo]) -> tuple[str, ...]:
    """The tensors that belong to the model, and are not among those that are used."""
    names = {tensor.name for tensor in used}
    bound = [source for one in planned.parameters.values() for source in one.sources]
    return tuple(selected(tensor.name for tensor in bound if tensor.name not in names))


def _sources(planned: Plan, emission: OutputTensor) -> list[TensorInfo]:
    """The stored tensors that a tensor of another dialect is made from."""
    bindings = [planned.parameters[name] for name in emission.parameters]
    return list({source.name: source for one in bindings for source in one.sources}.values())


def _pair(left: Plan, right: Plan, own: TensorInfo, emission: OutputTensor) -> Pair:
    def opened() -> tuple[Elements, Elements]:
        return FlatElements(left.checkpoint.stored(own.name)), _elements(right, emission)

    second = storage_of(_sources(right, emission))
    return Pair(own.name, own.shape, storage_of([own]), second, own.nbytes, opened)


def _elements(planned: Plan, emission: OutputTensor) -> Elements:
    """The elements of a tensor as it would be in the other dialect."""
    rows = gathered(planned, emission)
    if rows is not None:
        return GatheredElements(planned.checkpoint, rows)
    return FlatElements(WeightData.from_numpy(plain(planned, emission), emission.name))


class GatheredElements:
    """The elements of rows that lie in one or several tensors in another order, in one row."""

    def __init__(self, checkpoint: Checkpoint, rows: Gathered) -> None:
        self._rows = rows
        self._stored = [checkpoint.stored(source.name) for source in rows.sources]
        self._width = self._stored[0].row_elements
        self.encoding = rows.sources[0].encoding
        self.size = len(rows.numbers) * self._width
        self.nbytes = sum(weight.nbytes for weight in self._stored)

    def __getitem__(self, part: slice, /) -> NDArray[Any]:
        pieces = [self._cut(*cut) for cut in self._cuts(part.start, part.stop)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _cuts(self, start: int, stop: int) -> Iterator[tuple[slice, int, int]]:
        """Yield rows and columns: the end of a row, whole rows, and the beginning of one."""
        (first, begin), (last, end) = divmod(start, self._width), divmod(stop, self._width)
        if first == last:
            yield slice(first, first + 1), begin, end
            return
        if begin:
            yield slice(first, first + 1), begin, self._width
            first += 1
        if first < last:
            yield slice(first, last), 0, self._width
        if end:
            yield slice(last, last + 1), 0, end

    def _cut(self, rows: slice, start: int, stop: int) -> NDArray[Any]:
        """The columns from ``start`` to ``stop``, both between blocks, of some rows."""
        encoding = self.encoding
        if encoding is not None:
            each, size = encoding.elements_per_block, encoding.block_size
            start, stop = start // each * size, math.ceil(stop / each) * size
        pieces = [
            self._stored[source].rows(numbers, range(start, stop)).reshape(-1)
            for source, numbers in self._rows.runs(rows)
        ]
        items = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        name = self._rows.sources[0].name
        return items if encoding is None else dequantize(items, encoding, tensor=name)
