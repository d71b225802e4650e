"""Which reference computes a checkpoint, told by the raw ``model_type`` or GGUF architecture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import ConfigurationError
from maxtool.parity import decoder, encoder
from maxtool.weights.checkpoint import Checkpoint

Inputs = Mapping[str, NDArray[Any]]
Outputs = dict[str, NDArray[np.float64]]


class Reference(Protocol):
    """The outputs of one checkpoint in float64, computed from its raw tensors."""

    def forward(self, inputs: Inputs) -> Outputs:
        """What the compiled entry ``forward`` should give.

        Args:
            inputs: Arrays under the names of the entry's inputs; ``input_ids`` [batch, seq] for all
                language models, and what else the architecture takes (``attention_mask``).

        Returns:
            float64 arrays under the names of the entry's outputs.
        """


@runtime_checkable
class CachedReference(Reference, Protocol):
    """A reference of a model that also runs a few tokens at a time, with a cache."""

    @property
    def turns(self) -> tuple[int, ...]:
        """Lengths, ascending, beyond which it computes otherwise: windows, and contexts.

        A context is one that the scaling of rotary positions looks at.
        """

    @property
    def work(self) -> int:
        """How many multiplications a token costs at most, but for those of attention."""

    def cached(self, input_ids: NDArray[Any], starts: Sequence[int]) -> NDArray[np.float64]:
        """What the compiled entries ``prefill`` and ``decode`` should give, called in turn.

        Args:
            input_ids: Token ids of all calls together [batch, seq].
            starts: Where each call begins, ascending from 0; the last one ends with the sequence.

        Returns:
            Logits after the last token of each call [batch, calls, vocab].
        """


@runtime_checkable
class EmbeddingReference(Reference, Protocol):
    """A reference of a model that makes one vector of a text."""

    def embed(self, inputs: Inputs, pooling: str, *, normalize: bool) -> NDArray[np.float64]:
        """What the compiled entry ``embed`` should give.

        Args:
            inputs: Its inputs, by their names.
            pooling: How tokens' vectors become one: ``mean``, ``cls`` or ``max``.
            normalize: Whether it is scaled to length 1.

        Returns:
            Vectors [batch, hidden].
        """


@dataclass(frozen=True, slots=True)
class Kind:
    """Models that one class of references computes.

    Attributes:
        open: Makes the reference of a checkpoint; reads its configuration and checks its tensors.
        model_types: ``model_type`` of the Hugging Face configurations it knows.
        gguf: ``general.architecture`` of the GGUF files it knows.
        classes: Classes of transformers that it knows in ``architectures``, for configurations
            whose ``model_type`` nobody knows.
    """

    open: Callable[[Checkpoint], Reference]
    model_types: Collection[str]
    gguf: Collection[str]
    classes: Collection[str] = ()


REFERENCES: tuple[Kind, ...] = (
    Kind(
        decoder.DecoderReference,
        decoder.MODEL_TYPES,
        decoder.GGUF_ARCHITECTURES,
        decoder.CLASSES,
    ),
    Kind(encoder.EncoderReference, encoder.MODEL_TYPES, encoder.GGUF_ARCHITECTURES),
)


def reference(checkpoint: Checkpoint) -> Reference:
    """The reference that computes a checkpoint.

    Raises:
        ConfigurationError: If there is none for its kind of model, or the configuration is wrong.
        MissingWeight: If tensors are missing.
        MisshapenWeight: If tensors have other shapes than the configuration says.
    """
    gguf = checkpoint.format == "gguf"
    key, name = _name(checkpoint)
    known = {
        name: kind for kind in REFERENCES for name in (kind.gguf if gguf else kind.model_types)
    }
    if isinstance(name, str) and name in known:
        return known[name].open(checkpoint)
    for kind in () if gguf else REFERENCES:
        if any(found in kind.classes for found in _classes(checkpoint)):
            return kind.open(checkpoint)
    raise ConfigurationError(
        f"--check knows no reference for {key} {name!r}",
        file=checkpoint.config_file or checkpoint.path,
        hint=f"it knows {', '.join(sorted(known))}",
    )


def _name(checkpoint: Checkpoint) -> tuple[str, object]:
    """Key and value of what says which kind of model it is."""
    if checkpoint.format == "gguf":
        return "GGUF architecture", checkpoint.metadata.get("general.architecture")
    if checkpoint.config is None:
        raise ConfigurationError("there is no config.json beside the tensors", file=checkpoint.path)
    return "model_type", checkpoint.config.get("model_type")


def _classes(checkpoint: Checkpoint) -> list[str]:
    found = (checkpoint.config or {}).get("architectures")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
