"""SigLIP's tokenizer: a SentencePiece model of texts in lower case, without punctuation."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maxtool.tokenizer import sentencepiece
from maxtool.tokenizer.library import to_json
from maxtool.tokenizer.special_tokens import content_of
from maxtool.tokenizer.vocabulary import Tokenizer

MODEL, CLASS = "spiece.model", "SiglipTokenizer"
SPACE = "\u2581"
# What the class takes where nothing says.
TOKENS = {"eos": "</s>", "pad": "</s>", "unk": "<unk>"}
PUNCTUATION = "".join(f"\\x{ord(char):02x}" for char in string.punctuation)
# Python takes four more characters for spaces than regular expressions of the library do.
SPACES = r"[\s\x1c-\x1f]+"
# A step of those that SentencePiece's model becomes; spaces at the end fall to a later one.
OUTER_SPACES = {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""}


def read(folder: Path, files: Mapping[str, bytes], config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a folder with a ``spiece.model`` of this class; None for other classes."""
    if config.get("tokenizer_class") != CLASS:
        return None
    vocabulary, _ = sentencepiece.parse(files[MODEL], folder / MODEL)
    named = {name: content_of(config.get(f"{name}_token", usual)) for name, usual in TOKENS.items()}
    known = {piece: number for number, piece in enumerate(vocabulary.tokens)}
    ids = {name: known[text] for name, text in named.items() if text in known}
    # The class reads each text behind the unknown token: no space is put there, and none removed.
    plain = replace(vocabulary, add_dummy_prefix=False)
    tokenizer = Tokenizer(vocabulary=plain, special_ids=ids, add={"eos": True}, files=files)
    before = _before(lower=config.get("do_lower_case", True) is not False)
    special = {name: text for name, text in named.items() if text is not None}
    return with_steps(tokenizer, special, before, without=[OUTER_SPACES])


def with_steps(
    tokenizer: Tokenizer,
    named: Mapping[str, str],
    before: Sequence[Mapping[str, Any]],
    without: Sequence[Mapping[str, Any]] = (),
) -> Tokenizer:
    """A tokenizer of a SentencePiece model as a class makes it that changes texts first.

    Args:
        tokenizer: That of the model by itself.
        named: The texts of the special tokens.
        before: Steps before those that are SentencePiece's own.
        without: Those of its own that are left out.
    """
    root = json.loads(to_json(tokenizer))
    steps = root["normalizer"]["normalizers"] if root["normalizer"] else []
    own = [step for step in steps if step not in without]
    root["normalizer"] = {"type": "Sequence", "normalizers": [*before, *own]}
    size = 0 if tokenizer.vocabulary is None else len(tokenizer.vocabulary.tokens)
    text = json.dumps(root, ensure_ascii=False, indent=1)
    special = {f"{name}_token": token for name, token in named.items()}
    return replace(tokenizer, json=text, json_size=size, special_tokens=special)


def _before(*, lower: bool) -> list[dict[str, Any]]:
    """Steps before those that are SentencePiece's own."""
    return [
        _replaced({"String": SPACE}, " "),
        {"type": "Prepend", "prepend": SPACE},
        *([{"type": "Lowercase"}] if lower else []),
        _replaced({"Regex": f"[{PUNCTUATION}]"}, ""),
        _replaced({"Regex": SPACES}, " "),
        {"type": "Strip", "strip_left": False, "strip_right": True},
    ]


def _replaced(pattern: Mapping[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": dict(pattern), "content": content}
