"""The ``tokenizer.ggml.*`` keys of a GGUF file, read.

Keys and their order are those of llama.cpp's ``convert_hf_to_gguf.py`` (``gguf/constants.py``,
``gguf/vocab.py``); what a missing key means is what ``llama-vocab.cpp`` takes it for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.tokenizer import checks, listed_merges, pretokenization, sentencepiece, wordpiece
from maxtool.tokenizer.vocabulary import BytePairs, SentencePiece, Tokenizer, TokenType, Vocabulary

ROOT = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
SOURCE = "tokenizer.ggml"
# Our name of a special token to GGUF's, misspelling included.
SPECIAL_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",
    "pad": "padding_token_id",
    "mask": "mask_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
}
# What ``tokenizer.ggml.model`` says of a file that has none.
NO_TOKENIZER = frozenset(("none", "no_vocab"))
ADDED = ("bos", "eos", "sep")
MODELS = {"bpe": "llama", "unigram": "t5"}
# What llama.cpp takes a SentencePiece model to be where a file does not say.
ASSUMED_SPACES = {
    "bpe": {"add_space_prefix": True, "remove_extra_whitespaces": False},
    "unigram": {"add_space_prefix": False, "remove_extra_whitespaces": False},
}
ASSUMED_IDS = {"bpe": {"bos": 1, "eos": 2}, "unigram": {"eos": 1}}
ASSUMED_ADDED = {"bpe": {"bos": True, "eos": False}, "unigram": {"bos": False, "eos": True}}
# What llama.cpp takes for ends of text by name (llama-vocab.cpp).
ENDS = frozenset(
    (
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<end_of_utterance>", "<EOT>"),
        *("<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "[EOT]", "<|return|>"),
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    )
)


def from_gguf(metadata: Mapping[str, object]) -> Tokenizer | None:
    """The tokenizer of a GGUF file's metadata, or None where it has none.

    ConfigurationError if the vocabulary is of a kind, or splits in a way, that is not known.
    """
    model = metadata.get(f"{ROOT}model")
    if model is None:
        return None
    if not isinstance(model, str):
        raise MalformedFile(f"{ROOT}model is not a text: {model!r:.80}", file=SOURCE)
    if model in NO_TOKENIZER:
        return None
    if model not in READERS:
        known = ", ".join(READERS)
        raise ConfigurationError(f"unknown tokenizer.ggml.model {model!r}; known are {known}")
    tokens = _strings(metadata, "tokens")
    checks.tokens(tokens, SOURCE)
    vocabulary, ids, add = READERS[model](metadata, tokens)
    ids.update(_special_ids(metadata))
    checks.ids(ids, len(tokens), SOURCE)
    add.update(_flags(metadata))
    return Tokenizer(
        vocabulary=vocabulary,
        special_ids=ids,
        add=add,
        stops=_ends(vocabulary),
        chat_templates=_templates(metadata),
        special_tokens={f"{name}_token": tokens[i] for name, i in ids.items()},
    )


Read = tuple[Vocabulary, dict[str, int], dict[str, bool]]


def _read_sentencepiece(
    metadata: Mapping[str, object], tokens: tuple[str, ...], algorithm: Literal["bpe", "unigram"]
) -> Read:
    scores = tuple(float(score) for score in _numbers(metadata, "scores"))
    types = _types(metadata, tokens, scores=len(scores))
    checks.scores(scores, SOURCE)
    charsmap = metadata.get(f"{ROOT}precompiled_charsmap")
    assumed = ASSUMED_SPACES[algorithm].items()
    spaces = {name: _flag(metadata, name, default=flag) for name, flag in assumed}
    vocabulary = SentencePiece(
        algorithm=algorithm,
        tokens=tuple(map(_visible, tokens, types)),
        scores=scores,
        types=types,
        add_dummy_prefix=spaces["add_space_prefix"],
        remove_extra_whitespaces=spaces["remove_extra_whitespaces"],
        charsmap=b"" if charsmap is None else np.asarray(charsmap).astype(np.uint8).tobytes(),
        prefix_everywhere=True,
    )
    sentencepiece.check(vocabulary, SOURCE)
    ids = {name: i for name, i in ASSUMED_IDS[algorithm].items() if i < len(tokens)}
    return vocabulary, ids, {**ASSUMED_ADDED[algorithm]}


def _visible(token: str, token_type: TokenType) -> str:
    """A piece as SentencePiece has it; llama.cpp's converter writes plain spaces in some."""
    return token.replace(" ", "▁") if token_type is TokenType.USER_DEFINED else token


def _read_byte_pairs(metadata: Mapping[str, object], tokens: tuple[str, ...]) -> Read:
    types = _types(metadata, tokens)
    name = metadata.get(f"{ROOT}pre", "default")
    row = pretokenization.row(str(name))
    merges = _merges(metadata, tokens)
    return BytePairs(tokens, types, merges, str(name)), {}, {"bos": row.add_bos, "eos": False}


