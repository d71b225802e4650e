"""Unigram vocabularies: of a ``tokenizer.json``, and with the ids of XLM-RoBERTa."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maxtool.errors import MalformedFile
from maxtool.tokenizer import checks, sentencepiece
from maxtool.tokenizer.vocabulary import (
    ADDED_SCORE,
    PADDING_SCORE,
    AddedToken,
    SentencePiece,
    TokenType,
    padded,
)

# The ids of XLM-RoBERTa, which come from fairseq: its model has <unk>, <s> and </s> first.
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
IDS = {"bos": 0, "cls": 0, "pad": 1, "eos": 2, "sep": 2, "unk": 3}
# Where one space is left of several, and none behind a text, as SentencePiece does it: by steps
# that normalize, behind the map of characters, and steps that cut.
STRIPPED = {"type": "Strip", "strip_left": False, "strip_right": True}
SPACES = tuple(
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": space} for space in (" ", "▁")
)
CUTS = {"type": "WhitespaceSplit"}
SCHEMES = {"always": True, "first": True, "never": False}


def from_json(
    root: Mapping[str, Any], added: Sequence[AddedToken], file: Path
) -> SentencePiece | None:
    """The vocabulary of a ``Unigram`` model; None where its steps are not SentencePiece's."""
    scheme = _prefix(root.get("pre_tokenizer"))
    charsmap = _charsmap(root, file)
    if scheme not in SCHEMES or charsmap is None:
        return None
    model = root["model"]
    pieces, scores = zip(*((str(p), float(s)) for p, s in model["vocab"]), strict=True)
    length = max(len(pieces), *(token.id + 1 for token in added), 0)
    if length > 2 * (len(pieces) + len(added)) + 4096:
        what = f"{len(pieces) + len(added)} tokens with ids up to {length - 1}"
        raise MalformedFile(what, file=file)
    kinds = [TokenType.NORMAL] * len(pieces)
    if type(model.get("unk_id")) is int and model["unk_id"] < len(pieces):
        kinds[model["unk_id"]] = TokenType.UNKNOWN
    tokens, types = padded(pieces, tuple(kinds), length)
    values = [*scores, *[PADDING_SCORE] * (length - len(pieces))]
    for token in added:
        if types[token.id] is not TokenType.UNKNOWN:
            types[token.id] = token.type
        if token.id >= len(pieces):
            tokens[token.id], values[token.id] = token.content, ADDED_SCORE
    if model.get("byte_fallback"):
        types = [_byte(token, kind) for token, kind in zip(tokens, types, strict=True)]
    checks.tokens(tokens, file)
    checks.scores(values, file)
    vocabulary = SentencePiece(
        algorithm="unigram",
        tokens=tuple(tokens),
        scores=tuple(values),
        types=tuple(types),
        add_dummy_prefix=SCHEMES[scheme],
        remove_extra_whitespaces=True,
        charsmap=charsmap,
        prefix_everywhere=scheme == "always",
    )
    sentencepiece.check(vocabulary, file)
    return vocabulary


def of_fairseq(model: SentencePiece) -> SentencePiece:
    """XLM-RoBERTa's vocabulary of the pieces in its ``sentencepiece.bpe.model``."""
    control = TokenType.CONTROL
    return replace(
        model,
        tokens=(*FAIRSEQ, *model.tokens[3:], MASK),
        scores=(*[0.0] * len(FAIRSEQ), *model.scores[3:], 0.0),
        types=(control, control, control, TokenType.UNKNOWN, *model.types[3:], control),
        prefix_everywhere=True,
    )


def _byte(token: str, kind: TokenType) -> TokenType:
    return TokenType.BYTE if sentencepiece.is_byte(token) else kind


def _steps(part: Any, name: str) -> list[Any]:  # noqa: ANN401 - JSON
    """The steps that a part of the file consists of."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [step for each in part[name] for step in _steps(each, name)]


def _prefix(part: object) -> str | None:
    """The scheme by which ``Metaspace`` puts a space before a text; None where it does not."""
    match [step for step in _steps(part, "pretokenizers") if step != CUTS]:
        case [{"type": "Metaspace", "replacement": "▁", **rest}]:
            usual = "always" if rest.get("add_prefix_space", True) is True else "never"
            scheme = rest.get("prepend_scheme", usual)
            return scheme if isinstance(scheme, str) else None
    return None


def _charsmap(root: Mapping[str, Any], file: Path) -> bytes | None:
    """The map of characters; None unless spaces come out as SentencePiece leaves them."""
    steps = _steps(root.get("normalizer"), "normalizers")
    cut = CUTS in _steps(root.get("pre_tokenizer"), "pretokenizers")
    charsmap = b""
    match steps:
        case [{"type": "Precompiled", "precompiled_charsmap": str(text)}, *rest]:
            steps = rest
            try:
                charsmap = base64.b64decode(text, validate=True)
            except binascii.Error as error:
                what = f"precompiled_charsmap is not base64: {error}"
                raise MalformedFile(what, file=file) from None
    spaces = [step for step in steps if step != STRIPPED]
    whole = spaces in ([SPACES[0]], [SPACES[1]]) and STRIPPED in steps
    # Without a map, tabs and line ends would be cut at and remain for SentencePiece.
    cuts = cut and charsmap and spaces in ([], [SPACES[0]])
    return charsmap if whole or cuts else None
