"""One ``tokenizer.json`` for the ``tokenizers`` library, whichever kind the tokenizer is.

SentencePiece's BPE merges, again and again, the neighbours whose concatenation is the piece with
the highest score, the leftmost among equals. The library's BPE merges the pair of the lowest rank,
the leftmost among equals. So every way to cut a piece in two is a merge, ranked by the piece's
score: the ids agree. They can differ

- where pieces share a score, or an unused piece could be merged to (SentencePiece merges and undoes
  it), and in a unigram model between cuts that are equally likely;
- behind a user-defined piece at the very start of a text that gets a space: SentencePiece puts that
  before the piece;
- under a character map, for what is several code points to one reader: the library maps the first
  that it knows and drops the rest (decomposed letters with two marks, Hangul in jamo, CR LF).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Set
from typing import Any

from maxtool.errors import ConfigurationError
from maxtool.tokenizer import checks, pretokenization, wordpiece
from maxtool.tokenizer.vocabulary import (
    BytePairs,
    SentencePiece,
    Tokenizer,
    TokenType,
    Vocabulary,
    WordPieces,
)

SPACE = "▁"
# The library's unigram model takes "<0x41>" in a text for that byte's piece, unless it is cut.
BYTE_NAMES = pretokenization.split("<(?=0x[0-9A-F]{2}>)")
SPECIAL_TYPES = (TokenType.CONTROL, TokenType.UNKNOWN)
BPE: Mapping[str, Any] = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


def to_json(tokenizer: Tokenizer) -> str:
    """The text of a ``tokenizer.json`` that encodes as ``tokenizer`` does, with the same ids.

    A tokenizer that came as a ``tokenizer.json`` is returned as it stood.
    """
    if tokenizer.json is not None:
        return tokenizer.json
    vocabulary = tokenizer.vocabulary
    if vocabulary is None:
        raise ConfigurationError("this tokenizer has no form as tokenizer.json")
    if isinstance(vocabulary, SentencePiece):
        vocabulary = vocabulary.extended(tokenizer.added)
        parts = _sentencepiece(vocabulary)
        added = _sentencepiece_added(vocabulary, {token.id for token in tokenizer.added})
    elif isinstance(vocabulary, WordPieces):
        parts = wordpiece.json_parts(vocabulary, tokenizer.special_ids)
        added = _added(vocabulary, SPECIAL_TYPES)
    else:
        parts = _byte_pairs(vocabulary)
        added = _added(vocabulary, (*SPECIAL_TYPES, TokenType.USER_DEFINED))
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    root = {**head, "post_processor": _template(tokenizer, vocabulary.tokens), **parts}
    return json.dumps(root, ensure_ascii=False, indent=1)


def merges(vocabulary: SentencePiece) -> list[tuple[str, str]]:
    """Every way to cut a normal piece into two normal pieces, the highest score first.

    Or the pairs that a file lists.
    Refuse a piece with a character that is no piece: SentencePiece can build it, the library
    cannot.
    """
    if vocabulary.merges:
        return [*vocabulary.merges]
    rows = zip(vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True)
    scores = {piece: score for piece, score, token_type in rows if token_type is TokenType.NORMAL}
    lost = [p for p in scores if len(p) > 1 and not all(character in scores for character in p)]
    if lost:
        what = f"{len(lost)} pieces have characters that are not pieces"
        problems = [repr(piece) for piece in lost[:10]]
        raise ConfigurationError(what, problems=problems)
    order = sorted((p for p in scores if len(p) > 1), key=lambda piece: -scores[piece])
    return [pair for piece in order for pair in _cuts(piece, scores)]


def _cuts(piece: str, known: dict[str, float]) -> Iterable[tuple[str, str]]:
    """Cuts with the longer left part first, which is how runs of one character grow."""
    for at in range(len(piece) - 1, 0, -1):
        left, right = piece[:at], piece[at:]
        if left in known and right in known:
            yield left, right


def _sentencepiece(vocabulary: SentencePiece) -> dict[str, Any]:
    models = {"bpe": _bpe_model, "unigram": _unigram_model}
    return {
        "normalizer": _normalizer(vocabulary),
        "pre_tokenizer": _pre_tokenizer(vocabulary),
        "decoder": _decoder(vocabulary),
        "model": models[vocabulary.algorithm](vocabulary),
    }


def _bpe_model(vocabulary: SentencePiece) -> dict[str, Any]:
    unknown = vocabulary.unknown
    return {
        **BPE,
        "unk_token": None if unknown is None else vocabulary.tokens[unknown],
        "fuse_unk": True,
        "byte_fallback": vocabulary.byte_fallback,
        "vocab": {piece: i for i, piece in enumerate(vocabulary.tokens)},
        "merges": [list(pair) for pair in merges(vocabulary)],
    }


def _unigram_model(vocabulary: SentencePiece) -> dict[str, Any]:
    return {
        "type": "Unigram",
        "unk_id": vocabulary.unknown,
        "vocab": _log_probabilities(vocabulary),
        "byte_fallback": vocabulary.byte_fallback,
    }


def _log_probabilities(vocabulary: SentencePiece) -> list[list[object]]:
    """Pieces and scores; of a user-defined one, what SentencePiece was seen to take it for."""
    rows = zip(vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True)
    return [
        [piece, 0.1 * (len(piece.encode()) - 1) if token_type is TokenType.USER_DEFINED else score]
        for piece, score, token_type in rows
    ]


def _normalizer(vocabulary: SentencePiece) -> dict[str, Any]:
    """SentencePiece's normalizer: its character map, its spaces, then the visible space."""
    steps: list[dict[str, Any]] = []
    if vocabulary.charsmap:
        encoded = base64.b64encode(vocabulary.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if vocabulary.remove_extra_whitespaces:
        steps += [_replace({"Regex": r"\A +| +\z"}, ""), _replace({"Regex": " {2,}"}, " ")]
    steps.append(_replace({"String": " "}, SPACE))
    if vocabulary.remove_extra_whitespaces:
        steps.append(_replace({"Regex": rf"{SPACE}+\z"}, ""))
        if vocabulary.add_dummy_prefix:
            steps.append({"type": "Prepend", "prepend": SPACE})
    return {"type": "Sequence", "normalizers": steps}


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _pre_tokenizer(vocabulary: SentencePiece) -> dict[str, Any] | None:
    steps = _prefix(vocabulary)
    if vocabulary.algorithm == "unigram" and vocabulary.byte_fallback:
        steps.append(BYTE_NAMES)
    return {"type": "Sequence", "pretokenizers": steps} if steps else None


def _prefix(vocabulary: SentencePiece) -> list[dict[str, Any]]:
    """One visible space before the text, or before every stretch of it between special tokens.

    ``Metaspace`` with a plain space as its mark always adds it, as the normalizer left no plain
    spaces; the second turns it into the visible one. Its "first" means the first character of the
    text, so where leading spaces are removed the normalizer adds it, to every stretch.
    """
    if not vocabulary.add_dummy_prefix or vocabulary.remove_extra_whitespaces:
        return []
    scheme = "always" if vocabulary.prefix_everywhere else "first"
    return [
        {"type": "Metaspace", "replacement": mark, "prepend_scheme": when, "split": False}
        for mark, when in ((" ", scheme), (SPACE, "never"))
    ]


def _decoder(vocabulary: SentencePiece) -> dict[str, Any]:
    steps = [_replace({"String": SPACE}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if vocabulary.add_dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _byte_pairs(vocabulary: BytePairs) -> dict[str, Any]:
    row = pretokenization.row(str(vocabulary.pre))
    rows = enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
    # Unused tokens only fill up the model's embedding.
    used = {token: i for i, (token, token_type) in rows if token_type is not TokenType.UNUSED}
    return {
        "normalizer": {"type": row.normalizer} if row.normalizer else None,
        "pre_tokenizer": pretokenization.pre_tokenizer(row),
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            **BPE,
            "ignore_merges": row.ignore_merges,
            "vocab": used,
            "merges": [list(pair) for pair in vocabulary.merges],
        },
    }


def _sentencepiece_added(vocabulary: SentencePiece, own: Set[int]) -> list[dict[str, Any]]:
    """Return tokens matched before the model, without a unigram model's user-defined pieces.

    These are cuts like others there; those of ``own`` ids, by which the model was extended, stay.
    In a BPE model they are looked for where spaces are visible already, unless that is where the
    leading one is put.
    """
    prepended = vocabulary.remove_extra_whitespaces and vocabulary.add_dummy_prefix
    added = _added(vocabulary, (*SPECIAL_TYPES, TokenType.USER_DEFINED), normalized=not prepended)
    if vocabulary.algorithm == "bpe":
        return added
    return [token for token in added if token["special"] or token["id"] in own]


def _added(
    vocabulary: Vocabulary, kinds: tuple[TokenType, ...], *, normalized: bool = False
) -> list[dict[str, Any]]:
    """Tokens of these kinds; ``normalized`` ones are those that are not special."""
    rows = enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
    return [
        {
            "id": i,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": normalized and token_type not in SPECIAL_TYPES,
            "special": token_type in SPECIAL_TYPES,
        }
        for i, (token, token_type) in rows
        if token_type in kinds
    ]


def _template(tokenizer: Tokenizer, pieces: tuple[str, ...]) -> dict[str, Any] | None:
    """The post-processor that adds the tokens the tokenizer asks for, around and between texts.

    Two texts are as llama.cpp's server has them: what ends the first, then the separator.
    """
    known = tokenizer.special_ids
    ids = {name: known.get(name) for name in ("bos", "eos")}
    ids["sep"] = known.get("sep", known.get("eos"))
    around = {name: i for name, i in ids.items() if i is not None and tokenizer.add.get(name)}
    if not around:
        return None
    checks.ids(around, len(pieces), None)
    special = {
        name: [{"SpecialToken": {"id": pieces[i], "type_id": 0}}] for name, i in around.items()
    }

    first, second = ([{"Sequence": {"id": name, "type_id": 0}}] for name in "AB")
    start, end, between = (special.get(name, []) for name in ("bos", "eos", "sep"))
    return {
        "type": "TemplateProcessing",
        "single": [*start, *first, *end],
        "pair": [*start, *first, *end, *between, *second, *end],
        "special_tokens": {
            pieces[i]: {"id": pieces[i], "ids": [i], "tokens": [pieces[i]]} for i in around.values()
        },
    }