def _read_listed_merges(metadata: Mapping[str, object], tokens: tuple[str, ...]) -> Read:
    unknown = _special_ids(metadata).get("unk")
    columns = tokens, _types(metadata, tokens), _merges(metadata, tokens)
    vocabulary = listed_merges.from_gguf_columns(*columns, unknown)
    sentencepiece.check(vocabulary, SOURCE)
    return vocabulary, {}, {"bos": True, "eos": False}


def _read_word_pieces(metadata: Mapping[str, object], tokens: tuple[str, ...]) -> Read:
    types = _types(metadata, tokens)
    vocabulary, ids = wordpiece.from_gguf_columns(tokens, types, _special_ids(metadata))
    checks.tokens(vocabulary.tokens, SOURCE)
    return vocabulary, ids, {}


READERS: dict[str, Callable[[Mapping[str, object], tuple[str, ...]], Read]] = {
    "llama": partial(_read_sentencepiece, algorithm="bpe"),
    "t5": partial(_read_sentencepiece, algorithm="unigram"),
    "gpt2": _read_byte_pairs,
    "bert": _read_word_pieces,
    listed_merges.MODEL: _read_listed_merges,
}


def _merges(metadata: Mapping[str, object], tokens: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = [tuple(merge.split(" ")) for merge in _strings(metadata, "merges")]
    _check_merges(pairs, set(tokens))
    return tuple((pair[0], pair[1]) for pair in pairs)


def _check_merges(pairs: Sequence[tuple[str, ...]], tokens: set[str]) -> None:
    wrong = [
        f"merge {i}: {' '.join(pair)!r}"
        for i, pair in enumerate(pairs)
        if len(pair) != 2 or not tokens.issuperset((*pair, "".join(pair)))
    ]
    checks.refuse(wrong, f"{len(wrong)} merges are not two tokens that make a third", SOURCE)


def _strings(metadata: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = metadata.get(f"{ROOT}{key}")
    listed = list(value) if isinstance(value, (list, tuple, np.ndarray)) else None
    if listed is None or not all(isinstance(item, str) for item in listed):
        raise MalformedFile(f"{ROOT}{key} is missing or no array of strings", file=SOURCE)
    return tuple(str(item) for item in listed)


def _numbers(metadata: Mapping[str, object], key: str) -> Sequence[Any]:
    value = np.asarray(metadata.get(f"{ROOT}{key}"))
    if value.ndim != 1 or value.dtype.kind not in "iuf":
        raise MalformedFile(f"{ROOT}{key} is missing or no array of numbers", file=SOURCE)
    numbers: list[Any] = value.tolist()
    return numbers


def _types(
    metadata: Mapping[str, object], tokens: tuple[str, ...], **others: int
) -> tuple[TokenType, ...]:
    """The tokens' types, if as many as the tokens are there, and as many of other columns."""
    types = (TokenType.NORMAL,) * len(tokens)
    if f"{ROOT}token_type" in metadata:
        types = checks.types(_numbers(metadata, "token_type"), SOURCE)
    checks.lengths(len(tokens), {**others, "token_type": len(types)}, SOURCE)
    return types


def _special_ids(metadata: Mapping[str, object]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for name, key in SPECIAL_KEYS.items():
        value = metadata.get(f"{ROOT}{key}")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise MalformedFile(f"{ROOT}{key} is not an integer: {value!r:.80}", file=SOURCE)
        ids[name] = int(value)
    return ids


def _flags(metadata: Mapping[str, object]) -> dict[str, bool]:
    keys = {name: f"add_{name}_token" for name in ADDED}
    present = {name: key for name, key in keys.items() if f"{ROOT}{key}" in metadata}
    return {name: _flag(metadata, key, default=False) for name, key in present.items()}


def _flag(metadata: Mapping[str, object], key: str, *, default: bool) -> bool:
    value = metadata.get(f"{ROOT}{key}", default)
    if not isinstance(value, (bool, np.bool_)):
        raise MalformedFile(f"{ROOT}{key} is not a truth value: {value!r:.80}", file=SOURCE)
    return bool(value)


def _ends(vocabulary: Vocabulary) -> tuple[int, ...]:
    """The tokens that end a turn by their names, which files often do not say otherwise."""
    rows = enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED)
    return tuple(i for i, (token, token_type) in rows if token_type in kinds and token in ENDS)


def _templates(metadata: Mapping[str, object]) -> dict[str, str]:
    templates: dict[str, str] = {}
    for key, value in metadata.items():
        if isinstance(value, str) and (key == TEMPLATE or key.startswith(f"{TEMPLATE}.")):
            templates[key.removeprefix(TEMPLATE).removeprefix(".") or "default"] = value
    checks.templates(templates, SOURCE)
    return templates
