"""GPT-SW3's tokenizer: a SentencePiece model of texts that are cleaned as for its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from maxtool.tokenizer import sentencepiece
from maxtool.tokenizer.canonical import with_steps
from maxtool.tokenizer.special_tokens import content_of, texts_of
from maxtool.tokenizer.vocabulary import Tokenizer

MODEL, CLASS = "spiece.model", "GPTSw3Tokenizer"
# What the class takes where nothing says.
TOKENS = {"bos": "<s>", "eos": "<|endoftext|>", "unk": "<unk>", "pad": "<pad>"}
# Of a model of this name it takes others.
LARGEST = "gpt-sw3-7b"
INSTEAD = {"bos": "eos", "pad": "unk"}
# What does not print is taken out, a no-break space too; what is left of these becomes a space.
NOT_PRINTED = r"[\x{0}-\x{8}\x{b}-\x{1f}\x{7f}-\x{a0}\x{ad}\x{200b}]"
SPACES = r"[\x{2002}\x{2003}\x{2005}\x{2008}-\x{200a}\x{202f}\x{3000}\x{fffc}]"


def read(folder: Path, files: Mapping[str, bytes], config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a folder with a ``spiece.model`` of this class; None for other classes."""
    if config.get("tokenizer_class") != CLASS:
        return None
    vocabulary, _ = sentencepiece.parse(files[MODEL], folder / MODEL)
    named = _named(config)
    known = {piece: number for number, piece in enumerate(vocabulary.tokens)}
    ids = {name: known[text] for name, text in named.items() if text in known}
    # The class hands each text between special tokens to SentencePiece by itself.
    own = replace(vocabulary, prefix_everywhere=True)
    tokenizer = Tokenizer(vocabulary=own, special_ids=ids, files=files)
    cleaning = with_steps(tokenizer, named, _cleaned())
    return replace(cleaning, vocabulary=None)  # GGUF has no place for what cleans texts


def _named(config: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the special tokens."""
    named = texts_of(config, TOKENS)
    if LARGEST not in str(config.get("name_or_path")):
        return named
    unsaid = [name for name in INSTEAD if content_of(config.get(f"{name}_token")) is None]
    return named | {name: named[INSTEAD[name]] for name in unsaid}


def _cleaned() -> list[dict[str, Any]]:
    """Steps before those that are SentencePiece's own."""
    return [
        {"type": "Replace", "pattern": {"Regex": NOT_PRINTED}, "content": ""},
        {"type": "Replace", "pattern": {"Regex": SPACES}, "content": " "},
        {"type": "NFC"},
    ]
