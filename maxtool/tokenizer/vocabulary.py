"""Parts of a tokenizer, whichever file it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal, TypeAlias

PADDING_SCORE = -10000.0
ADDED_SCORE = -1000.0


class TokenType(IntEnum):
    """The kind of one token: sentencepiece_model.proto's ``Type`` and GGUF's ``token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token matched in the text as it stands, before the vocabulary proper is consulted."""

    id: int
    content: str
    special: bool

    @property
    def type(self) -> TokenType:
        """The type as llama.cpp's converter has it: a control token too if it looks like one."""
        special = self.special or _looks_special(self.content)
        return TokenType.CONTROL if special else TokenType.USER_DEFINED


@dataclass(frozen=True, slots=True)
class SentencePiece:
    """A SentencePiece vocabulary; ``scores`` order the merges (bpe) or are log probabilities.

    ``add_dummy_prefix`` puts a space before a text, ``prefix_everywhere`` also before what follows
    a special token inside it: SentencePiece itself knows no special tokens in texts. transformers
    calls that ``legacy``, and llama.cpp does it always.
    """

    algorithm: Literal["bpe", "unigram"]
    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[TokenType, ...]
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = False
    charsmap: bytes = b""
    prefix_everywhere: bool = False
    # Pairs in the order in which they are merged, where a file lists them.
    merges: tuple[tuple[str, str], ...] = ()

    @property
    def byte_fallback(self) -> bool:
        """Return whether unknown text becomes byte tokens instead of the unknown token."""
        return TokenType.BYTE in self.types

    @property
    def unknown(self) -> int | None:
        """The id of the unknown token."""
        return next((i for i, t in enumerate(self.types) if t is TokenType.UNKNOWN), None)

    def extended(self, added: Sequence[AddedToken], size: int = 0) -> SentencePiece:
        """Return it with ``added`` tokens, padded to ``size`` as llama.cpp pads (``[PAD7]``)."""
        length = max(size, len(self.tokens), *(token.id + 1 for token in added), 0)
        tokens, types = padded(self.tokens, self.types, length)
        scores = [*self.scores, *[PADDING_SCORE] * (length - len(self.scores))]
        for token in added:
            special = token.type is TokenType.CONTROL
            types[token.id] = token.type
            tokens[token.id] = token.content if special else token.content.replace("▁", " ")
            scores[token.id] = ADDED_SCORE
        return replace(self, tokens=tuple(tokens), scores=tuple(scores), types=tuple(types))


@dataclass(frozen=True, slots=True)
class BytePairs:
    """A byte-level BPE vocabulary, as GPT-2 introduced it: every byte is a printable character.

    ``pre`` is the GGUF name of how text is split before merging (``pretokenization.TABLE``), or
    None when a ``tokenizer.json`` splits in a way that has no such name; ``reason`` says why.
    """

    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    merges: tuple[tuple[str, str], ...]
    pre: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WordPieces:
    """A WordPiece vocabulary, as BERT introduced it; pieces inside a word begin with ``##``.

    ``strip_accents`` of None takes accents away where letters are made small.
    """

    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    lowercase: bool = True
    strip_accents: bool | None = None
    chinese_characters: bool = True
    separators: int = 1  # how many special tokens stand between two texts, 1 or 2


Vocabulary: TypeAlias = SentencePiece | BytePairs | WordPieces


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer as read."""

    vocabulary: Vocabulary | None  # None where only the json knows
    added: tuple[AddedToken, ...] = ()  # by files beside a tokenizer.model
    # Ids of "bos", "eos", "unk", "sep", "pad", "cls", "mask", "eot", "eom".
    special_ids: Mapping[str, int] = field(default_factory=dict)
    # Whether "bos", "eos" or "sep" is added to an encoded text.
    add: Mapping[str, bool] = field(default_factory=dict)
    stops: tuple[int, ...] = ()  # ids that end a text besides "eos"
    chat_templates: Mapping[str, str] = field(default_factory=dict)  # the usual one is "default"
    # Texts of special tokens as chat templates know them: "bos_token", ...
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    json: str | None = None  # the tokenizer.json it came from, as it stood
    json_size: int = 0  # how many ids that has
    files: Mapping[str, bytes] = field(default_factory=dict)  # of the folder it came from

    @property
    def size(self) -> int:
        """Number of ids, whichever part knows them."""
        known = len(self.vocabulary.tokens) if self.vocabulary else 0
        return max(known, self.json_size, *(token.id + 1 for token in self.added), 0)

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text."""
        return self.special_ids.get("bos")

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Every token that ends a text, each once."""
        named = (self.special_ids.get(name) for name in ("eos", "eot", "eom"))
        ids = [token for token in (*named, *self.stops) if token is not None]
        return tuple(dict.fromkeys(ids))

    @property
    def add_bos(self) -> bool:
        """Return whether an encoded text begins with ``bos_token_id``."""
        return self.add.get("bos", False) and self.bos_token_id is not None


def padded(
    tokens: Sequence[str], types: Sequence[TokenType], size: int
) -> tuple[list[str], list[TokenType]]:
    """Columns of at least ``size`` tokens, filled up as llama.cpp does (``[PAD7]``)."""
    room = range(len(tokens), size)
    return [*tokens, *(f"[PAD{i}]" for i in room)], [*types, *(TokenType.UNUSED for _ in room)]


def _looks_special(text: str) -> bool:
    brackets = (("<|", "|>"), ("<\uff5c", "\uff5c>"), ("<unused", ">"))
    named = text in {"<pad>", "<mask>", "<2mass>", "[@BOS@]"}
    return named or any(text.startswith(a) and text.endswith(b) for a, b in brackets)
