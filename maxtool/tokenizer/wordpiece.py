"""WordPiece, BERT's tokenizer: in a ``vocab.txt``, a ``tokenizer.json`` or the keys of a GGUF file.

Words are cut at spaces and punctuation, and a word into the longest pieces that are known; pieces
that continue a word begin with ``##``. GGUF has pieces the other way round, in llama.cpp's phantom
spaces: those that begin a word are marked by a visible space, and the others by nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.tokenizer import checks
from maxtool.tokenizer.special_tokens import texts_of
from maxtool.tokenizer.vocabulary import AddedToken, TokenType, WordPieces, padded

CONTINUES, PHANTOM = "##", "▁"
# The names of BERT's special tokens, and the ids that llama.cpp takes where none is told.
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
LLAMA_CPP_CLS = 101
MPNET = {"pad": "<pad>", "unk": "[UNK]", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
# Tokenizers that keep no more than a vocab.txt and mean this by it, with their special tokens where
# tokenizer_config.json names no others, and how many of them stand between two texts.
USUAL = "BertTokenizer"
CLASSES: Mapping[str, tuple[Mapping[str, str], int]] = {
    **dict.fromkeys((USUAL, "DistilBertTokenizer", "ElectraTokenizer"), (SPECIAL, 1)),
    "MPNetTokenizer": (MPNET, 2),
}
LONGEST_WORD = 100
# What puts special tokens around texts, by how many stand between two.
PROCESSORS: Mapping[int, Mapping[str, Any]] = {
    1: {"type": "BertProcessing"},
    2: {"type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": False},
}


def from_vocab(
    data: bytes, config: Mapping[str, Any], file: Path
) -> tuple[WordPieces, dict[str, int]] | None:
    """The vocabulary of a ``vocab.txt``, a token a line, its number the id; and its special ids.

    None where ``tokenizer_config.json`` names a class that means something else by the file.
    """
    named = str(config.get("tokenizer_class") or USUAL).removesuffix("Fast")
    if named not in CLASSES:
        return None
    usual, separators = CLASSES[named]
    special = texts_of(config, usual)
    try:
        tokens = tuple(data.decode().removesuffix("\n").replace("\r\n", "\n").split("\n"))
    except UnicodeDecodeError as error:
        raise MalformedFile("not UTF-8", file=file, offset=error.start) from None
    checks.tokens(tokens, file)
    accents = config.get("strip_accents")
    vocabulary = WordPieces(
        tokens=tokens,
        types=_types(tokens, set(special.values())),
        lowercase=config.get("do_lower_case") is not False,
        strip_accents=accents if isinstance(accents, bool) else None,
        chinese_characters=config.get("tokenize_chinese_chars") is not False,
        separators=separators,
    )
    return vocabulary, special_ids(tokens, special)


def from_json(
    root: Mapping[str, Any], added: Sequence[AddedToken], file: Path
) -> WordPieces | None:
    """The vocabulary of a ``tokenizer.json``, None where it cuts words in another way."""
    model, normalizer = root["model"], root.get("normalizer") or {}
    parts = (root.get("pre_tokenizer") or {}).get("type"), normalizer.get("type")
    prefix = model.get("continuing_subword_prefix", CONTINUES)
    if parts != ("BertPreTokenizer", "BertNormalizer") or prefix != CONTINUES:
        return None
    by_id = {i: token for token, i in model["vocab"].items()}
    by_id.update({token.id: token.content for token in added})
    if sorted(by_id) != list(range(len(by_id))):
        raise MalformedFile("ids of tokens with gaps, or one for two tokens", file=file)
    tokens = tuple(by_id[i] for i in range(len(by_id)))
    checks.tokens(tokens, file)
    return WordPieces(
        tokens=tokens,
        types=_types(tokens, {token.content for token in added if token.special}),
        lowercase=normalizer.get("lowercase", True),
        strip_accents=normalizer.get("strip_accents"),
        chinese_characters=normalizer.get("handle_chinese_chars", True),
    )


def special_ids(
    tokens: Sequence[str], special: Mapping[str, str] = MappingProxyType(SPECIAL)
) -> dict[str, int]:
    """The ids of special tokens, BERT's if no others are named, by their usual names."""
    places = {token: i for i, token in enumerate(tokens)}
    return {name: places[token] for name, token in special.items() if token in places}


def json_parts(vocabulary: WordPieces, ids: Mapping[str, int]) -> dict[str, Any]:
    """The parts of a ``tokenizer.json``; an error if there are no tokens to put around a text."""
    needed = ("unk", "cls", "sep")
    known = special_ids(vocabulary.tokens) | {name: ids[name] for name in needed if name in ids}
    missing = [name for name in needed if name not in known]
    if missing:
        raise ConfigurationError(f"the vocabulary has no token for {', '.join(missing)}")
    first, last = ([vocabulary.tokens[known[name]], known[name]] for name in ("cls", "sep"))
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": vocabulary.chinese_characters,
            "strip_accents": vocabulary.strip_accents,
            "lowercase": vocabulary.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
        "post_processor": {**PROCESSORS[vocabulary.separators], "sep": last, "cls": first},
        "model": {
            "type": "WordPiece",
            "unk_token": vocabulary.tokens[known["unk"]],
            "continuing_subword_prefix": CONTINUES,
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": {token: i for i, token in enumerate(vocabulary.tokens)},
        },
    }


def gguf_columns(vocabulary: WordPieces, size: int) -> dict[str, Any]:
    """Model, tokens and types as GGUF keys without their prefix, padded to ``size`` tokens."""
    if not vocabulary.lowercase or vocabulary.strip_accents is False:
        raise ConfigurationError(
            "GGUF cannot say that WordPiece keeps capitals or accents, which llama.cpp takes away"
        )
    tokens, types = padded(vocabulary.tokens, vocabulary.types, size)
    return {
        "model": "bert",
        "pre": "default",
        "tokens": [*_marked(tokens, types, CONTINUES, PHANTOM)],
        "token_type": np.array(types, np.int32),
    }


def from_gguf_columns(
    tokens: Sequence[str], types: Sequence[TokenType], ids: Mapping[str, int]
) -> tuple[WordPieces, dict[str, int]]:
    """The vocabulary of GGUF's columns, its tokens with phantom spaces, and its special ids.

    ``ids`` are those that the file names.
    """
    plain = tuple(_marked(tokens, types, PHANTOM, CONTINUES))
    special = special_ids(plain) | {name: i for name, i in ids.items() if name in SPECIAL}
    special.setdefault("cls", ids.get("bos", LLAMA_CPP_CLS))
    return WordPieces(plain, tuple(types)), special


def _types(tokens: Sequence[str], special: set[str]) -> tuple[TokenType, ...]:
    kinds = {True: TokenType.CONTROL, False: TokenType.NORMAL}
    return tuple(kinds[token in special] for token in tokens)


def _marked(tokens: Sequence[str], types: Sequence[TokenType], old: str, new: str) -> Iterator[str]:
    """Tokens with ``old`` marks before some as those with ``new`` marks before the others."""
    for token, token_type in zip(tokens, types, strict=True):
        if token_type is TokenType.CONTROL:
            yield token
        else:
            yield token[len(old) :] if token.startswith(old) else new + token
