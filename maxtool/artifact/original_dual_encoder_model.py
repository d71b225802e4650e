"""The original model of images and texts, run by transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.original_model import call_model, load_model, of_length_1
from maxtool.runtime.loader.specs import EMBED, EMBED_IMAGE, SCORE
from maxtool.weights import Checkpoint

Array: TypeAlias = np.ndarray[Any, Any]

RESIZED = {"interpolate_pos_encoding": True}
FORWARD, LOGITS = "forward", "logits_per_image"


class OriginalDualEncoderModel:
    """The functions of an artifact, computed by transformers in float32 on the CPU."""

    def __init__(self, contents: Contents, checkpoint: Checkpoint) -> None:
        self._functions = {function.name: function for function in contents.functions}
        self._facts, self._model = contents.facts, load_model("AutoModel", checkpoint)

    def entry(self, name: str) -> NamedGraph:
        """A function by name."""
        return self._functions[name]

    def new_state(self, **_sizes: int) -> dict[str, Any]:
        """The state, of which such models have none."""
        return {}

    def run(
        self,
        name: str,
        inputs: Mapping[str, Array],
        state: dict[str, Any] | None = None,  # noqa: ARG002 - the interface of runners
    ) -> dict[str, Array]:
        """The outputs of a function by name."""
        made: Mapping[str, Callable[[Mapping[str, Array]], dict[str, Array]]] = {
            FORWARD: self._whole,
            EMBED: self._texts,
            EMBED_IMAGE: self._images,
            SCORE: self._scores,
        }
        return made[name](inputs)

    def _whole(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {LOGITS: call_model(self._model, inputs, **RESIZED)[LOGITS]}

    def _texts(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._vectors(call_model(self._model.get_text_features, inputs))

    def _images(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._vectors(call_model(self._model.get_image_features, inputs, **RESIZED))

    def _vectors(self, found: Mapping[str, Array]) -> dict[str, Array]:
        vectors = found["pooler_output"]
        return {"embeddings": of_length_1(vectors) if self._facts["normalize"] else vectors}

    def _scores(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Logits of vectors, for which transformers has no function of its own."""
        images, texts = (of_length_1(inputs[name]) for name in ("image_embeds", "text_embeds"))
        scale, bias = (self._number(name) for name in ("logit_scale", "logit_bias"))
        return {LOGITS: images @ texts.T * np.exp(scale) + bias}

    def _number(self, name: str) -> float:
        """A parameter of the model that is a number; 0 where it has none of that name."""
        found = getattr(self._model, name, None)
        return 0.0 if found is None else float(found.detach().numpy().reshape(()))
