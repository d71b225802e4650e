"""Bytes that a model moves and multiply-adds that it makes, counted from its manifest.

Every weight is read once in a call, from memory; of tables the rows that are looked up, of experts
those that the tokens go through. Of a cache the positions are read that the last query sees, and
those that are new are written. A product of a matrix makes a multiply-add for each of its elements
and each row; attention makes two for each element of a head, each query and each key that it sees.
Activations stay in the caches of the processor, and norms and the like are not counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from maxtool.runtime.loader.manifest import Manifest
from maxtool.runtime.loader.specs import EMBED, GENERATE, WeightSpec

HEAD = "lm_head.weight"
# A decoder's matrix whose rows are as wide as all heads of a layer together.
ATTENTION_OUTPUT = re.compile(r"layers\.(\d+)\.attn\.o\.weight")
CACHE = re.compile(r"cache\.(\d+)\.")
# Used by an encoder's ``forward`` alone.
POOLER = "pooler."


@dataclass(frozen=True)
class Work:
    """Work for one unit: a token, a text or a call."""

    bytes: float
    multiply_adds: float | None  # None where the manifest does not tell

    @property
    def operations(self) -> float | None:
        """Floating-point operations, two for each multiply-add."""
        return None if self.multiply_adds is None else 2 * self.multiply_adds

    def per(self, units: int) -> Work:
        """The mean over some units."""
        made = self.multiply_adds
        return Work(self.bytes / units, None if made is None else made / units)


class ModelWork:
    """Work of a model of text: what its weights are for."""

    def __init__(self, manifest: Manifest) -> None:
        self._rows = {table.weight: table.index for table in manifest.tables}
        weights = {spec.name: spec for spec in manifest.weights}
        self._head = weights.get(HEAD) or self._tied(weights)
        self._tables = [weights[name] for name in self._rows if name in weights]
        self._others = [spec for spec in manifest.weights if self._is_plain(spec)]
        self._used = _positive(manifest.root.get("n_experts_used"))
        self._widths = dict(_widths(manifest.weights))

    def _tied(self, weights: dict[str, WeightSpec]) -> WeightSpec | None:
        """The embedding, where it is the head too."""
        return next((weights[w] for w, i in self._rows.items() if i == "input_ids"), None)

    def _is_plain(self, spec: WeightSpec) -> bool:
        return spec.name not in self._rows and spec is not self._head

    def _looked_up(self, rows: int) -> float:
        """Bytes of the tables' rows for so many tokens."""
        return sum(rows * spec.nbytes() / spec.logical[0] for spec in self._tables)

    def _weights_read(self, specs: Iterable[WeightSpec], rows: int) -> float:
        return sum(spec.nbytes() * self._share(spec, rows) for spec in specs)

    def _share(self, spec: WeightSpec, rows: int) -> float:
        """Return the share of a weight that is read: of experts, at most some for each token."""
        if not _is_of_experts(spec) or self._used is None:
            return 1.0
        return min(1.0, rows * self._used / spec.logical[0])

    def _products(self, specs: Iterable[WeightSpec], rows: int) -> int:
        """Multiply-adds of the matrices among some weights, for ``rows`` tokens."""
        return sum(rows * self._of_one_row(spec) for spec in specs)

    def _of_one_row(self, spec: WeightSpec) -> int:
        if spec.unpacked is None:
            return 0
        used = self._used or spec.logical[0]
        return math.prod((used, *spec.logical[1:]) if _is_of_experts(spec) else spec.logical)


