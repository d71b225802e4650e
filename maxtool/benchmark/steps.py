"""Steps of a model that are measured: reading prompts, making tokens, vectors of texts, calls."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from maxtool.runtime.loader.memory import Array
from maxtool.runtime.loader.model import Model
from maxtool.runtime.loader.session import Session
from maxtool.runtime.loader.slots import Unread, inputs_of
from maxtool.runtime.loader.specs import BITS, DTYPES, EMBED, ArraySpec, BufferSpec

SEED = 0
# Tokens that follow the first one before anything is measured.
WARM_UP = 2


class Step(ABC):
    """Work that is done over and over; what is made for it once is made before it is measured."""

    @abstractmethod
    def once(self) -> bool:
        """Do the work for one unit; false when there is no more of it."""

    units = 1  # of work that each call does

    def turn(self, seconds: float) -> tuple[int, float]:
        """Work for so long, once at least: units done, and how many seconds they took."""
        began, count, elapsed = time.perf_counter(), 0, 0.0
        while (not count or elapsed < seconds) and self.once():
            count, elapsed = count + self.units, time.perf_counter() - began
        return count, elapsed


class Prefill(Step):
    """Reading a prompt, up to the first token behind it."""

    def __init__(self, model: Model, prompt: int) -> None:
        self.units = prompt
        self._ids = random_ids(model, (prompt,)).tolist()
        self._session, self._choose = Session(model), greedy(model)
        self.once()

    def once(self) -> bool:
        """Read the prompt, nothing of which is remembered."""
        self._session.ids.clear()
        next(self._session.generate(self._ids, 1, self._choose))
        return True


class Decode(Step):
    """Making tokens, one at a time, behind a prompt."""

    def __init__(self, model: Model, prompt: int, tokens: int) -> None:
        ids = random_ids(model, (prompt,)).tolist()
        self._stream = Session(model).generate(ids, tokens + 1, greedy(model))
        next(self._stream)

    def once(self) -> bool:
        """Make a token."""
        return next(self._stream, None) is not None


class DecodeTogether(Step):
    """Making a token of several texts at a time, each in its own slot.

    All are behind the same prompt, which is read once, and a token of their own: the same texts
    would need the same experts, and so fewer of them than others do.
    """

    def __init__(self, model: Model, prompt: int, tokens: int, texts: int) -> None:
        self.units = texts
        self._model, self._choose = model, greedy(model)
        self._state, self._end = model.new_state(), prompt + tokens
        ids = random_ids(model, (prompt,)).tolist()
        self._read("prefill", [Unread(0, ids, 0)])
        for spec, array in zip(cycle(model.manifest.state), self._state.arrays, strict=False):
            _repeat(array, spec, prompt, texts)
        self._state.lengths[:texts] = [prompt] * texts
        self._texts = [[*ids, token] for token in random_ids(model, (texts,)).tolist()]

    def once(self) -> bool:
        """Make a token of each text."""
        start = len(self._texts[0]) - 1
        if start == self._end:
            return False
        unread = [Unread(slot, ids, start) for slot, ids in enumerate(self._texts)]
        for ids, token in zip(self._texts, self._read("decode", unread), strict=True):
            ids.append(token)
        return True

    def _read(self, entry: str, texts: Sequence[Unread]) -> list[int]:
        """The tokens behind texts."""
        inputs = inputs_of(self._model.manifest, texts)
        rows = self._model.run(entry, inputs, self._state)["logits"]
        return [self._choose(logits, ()) for logits in rows]


def _repeat(array: Array, spec: BufferSpec, prompt: int, texts: int) -> None:
    """Copy what the first slot holds of a prompt to others: memory behind it stays untouched."""
    used: list[slice] = [slice(None)] * array.ndim
    if spec.positions is not None:
        used[spec.positions] = slice(prompt)
    first, others = ((rows, *used[1:]) for rows in (slice(1), slice(1, texts)))
    array[others] = array[first]


def _decode(model: Model, prompt: int, tokens: int, texts: int = 1) -> Step:
    """Make tokens ready, of one text or of several."""
    if texts == 1:
        return Decode(model, prompt, tokens)
    return DecodeTogether(model, prompt, tokens, texts)


class Embed(Step):
    """Making vectors of texts of one length."""

    def __init__(self, model: Model, batch: int, length: int) -> None:
        self.units, self._model = batch, model
        ids = random_ids(model, (batch, length))
        self._arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        self.once()

    def once(self) -> bool:
        """Make the vectors of a batch."""
        self._model.run(EMBED, self._arrays)
        return True


class Call(Step):
    """Calling an entry with arrays of the sizes that are asked for."""

    def __init__(self, model: Model, entry: str, sizes: Mapping[str, int]) -> None:
        self._model, self._entry = model, entry
        inputs = model.entry(entry).inputs
        self._arrays = {spec.name: filled(model, spec, sizes) for spec in inputs}
        self.once()

    def once(self) -> bool:
        """Call the entry."""
        self._model.run(self._entry, self._arrays)
        return True


def new_step(model: Model, step: str, sizes: Mapping[str, int], entry: str) -> Step:
    """Make a step ready, as a :class:`cases.Case` describes it."""
    if step == "call":
        return Call(model, entry, sizes)
    steps: Mapping[str, Callable[..., Step]] = {
        "prefill": Prefill,
        "decode": _decode,
        "embed": Embed,
    }
    return steps[step](model, **sizes)


def first_result(model: Model, length: int) -> float:
    """Seconds from ``length`` tokens to the first token behind them, or to the text's vector.

    Some tokens are generated then, so that what is measured next is not the first of its kind.
    """
    random_ids(model, (1,))  # which imports what it needs
    began = time.perf_counter()
    if model.manifest.task == EMBED:
        Embed(model, 1, length)
        return time.perf_counter() - began
    Prefill(model, length)
    elapsed = time.perf_counter() - began
    Decode(model, length, WARM_UP).turn(math.inf)
    return elapsed


def greedy(model: Model) -> Callable[[Array, Sequence[int]], int]:
    """Return a choice of the likeliest token that does not end the text."""
    ends = list(model.manifest.eos)

    def choose(logits: Array, _before: Sequence[int]) -> int:
        token = int(logits.argmax())
        if token in ends:
            logits = logits.copy()
            logits[ends] = -np.inf
            token = int(logits.argmax())
        return token

    return choose


def random_ids(model: Model, shape: tuple[int, ...]) -> Array:
    """Token ids of the vocabulary, the same each time."""
    limit: Any = model.manifest.limits["input_ids"]
    return np.random.default_rng(SEED).integers(limit[0], limit[1] + 1, shape)


def filled(model: Model, spec: ArraySpec, sizes: Mapping[str, int]) -> Array:
    """An array for an input: random floats around 0; of other types the least value it takes."""
    shape, dtype = spec.sizes(sizes), DTYPES[spec.dtype]
    if spec.dtype not in BITS and dtype.kind == "f":
        return np.random.default_rng(SEED).standard_normal(shape).astype(dtype)
    limit = model.manifest.limits.get(spec.name)
    return np.full(shape, limit[0] if isinstance(limit, tuple) else 0, dtype)
