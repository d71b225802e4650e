"""The ``tokenizer.ggml.*`` keys of a GGUF file, read and written.

Keys and their order are those of llama.cpp's ``convert_hf_to_gguf.py`` (``gguf/constants.py``,
``gguf/vocab.py``); what a missing key means is what ``llama-vocab.cpp`` takes it for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.tokenizer import pre, sentencepiece
from maxtool.tokenizer.vocabulary import (
    BytePairs,
    SentencePiece,
    Tokenizer,
    TokenType,
    check_ids,
    check_lengths,
    check_scores,
    check_templates,
    check_tokens,
    token_types,
)

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
ADDED = ("bos", "eos", "sep")
# What llama.cpp takes for ends of text by name (llama-vocab.cpp).
ENDS = frozenset(
    (
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<end_of_utterance>", "<EOT>"),
        *("<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "[EOT]", "<|return|>"),
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    )
)


def from_gguf(metadata: Mapping[str, object]) -> Tokenizer | None:
    """The tokenizer of a GGUF file, or None where it has none.

    Args:
        metadata: The file's key/value pairs.

    Raises:
        MalformedFile: If the columns contradict each other or ids are out of range.
        ConfigurationError: If the vocabulary is of a kind, or splits in a way, that is not known.
    """
    model = metadata.get(f"{ROOT}model")
    if model is None:
        return None
    if not isinstance(model, str):
        raise MalformedFile(f"{ROOT}model is no text: {model!r:.80}", file=SOURCE)
    if model == "no_vocab":
        return None
    if model not in READERS:
        known = ", ".join(READERS)
        raise ConfigurationError(f"unknown tokenizer.ggml.model {model!r}; known are {known}")
    tokens = _strings(metadata, "tokens")
    check_tokens(tokens, SOURCE)
    vocabulary, ids, add = READERS[model](metadata, tokens)
    ids.update(_special_ids(metadata))
    check_ids(ids, len(tokens), SOURCE)
    add.update(_flags(metadata))
    return Tokenizer(
        vocabulary=vocabulary,
        special_ids=ids,
        add=add,
        stops=_ends(vocabulary),
        chat_templates=_templates(metadata),
        special_tokens={f"{name}_token": tokens[i] for name, i in ids.items()},
    )


def to_gguf(
    tokenizer: Tokenizer, config: Mapping[str, object], vocab_size: int
) -> dict[str, object]:
    """The keys that describe a tokenizer, typed as :func:`maxtool.weights` writers expect.

    Args:
        tokenizer: What to write.
        config: The model's ``config.json``, for special ids that the tokenizer does not name.
        vocab_size: Rows of the embedding; the vocabulary is padded up to it.

    Raises:
        ConfigurationError: If the tokenizer has no form in GGUF, or more tokens than rows.
    """
    vocabulary = tokenizer.vocabulary
    if vocabulary is None:
        raise ConfigurationError("GGUF output knows SentencePiece and byte-level BPE tokenizers")
    if isinstance(vocabulary, SentencePiece):
        keys = _sentencepiece_keys(vocabulary.extended(tokenizer.added, vocab_size))
    else:
        keys = _byte_pairs_keys(vocabulary, vocab_size)
    count = len(keys[f"{ROOT}tokens"])
    if count > vocab_size:
        what = f"the tokenizer has {count} tokens and the model {vocab_size} rows for them"
        raise ConfigurationError(what)
    ids = dict(tokenizer.special_ids)
    for name in SPECIAL_KEYS:
        value = config.get(f"{name}_token_id")
        if isinstance(value, int) and not isinstance(value, bool):
            ids.setdefault(name, value)
    check_ids(ids, count, SOURCE)
    for name, value in ids.items():
        if name in SPECIAL_KEYS:
            keys[f"{ROOT}{SPECIAL_KEYS[name]}"] = np.uint32(value)
    for name, flag in tokenizer.add.items():
        keys[f"{ROOT}add_{name}_token"] = flag
    keys.update(_template_keys(tokenizer.chat_templates))
    if isinstance(vocabulary, SentencePiece):
        keys.update(_whitespace_keys(vocabulary))
    return keys


def _sentencepiece_keys(vocabulary: SentencePiece) -> dict[str, Any]:
    if vocabulary.algorithm != "bpe":
        raise ConfigurationError("GGUF output of a SentencePiece unigram model is not supported")
    return {
        f"{ROOT}model": "llama",
        f"{ROOT}pre": "default",
        f"{ROOT}tokens": list(vocabulary.pieces),
        f"{ROOT}scores": np.array(vocabulary.scores, np.float32),
        f"{ROOT}token_type": np.array(vocabulary.types, np.int32),
    }


def _whitespace_keys(vocabulary: SentencePiece) -> dict[str, Any]:
    """What differs from llama.cpp's assumptions."""
    keys: dict[str, Any] = {}
    if not vocabulary.add_dummy_prefix:
        keys[f"{ROOT}add_space_prefix"] = False
    if vocabulary.remove_extra_whitespaces:
        keys[f"{ROOT}remove_extra_whitespaces"] = True
    if vocabulary.charsmap:
        keys[f"{ROOT}precompiled_charsmap"] = np.frombuffer(vocabulary.charsmap, np.uint8)
    return keys


