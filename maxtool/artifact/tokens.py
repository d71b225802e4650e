"""The tokenizer of an artifact: one ``tokenizer.json``, whatever the source had."""

from __future__ import annotations

from pathlib import Path

from maxtool import tokenizer as tokenizers
from maxtool.tokenizer import Tokenizer
from maxtool.weights import Checkpoint

FILE = "tokenizer.json"


def find(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer that came with a checkpoint, or None.

    Raises:
        MaxtoolError: If there is one and it cannot be used.
    """
    if checkpoint.format == "gguf":
        return tokenizers.from_gguf(checkpoint.metadata)
    return tokenizers.read(checkpoint.folder)


def write(tokenizer: Tokenizer, folder: Path) -> dict[str, object]:
    """Write ``tokenizer.json``; returns what the manifest says of it."""
    (folder / FILE).write_text(tokenizers.to_json(tokenizer), encoding="utf-8")
    return {
        "file": FILE,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_ids": list(tokenizer.eos_token_ids),
        "add_bos": tokenizer.add_bos,
    }