class GenerationWork(ModelWork):
    """Work of a decoder, for one text."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._windows: list[Any] = manifest.root.get("windows") or []
        self._caches = list(_caches(manifest))
        self._fixed = _fixed(manifest)

    def prefill(self, length: int) -> Work:
        """Reading a prompt from the start: the head is for its last token alone."""
        seen = {layer: self._keys(layer, 0, length) for layer in self._widths}
        return Work(
            self._read(length) + self._moved(length - 1, length),
            self._products(self._others, length) + self._head_products() + self._attention(seen),
        )

    def decode(self, start: int, count: int, texts: int = 1) -> Work:
        """Reading ``count`` tokens, one at a time, behind ``start`` others.

        The same of several ``texts`` in each call, for which weights are read once.
        """
        seen = {layer: self._keys(layer, start, count) for layer in self._widths}
        moved = sum(self._moved(start + i, 1) for i in range(count))
        products = count * (self._products(self._others, 1) + self._head_products())
        return Work(
            count * self._read(texts) + texts * moved, texts * (products + self._attention(seen))
        )

    def _read(self, rows: int) -> float:
        """Bytes of weights for a call with so many tokens."""
        head = 0 if self._head is None else self._head.nbytes()
        return self._weights_read(self._others, rows) + self._looked_up(rows) + head

    def _head_products(self) -> int:
        return 0 if self._head is None else math.prod(self._head.logical)

    def _moved(self, last: int, rows: int) -> float:
        """Bytes of the caches that are read for a query at position ``last``, and written."""
        held = sum(size * (self._visible(layer, last) + rows) for layer, size in self._caches)
        return held + self._fixed

    def _attention(self, seen: dict[int, int]) -> int:
        """Multiply-adds of attention: scores, and sums of values."""
        return sum(2 * self._widths[layer] * keys for layer, keys in seen.items())

    def _keys(self, layer: int, start: int, count: int) -> int:
        """Keys that the queries from position ``start`` on see, all together."""
        return sum(self._visible(layer, start + i) for i in range(count))

    def _visible(self, layer: int, position: int) -> int:
        """Keys that the query at a position sees, its own included."""
        window = self._windows[layer] if layer < len(self._windows) else None
        return position + 1 if window is None else min(position + 1, int(window))


class EmbeddingWork(ModelWork):
    """Work of an encoder."""

    def _tied(self, _weights: dict[str, WeightSpec]) -> None:
        """Return None: an encoder has no head."""

    def _is_plain(self, spec: WeightSpec) -> bool:
        return super()._is_plain(spec) and not spec.name.startswith(POOLER)

    def embed(self, batch: int, length: int) -> Work:
        """Making vectors of ``batch`` texts, each of ``length`` tokens."""
        rows = batch * length
        attention = sum(2 * width * length * length for width in self._widths.values())
        return Work(
            self._weights_read(self._others, rows) + self._looked_up(rows),
            self._products(self._others, rows) + batch * attention,
        )


def call_work(manifest: Manifest) -> Work | None:
    """The work of a call of an entry: all weights are read; None where several entries share them.

    A manifest does not say what a module computes with them.
    """
    if len(manifest.entries) > 1:
        return None
    return Work(sum(spec.nbytes() for spec in manifest.weights), None)


TASKS: dict[str | None, type[ModelWork]] = {GENERATE: GenerationWork, EMBED: EmbeddingWork}


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _is_of_experts(spec: WeightSpec) -> bool:
    return spec.unpacked is not None and len(spec.unpacked) == 3


def _widths(weights: Iterable[WeightSpec]) -> Iterator[tuple[int, int]]:
    """The width of all heads of each layer."""
    for spec in weights:
        if match := ATTENTION_OUTPUT.fullmatch(spec.name):
            yield int(match[1]), spec.logical[-1]


def _fixed(manifest: Manifest) -> float:
    """Bytes of the states of fixed size of a text, which each call reads and writes."""
    fixed = (s for s in manifest.state if CACHE.match(s.name) and s.positions is None)
    return 2 * sum(spec.nbytes() for spec in fixed) / manifest.batch


def _caches(manifest: Manifest) -> Iterator[tuple[int, float]]:
    """Each buffer of a cache: its layer, and the bytes of one position of a text."""
    for spec in manifest.state:
        match = CACHE.match(spec.name)
        if match and spec.positions is not None:
            positions = int(spec.shape[spec.positions]) * manifest.batch
            yield int(match[1]), spec.nbytes() / positions
