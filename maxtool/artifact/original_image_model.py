"""The original model of images, run by transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.original_model import call_model, load_model, of_length_1
from maxtool.runtime.loader.specs import CLASSIFY, EMBED
from maxtool.weights import Checkpoint

Array: TypeAlias = np.ndarray[Any, Any]

# Models that resize their positions without being told to, and such that have none.
RESIZING = ("dinov2", "dinov2_with_registers", "resnet", "convnext", "convnextv2")
PROJECTED = {"clip_vision_model": "CLIPVisionModelWithProjection"}


class OriginalImageModel:
    """The functions of an artifact, computed by transformers in float32 on the CPU."""

    def __init__(self, contents: Contents, checkpoint: Checkpoint) -> None:
        self._functions = {function.name: function for function in contents.functions}
        self._facts, self._checkpoint = contents.facts, checkpoint
        self._kind = str((checkpoint.config or {}).get("model_type"))
        self._models: dict[bool, Any] = {}

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
        """The outputs of a function by name; an error where the model has none of that name."""
        options = {} if self._kind in RESIZING else {"interpolate_pos_encoding": True}
        results = call_model(self._function(name), inputs, **options)
        if (pooled := results.get("pooler_output")) is not None:
            results = {**results, "pooler_output": pooled.reshape(len(pooled), -1)}
        if name == EMBED:
            return {"embeddings": self._vectors(results)}
        return {key: results[key] for key in self._functions[name].outputs}

    def _model(self, classifies: bool) -> Any:  # noqa: ANN401 - transformers' own
        """The model, or the one that has a classifier above it."""
        if classifies not in self._models:
            name = self._class_name(classifies)
            self._models[classifies] = load_model(name, self._checkpoint)
        return self._models[classifies]

    def _function(self, name: str) -> Any:  # noqa: ANN401
        """Choose the function of the model that gives what a function of the artifact gives."""
        model = self._model(name == CLASSIFY)
        if name == CLASSIFY:
            return model
        if name == EMBED and self._facts["projection_size"]:
            return getattr(model, "get_image_features", model)
        return getattr(model, "vision_model", model)

    def _class_name(self, classifies: bool) -> str:
        """The class that reads the checkpoint for this."""
        if classifies:
            return "AutoModelForImageClassification"
        known = PROJECTED if self._facts["projection_size"] else {}
        return known.get(self._kind, "AutoModel")

    def _vectors(self, results: Mapping[str, Array]) -> Array:
        """One vector for each image, as the artifact's facts say."""
        vectors = self._unscaled(results).astype(np.float64)
        return of_length_1(vectors) if self._facts["normalize"] else vectors

    def _unscaled(self, results: Mapping[str, Array]) -> Array:
        pooling, tokens = self._facts["pooling"], results["last_hidden_state"]
        if pooling == "mean":
            mean: Array = tokens[:, int(str(self._facts["leading_tokens"])) :].mean(1)
            return mean
        if pooling == "cls":
            return tokens[:, 0]
        projected = results.get("image_embeds")  # of the one class that is an encoder and more
        return results["pooler_output"] if projected is None else projected
