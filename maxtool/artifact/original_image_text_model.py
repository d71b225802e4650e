"""The original model of texts with images, run by transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.original_model import call_model, load_model
from maxtool.runtime.loader.image_entries import PIXELS
from maxtool.runtime.loader.image_tokens import image_tokens
from maxtool.runtime.loader.specs import LOOK
from maxtool.weights import Checkpoint

Array: TypeAlias = np.ndarray[Any, Any]

# What marks the tokens of images, which see each other.
TYPES = "token_type_ids"


class OriginalImageTextModel:
    """The functions of an artifact, computed by transformers in float32 on the CPU.

    Transformers takes images in the first call of a text alone: each call reads all of it anew.
    """

    def __init__(self, contents: Contents, checkpoint: Checkpoint) -> None:
        self._functions = {function.name: function for function in contents.functions}
        facts: Any = contents.facts["image_tokens"]
        self._tokens = image_tokens(facts)
        self._model = load_model("AutoModelForImageTextToText", checkpoint)

    def entry(self, name: str) -> NamedGraph:
        """A function by name."""
        return self._functions[name]

    def new_state(self, **_sizes: int) -> dict[Any, Any]:
        """The texts in each slot, empty."""
        return {}

    def run(
        self, name: str, inputs: Mapping[str, Array], state: dict[Any, Any] | None = None
    ) -> dict[str, Array]:
        """The outputs of a function by name."""
        if state is None:
            return {"logits": self._logits(inputs["input_ids"], [])}
        slots = inputs.get("slot", np.zeros(1, np.int32)).tolist()
        if name == LOOK:
            ids, images = state.setdefault(slots[0], ([], []))
            ids += [self._tokens.token] * self._tokens.count
            images.append(inputs[PIXELS])
            return {}  # it shows in the logits of what follows
        texts = zip(slots, inputs["position"], inputs["input_ids"], strict=True)
        return {"logits": np.concatenate([self._read_on(state, *text) for text in texts])}

    def _read_on(self, state: dict[Any, Any], slot: int, at: int, new: Array) -> Array:
        """The logits behind further tokens of a text, which begins anew at position 0."""
        ids, images = state.setdefault(slot, ([], []))
        del ids[at:]
        ids += new.tolist()
        return self._logits(np.array([ids]), images if at else [])[:, -1]

    def _logits(self, ids: Array, images: list[Array]) -> Array:
        inputs = {"input_ids": ids}
        if images:
            types = (ids == self._tokens.token).astype(np.int64)
            inputs |= {PIXELS: np.concatenate(images), TYPES: types}
        return call_model(self._model, inputs)["logits"]
