"""DeBERTa's tokenizer: a SentencePiece model with BERT's special tokens, in a ``spm.model``.

The ``tokenizer.json`` made of it is the one that is published with such models, as transformers 4
makes it: by the model's own map of characters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from maxtool.errors import ConfigurationError
from maxtool.tokenizer.special_tokens import texts_of
from maxtool.tokenizer.vocabulary import AddedToken, SentencePiece, Tokenizer, TokenType
from maxtool.tokenizer.wordpiece import SPECIAL

# Its authors' own files name no class.
CLASSES = (None, "DebertaV2Tokenizer", "DebertaV2TokenizerFast")
METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}
ONE_SPACE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
STRIPPED = {"type": "Strip", "strip_left": True, "strip_right": True}
PUNCTUATION = {"type": "Punctuation", "behavior": "Isolated"}
# Pieces that are found in a text before it is cut.
FOUND = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)


def of_model(
    vocabulary: SentencePiece,
    added: Sequence[AddedToken],
    config: Mapping[str, Any],
    files: Mapping[str, bytes],
) -> Tokenizer:
    """The tokenizer of a folder with a ``spm.model`` and no other vocabulary.

    Args:
        vocabulary: That of the model.
        added: Tokens that files beside the model add to its pieces.
        config: What ``tokenizer_config.json`` says.
        files: The folder's files by name.

    Raises:
        ConfigurationError: If the model is no unigram model, or lacks a special token.
    """
    if vocabulary.algorithm != "unigram" or vocabulary.byte_fallback:
        raise ConfigurationError("DeBERTa's tokenizer is a unigram model without pieces for bytes")
    special = texts_of(config, SPECIAL)
    tokens = _tokens(vocabulary, added, special)
    places = {content: number for number, content, _ in tokens}
    lacking = [special[name] for name in ("unk", "cls", "sep") if special[name] not in places]
    if lacking:
        raise ConfigurationError(f"the vocabulary has no token {', '.join(lacking)}")
    ids = {name: places[token] for name, token in special.items() if token in places}
    root = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(*token) for token in tokens],
        **_steps(vocabulary, config),
        "post_processor": _template(special, ids),
        "model": {
            "type": "Unigram",
            "unk_id": ids["unk"],
            "vocab": [*zip(vocabulary.tokens, vocabulary.scores, strict=True)],
            "byte_fallback": False,
        },
    }
    return Tokenizer(
        vocabulary=vocabulary,
        special_ids=ids,
        files=files,
        json=json.dumps(root, ensure_ascii=False),
        json_size=1 + max(len(vocabulary.tokens) - 1, *places.values()),
    )


def _tokens(
    vocabulary: SentencePiece, added: Iterable[AddedToken], special: Mapping[str, str]
) -> list[tuple[int, str, bool]]:
    """Ids and texts of the tokens that are found in a text, and whether they are special."""
    named = {*special.values()}
    rows = enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
    found = {
        number: (token, kind is not TokenType.USER_DEFINED)
        for number, (token, kind) in rows
        if kind in FOUND or token in named
    }
    found |= {token.id: (token.content, token.special or token.content in named) for token in added}
    if special["mask"] not in {text for text, _ in found.values()}:
        behind = max(len(vocabulary.tokens), *(number + 1 for number in found))
        found[behind] = special["mask"], True
    return [(number, *found[number]) for number in sorted(found)]


def _added(number: int, content: str, is_special: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, **flags, "special": is_special}


def _steps(vocabulary: SentencePiece, config: Mapping[str, Any]) -> dict[str, Any]:
    """Normalizer, pre-tokenizer and decoder."""
    lower = [{"type": "Lowercase"}] if config.get("do_lower_case") is True else []
    mapped = []
    if vocabulary.charsmap:
        encoded = base64.b64encode(vocabulary.charsmap).decode()
        mapped = [{"type": "Precompiled", "precompiled_charsmap": encoded}]
    cuts = [PUNCTUATION] if config.get("split_by_punct") is True else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*lower, STRIPPED, *mapped, ONE_SPACE]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*cuts, METASPACE]},
        "decoder": METASPACE,
    }


def _template(special: Mapping[str, str], ids: Mapping[str, int]) -> dict[str, Any]:
    """The tokens around a text, and around two, of which the second is of another type."""

    def token(name: str, kind: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": special[name], "type_id": kind}}

    first, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    known = {
        special[name]: {"id": special[name], "ids": [ids[name]], "tokens": [special[name]]}
        for name in ("cls", "sep")
    }
    one = [token("cls"), first, token("sep")]
    return {
        "type": "TemplateProcessing",
        "single": one,
        "pair": [*one, second, token("sep", 1)],
        "special_tokens": known,
    }
