"""Logits of decoders in NumPy float64, from the raw checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import UsageError
from maxtool.parity.decoder.attention import bend
from maxtool.parity.decoder.layer import Layer, normed
from maxtool.parity.decoder.rope import Rope
from maxtool.parity.decoder.settings import Settings
from maxtool.parity.decoder.sources import read_settings
from maxtool.parity.decoder.tensors import Tensors
from maxtool.weights.checkpoint import Checkpoint

Array = NDArray[np.float64]


class DecoderReference:
    """The reference of a decoder (:class:`maxtool.parity.references.CachedReference`).

    Weights are read one at a time, quantized ones decoded.

    Args:
        checkpoint: A Hugging Face folder, its configuration in the spelling of transformers 4 or
            5, or a GGUF file.

    Raises:
        ConfigurationError: If the model is of a kind that is not known, or its configuration is
            wrong.
        MissingWeight: If tensors are missing.
        MisshapenWeight: If tensors have other shapes than the configuration says.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.settings: Settings = read_settings(checkpoint)
        self._tensors = Tensors(self.settings, checkpoint)
        self._tensors.check()
        self._last: tuple[tuple[bytes, tuple[int, ...]], Array] | None = None

    @property
    def turns(self) -> tuple[int, ...]:
        """Lengths, ascending, beyond which sequences are computed otherwise than up to them."""
        return self.settings.turns

    @property
    def work(self) -> int:
        """How many multiplications a token costs at most, but for those of attention."""
        return sum(math.prod(shape) for _, shape in self._tensors.wanted())

    def forward(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
        """Logits at every position [batch, seq, vocab] of ``input_ids`` [batch, seq].

        Raises:
            UsageError: If ``input_ids`` is not a matrix of ids below the vocabulary size.
        """
        ids = inputs["input_ids"]
        _check_ids(self.settings, ids)
        return {"logits": self._logits(self._hidden(ids, (ids.shape[1],) * ids.shape[1]))}

    def cached(self, input_ids: NDArray[Any], starts: Sequence[int]) -> Array:
        """Logits after the last token of each call [batch, calls, vocab].

        A rotary scaling that depends on the length sees, at each call, the sequence up to its end;
        keys keep the rotation that they were cached with.

        Args:
            input_ids: Token ids of all calls together [batch, seq].
            starts: Where each call begins, ascending from 0.

        Raises:
            UsageError: If ``input_ids`` is not a matrix of ids below the vocabulary size.
        """
        _check_ids(self.settings, input_ids)
        ends = [*starts[1:], input_ids.shape[1]]
        calls = np.searchsorted(ends, np.arange(input_ids.shape[1]), side="right")
        lengths = tuple(ends[call] for call in calls)
        return self._logits(self._hidden(input_ids, lengths)[:, [end - 1 for end in ends]])

    def _logits(self, hidden: Array) -> Array:
        logits = self._tensors.head(hidden) * self.settings.logits_scale
        return bend(logits, self.settings.logits_cap)

    def _hidden(self, ids: NDArray[Any], lengths: tuple[int, ...]) -> Array:
        """What the head is given [batch, seq, hidden]; the latest is kept, for calls in turn.

        Args:
            ids: [batch, seq].
            lengths: For each position how long the sequence was when it was computed.
        """
        key = (ids.tobytes(), lengths if self.settings.depends_on_length else ids.shape)
        if self._last is None or self._last[0] != key:
            self._last = key, self._compute(ids, lengths)
        return self._last[1]

    def _compute(self, ids: NDArray[Any], lengths: tuple[int, ...]) -> Array:
        settings, tensors = self.settings, self._tensors
        tables = {rope: rope.tables(lengths) for rope in set(settings.ropes) if rope is not None}
        x = self._embed(ids)
        for index, rope in enumerate(settings.ropes):
            x = Layer(settings, tensors, index, _table(tables, rope))(x)
        return normed(settings, tensors, "norm", x)

    def _embed(self, ids: NDArray[Any]) -> Array:
        x = self._tensors.lookup("embed", ids) * self.settings.embed_scale
        if self.settings.positions:
            x += self._tensors.lookup("position", np.arange(ids.shape[1]))
        return x


def _table(
    tables: Mapping[Rope, tuple[Array, Array]], rope: Rope | None
) -> tuple[Array, Array] | None:
    return None if rope is None else tables[rope]


def _check_ids(settings: Settings, ids: NDArray[Any]) -> None:
    if ids.ndim != 2 or not ids.size or not np.issubdtype(ids.dtype, np.integer):
        found = f"{ids.dtype} {list(ids.shape)}"
        raise UsageError(f"token ids must be integers [batch, seq], at least one, not {found}")
    if not 0 <= ids.min() <= ids.max() < settings.sizes.vocab:
        raise UsageError(f"token ids must be at least 0 and less than {settings.sizes.vocab}")
    if settings.positions and ids.shape[1] > settings.positions:
        raise UsageError(f"{ids.shape[1]} tokens are more than {settings.positions} positions")
