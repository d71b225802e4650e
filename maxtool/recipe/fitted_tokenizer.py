"""The tokenizer that came with a model, with ids that the model has rows for."""

from __future__ import annotations

from maxtool import tokenizer
from maxtool.recipe.plan import Plan
from maxtool.tokenizer import Tokenizer, fitted

ROWS = "vocab_size"


def model_tokenizer(planned: Plan) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer of a checkpoint, or None, and what is worth saying of it."""
    checkpoint = planned.checkpoint
    if checkpoint.format == "gguf":
        found = tokenizer.from_gguf(checkpoint.metadata)
    else:
        found = tokenizer.read(checkpoint.folder)
    if found is None or ROWS not in planned.config:
        return found, []
    return fitted(found, int(planned.config[ROWS]))
