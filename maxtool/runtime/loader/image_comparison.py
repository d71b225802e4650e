"""Images told apart by texts that say what they may show, as CLIP does it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .classifier import SCORES
from .dual_encoder_entries import LOGITS, VECTORS
from .embedder import Embedder
from .entries import EntryRunner
from .errors import DoesNotFit, RunError
from .memory import Array
from .specs import DUAL_ENCODER, SCORE
from .wrong_path import another_task


class ImageComparison:
    """Scores of images for each of some texts, whose vectors are made once."""

    def __init__(self, model: EntryRunner, texts: Sequence[str], batch: int = 32) -> None:
        """Make the vectors of the texts, ``batch`` of them in one call.

        Raises:
            DoesNotFit: If the model compares no images with texts.
            BadInput: If a text is not valid text.
        """
        if model.manifest.task != DUAL_ENCODER:
            raise another_task(model.manifest.task)
        if not texts:
            raise DoesNotFit("an image is compared with texts, and there is none")
        self._model = model
        self._texts = np.concatenate([*Embedder(model, batch).stream(texts)])

    def logits(self, vectors: Array) -> Array:
        """Logits ``[images, texts]`` of the vectors of images."""
        arrays = dict(zip(VECTORS, (vectors, self._texts), strict=True))
        logits = self._model.run(SCORE, arrays)[LOGITS]
        if not np.isfinite(logits).all():
            raise RunError("what the model gives is not finite numbers")
        return logits

    def scores(self, vectors: Array) -> Array:
        """Probabilities: shares of all texts (CLIP), or of each by itself (SigLIP)."""
        return SCORES[str(self._model.manifest.scores)](self.logits(vectors))
