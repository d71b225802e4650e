"""SentencePiece vocabularies of which a file lists the merges, as a ``tokenizer.json`` does.

GGUF has such files of Gemma 4 alone. llama.cpp's converter calls added tokens normal there, but
for special ones: they are told by that no merge makes them, and llama.cpp takes runs of line ends
whole in any case. A token with a visible space is none that is looked for in a text, where spaces
are plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxtool.tokenizer.library import SPACE
from maxtool.tokenizer.library import merges as cuts
from maxtool.tokenizer.sentencepiece import is_byte
from maxtool.tokenizer.vocabulary import ADDED_SCORE, SentencePiece, TokenType

# What ``tokenizer.ggml.model`` is then, and the architecture of such files.
MODEL = "gemma4"
MERGED = (TokenType.NORMAL, TokenType.USER_DEFINED)
# Special tokens that are shown, for what reads calls of tools in a model's answer.
SHOWN = frozenset(
    (
        *("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>"),
        *("<|tool_response>", "<tool_response|>", '<|"|>'),
    )
)
Merges = tuple[tuple[str, str], ...]


def ranked(
    tokens: Sequence[str],
    types: Sequence[TokenType],
    merges: Merges,
    *,
    add_dummy_prefix: bool = False,
    prefix_everywhere: bool = False,
) -> SentencePiece:
    """The SentencePiece model that merges in the same order: the score is minus the rank."""
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    kinds = tuple(
        TokenType.BYTE if is_byte(token) else token_type
        for token, token_type in zip(tokens, types, strict=True)
    )
    lowest = float(len(merges))
    scores = tuple(
        -float(ranks.get(token, lowest)) if kind in MERGED else 0.0
        for token, kind in zip(tokens, kinds, strict=True)
    )
    return SentencePiece(
        "bpe",
        tuple(tokens),
        scores,
        kinds,
        add_dummy_prefix=add_dummy_prefix,
        prefix_everywhere=prefix_everywhere,
        merges=merges,
    )


def from_gguf_columns(
    tokens: Sequence[str], types: Sequence[TokenType], merges: Merges, unknown: int | None
) -> SentencePiece:
    """The vocabulary of a GGUF file; ``unknown`` is the id of its unknown token, if it has one."""
    made = {left + right for left, right in merges}

    def kind(i: int, token: str, token_type: TokenType) -> TokenType:
        if i == unknown:
            return TokenType.UNKNOWN
        if token_type is not TokenType.NORMAL or len(token) == 1 or SPACE in token:
            return token_type
        is_added = token not in made or not token.strip("\n")
        return TokenType.USER_DEFINED if is_added else token_type

    rows = enumerate(zip(tokens, types, strict=True))
    return ranked(tokens, [kind(i, *row) for i, row in rows], merges)


def gguf_columns(vocabulary: SentencePiece) -> dict[str, Any]:
    """The columns of a GGUF file, with every cut of a piece where no file listed the merges."""
    merges = vocabulary.merges or tuple(cuts(vocabulary))

    def kind(token: str, token_type: TokenType) -> TokenType:
        if token in SHOWN:
            return TokenType.USER_DEFINED
        if token_type is TokenType.UNKNOWN:
            return TokenType.CONTROL
        is_hidden = token_type is TokenType.USER_DEFINED and SPACE in token
        return TokenType.NORMAL if is_hidden else token_type

    rows = zip(vocabulary.tokens, vocabulary.types, strict=True)
    return {
        "model": MODEL,
        "tokens": list(vocabulary.tokens),
        "scores": np.full(len(vocabulary.tokens), ADDED_SCORE, np.float32),
        "token_type": np.array([kind(*row) for row in rows], np.int32),
        "merges": [f"{left} {right}" for left, right in merges],
    }
