"""Texts as vectors, in batches."""

from __future__ import annotations

from collections.abc import Callable

from .entries import EntryRunner
from .errors import DoesNotFit
from .manifest import Manifest
from .specs import EMBED
from .text_rows import Text, TextRows

__all__ = ["Embedder", "Text", "prompt_of"]

# The name by which nothing is put before texts.
NONE = "none"


class Embedder(TextRows):
    """Vectors of texts, with the model's own pooling, behind one of its prompts."""

    entry = EMBED
    output = "embeddings"

    def __init__(
        self,
        model: EntryRunner,
        batch: int = 32,
        go_on: Callable[[], None] = lambda: None,
        prompt: str | None = None,
    ) -> None:
        """Prepare; ``prompt`` is the name of one, None for the model's usual one."""
        super().__init__(model, batch, go_on)
        self.before = prompt_of(model.manifest, prompt)


def prompt_of(manifest: Manifest, name: str | None = None) -> str:
    """The text of a prompt by name; of the usual one, if there is one, for None.

    Raises:
        DoesNotFit: If the model has no prompt of that name.
    """
    name = manifest.prompt if name is None else name
    if name is None or (name == NONE and name not in manifest.prompts):
        return ""
    if name not in manifest.prompts:
        known = ", ".join(manifest.prompts) or "it has none"
        raise DoesNotFit(f"the model has no prompt {name!r:.80}", hint=f"its prompts: {known}")
    return manifest.prompts[name]
