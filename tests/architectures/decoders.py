"""A small decoder for the tests to change, fill and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maxtool.architectures import Decoder, Entry
from maxtool.graph import Tensor, executor
from maxtool.nn.tracing import trace

CONFIG: dict[str, Any] = {
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 12,
    "n_layers": 3,
    "n_heads": 4,
    "n_kv_heads": 2,
    "head_dim": 4,
    "context_length": 16,
    "norm_eps": 1e-5,
}


def fill(model: Decoder, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Load random weights into ``model``, norms near 1, rates below 0, and return them."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, weight in model.raw_state_dict().items():
        shape = weight.shape.static()
        value = rng.standard_normal(shape)
        if "norm" in name and name.endswith("weight"):
            value = 1 + value / 4
        elif name != "embed.weight":
            value = 1.5 * value / shape[-1] ** 0.5
        value = -abs(value) if name.endswith("rate") else value
        values[name] = value.astype(weight.dtype.to_numpy())
    model.load_state_dict(values)
    return values


def _compiled(model: Decoder, entry: Entry) -> Callable[..., Sequence[Tensor]]:
    graph = trace(model, entry.name, entry.types, entry.function)
    weights = model.state_dict() | {n: w.to_numpy() for n, w in graph.owners.items()}
    return executor.find_executor().compile(graph, weights)


class Steps:
    """Feeds tokens through the cached function of a decoder with loaded weights, part by part.

    Single tokens take the function that is for them if ``decodes``.
    """

    def __init__(self, model: Decoder, batch: int, *, decodes: bool = False) -> None:
        _, prefill, decode = model.entries()[:3]
        self._step = _compiled(model, prefill)
        self._decode = _compiled(model, decode) if decodes else self._step
        self._kinds = list(model.cache().values())
        self._batch = batch
        self.restart()

    def restart(self) -> None:
        """Read anew: an empty cache, the first position."""
        self._cache = [
            np.zeros([self._batch, *map(int, kind.shape[1:])], kind.dtype.to_numpy())
            for kind in self._kinds
        ]
        self.position = 0

    def __call__(self, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Logits ``[batch, vocab]`` after the last of ids ``[batch, seq]``."""
        inputs = [ids, np.array([self.position], np.int32), *self._cache]
        step = self._decode if ids.shape[1] == 1 else self._step
        (logits,) = step(*map(Tensor, inputs))
        self.position += ids.shape[1]
        return logits.to_numpy()