def _byte_pairs_keys(vocabulary: BytePairs, size: int) -> dict[str, Any]:
    if vocabulary.pre is None:
        known = ", ".join(pre.TABLE)
        what = f"this tokenizer has no form in GGUF: {vocabulary.reason}"
        raise ConfigurationError(what, hint=f"known are {known}")
    room = range(len(vocabulary.tokens), size)
    types = [*vocabulary.types, *(TokenType.UNUSED for _ in room)]
    return {
        f"{ROOT}model": "gpt2",
        f"{ROOT}pre": vocabulary.pre,
        f"{ROOT}tokens": [*vocabulary.tokens, *(f"[PAD{i}]" for i in room)],
        f"{ROOT}token_type": np.array(types, np.int32),
        f"{ROOT}merges": [f"{left} {right}" for left, right in vocabulary.merges],
    }


def _template_keys(templates: Mapping[str, str]) -> dict[str, object]:
    named = {name: text for name, text in templates.items() if name != "default"}
    keys: dict[str, object] = {f"{TEMPLATE}.{name}": text for name, text in named.items()}
    if "default" in templates:
        keys[TEMPLATE] = templates["default"]
    if named:
        keys[f"{TEMPLATE}s"] = list(named)
    return keys


Read = tuple[SentencePiece | BytePairs, dict[str, int], dict[str, bool]]


def _read_sentencepiece(metadata: Mapping[str, object], tokens: tuple[str, ...]) -> Read:
    scores = tuple(float(score) for score in _numbers(metadata, "scores"))
    types = _types(metadata, tokens)
    check_lengths(len(tokens), {"scores": len(scores), "token_type": len(types)}, SOURCE)
    check_scores(scores, SOURCE)
    charsmap = metadata.get(f"{ROOT}precompiled_charsmap")
    vocabulary = SentencePiece(
        algorithm="bpe",
        pieces=tuple(map(_visible, tokens, types)),
        scores=scores,
        types=types,
        add_dummy_prefix=_flag(metadata, "add_space_prefix", default=True),
        remove_extra_whitespaces=_flag(metadata, "remove_extra_whitespaces", default=False),
        charsmap=b"" if charsmap is None else np.asarray(charsmap).astype(np.uint8).tobytes(),
        prefix_everywhere=True,
    )
    sentencepiece.check_bytes(vocabulary, SOURCE)
    assumed = {"bos": 1, "eos": 2}
    ids = {name: i for name, i in assumed.items() if i < len(tokens)}
    return vocabulary, ids, {"bos": True, "eos": False}


def _visible(token: str, kind: TokenType) -> str:
    """A piece as SentencePiece has it; llama.cpp's converter writes plain spaces in some."""
    return token.replace(" ", "▁") if kind is TokenType.USER_DEFINED else token


def _read_byte_pairs(metadata: Mapping[str, object], tokens: tuple[str, ...]) -> Read:
    types = _types(metadata, tokens)
    check_lengths(len(tokens), {"token_type": len(types)}, SOURCE)
    name = metadata.get(f"{ROOT}pre", "default")
    row = pre.row(str(name))
    pairs = [tuple(merge.split(" ")) for merge in _strings(metadata, "merges")]
    _check_merges(pairs, set(tokens))
    merges = tuple((pair[0], pair[1]) for pair in pairs)
    return BytePairs(tokens, types, merges, str(name)), {}, {"bos": row.add_bos, "eos": False}


READERS: dict[str, Callable[[Mapping[str, object], tuple[str, ...]], Read]] = {
    "llama": _read_sentencepiece,
    "gpt2": _read_byte_pairs,
}


def _check_merges(pairs: Sequence[tuple[str, ...]], tokens: set[str]) -> None:
    wrong = [
        f"merge {i}: {' '.join(pair)!r}"
        for i, pair in enumerate(pairs)
        if len(pair) != 2 or not tokens.issuperset((*pair, "".join(pair)))
    ]
    if wrong:
        what = f"{len(wrong)} merges are not two tokens that make a third"
        raise MalformedFile(what, file=SOURCE, problems=wrong[:10])


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


def _types(metadata: Mapping[str, object], tokens: tuple[str, ...]) -> tuple[TokenType, ...]:
    if f"{ROOT}token_type" not in metadata:
        return (TokenType.NORMAL,) * len(tokens)
    return token_types(_numbers(metadata, "token_type"), SOURCE)


def _special_ids(metadata: Mapping[str, object]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, key in SPECIAL_KEYS.items():
        value = metadata.get(f"{ROOT}{key}")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise MalformedFile(f"{ROOT}{key} is no integer: {value!r:.80}", file=SOURCE)
        found[name] = int(value)
    return found


def _flags(metadata: Mapping[str, object]) -> dict[str, bool]:
    keys = {name: f"add_{name}_token" for name in ADDED}
    present = {name: key for name, key in keys.items() if f"{ROOT}{key}" in metadata}
    return {name: _flag(metadata, key, default=False) for name, key in present.items()}


def _flag(metadata: Mapping[str, object], key: str, *, default: bool) -> bool:
    value = metadata.get(f"{ROOT}{key}", default)
    if not isinstance(value, (bool, np.bool_)):
        raise MalformedFile(f"{ROOT}{key} is no truth value: {value!r:.80}", file=SOURCE)
    return bool(value)


def _ends(vocabulary: SentencePiece | BytePairs) -> tuple[int, ...]:
    """The tokens that end a turn by their names, which files often do not say otherwise."""
    rows = enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED)
    return tuple(i for i, (token, kind) in rows if kind in kinds and token in ENDS)


def _templates(metadata: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in metadata.items():
        if isinstance(value, str) and (key == TEMPLATE or key.startswith(f"{TEMPLATE}.")):
            found[key.removeprefix(TEMPLATE).removeprefix(".") or "default"] = value
    check_templates(found, SOURCE)
    return found
