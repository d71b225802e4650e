"""Original models of an encoder and a decoder, of speech and of texts, run by transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np

from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.original_model import load_model, outputs_of
from maxtool.runtime.loader.specs import ENCODE
from maxtool.weights import Checkpoint

Array: TypeAlias = np.ndarray[Any, Any]

SOURCE, CACHE = "encoder_outputs", "past_key_values"


class OriginalSpeechModel:
    """The functions of an artifact, computed by transformers in float32 on the CPU."""

    maker: ClassVar[str] = "AutoModelForSpeechSeq2Seq"

    def __init__(self, contents: Contents, checkpoint: Checkpoint) -> None:
        self._functions = {function.name: function for function in contents.functions}
        self._model = load_model(self.maker, checkpoint)

    def entry(self, name: str) -> NamedGraph:
        """A function by name."""
        return self._functions[name]

    def new_state(self, **_sizes: int) -> dict[str, Any]:
        """The memory of one text, which is transformers' own."""
        return {}

    def run(
        self, name: str, inputs: Mapping[str, Array], state: dict[str, Any] | None = None
    ) -> dict[str, Array]:
        """The outputs of a function by name."""
        kept = {} if state is None else state
        if name == ENCODE:
            kept.clear()
            kept[SOURCE] = outputs_of(self._model.get_encoder(), inputs)
            return {"last_hidden_state": kept[SOURCE].last_hidden_state.numpy()}
        taken = {"decoder_input_ids": inputs["input_ids"]}
        options = {SOURCE: kept[SOURCE], CACHE: kept.get(CACHE), "use_cache": True}
        outputs = outputs_of(self._model, taken, **options)
        kept[CACHE] = outputs.past_key_values
        return {"logits": outputs.logits[:, -1].numpy()}


class OriginalTextToTextModel(OriginalSpeechModel):
    """The same of a model of texts."""

    maker = "AutoModelForSeq2SeqLM"
