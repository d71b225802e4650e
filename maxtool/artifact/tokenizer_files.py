"""The tokenizer and the chat template of an artifact, in one form whatever the source had."""

from __future__ import annotations

from pathlib import Path

from maxtool import tokenizer as tokenizers
from maxtool.tokenizer import Tokenizer

FILE, TEMPLATE = "tokenizer.json", "chat_template.jinja"


def write(tokenizer: Tokenizer, folder: Path) -> dict[str, object]:
    """Write ``tokenizer.json`` and the chat template; returns what the manifest says of them."""
    (folder / FILE).write_text(tokenizers.to_json(tokenizer), encoding="utf-8")
    template = tokenizer.chat_templates.get("default")
    if template is not None:
        (folder / TEMPLATE).write_bytes(template.encode())
    return {
        "file": FILE,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_ids": list(tokenizer.eos_token_ids),
        "add_bos": tokenizer.add_bos,
        "chat_template": None if template is None else TEMPLATE,
        "special_tokens": dict(tokenizer.special_tokens),
    }
