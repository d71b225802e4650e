"""``tokenizer.json``: the file of the ``tokenizers`` library, read into a vocabulary.

Its parts are documented by the library alone; the names here are those it writes. Byte-level BPE
becomes :class:`BytePairs`, BPE with byte fallback and unigram models (SentencePiece in disguise)
become :class:`SentencePiece`, BERT's WordPiece :class:`WordPieces`; of any other kind only the
special tokens are taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxtool.errors import MalformedFile
from maxtool.tokenizer import checks, pretokenization, unigram, wordpiece
from maxtool.tokenizer.fitting_json import pair_of, tokens_of
from maxtool.tokenizer.hostile import find_problem
from maxtool.tokenizer.listed_merges import ranked
from maxtool.tokenizer.vocabulary import AddedToken, BytePairs, SentencePiece, TokenType, Vocabulary
from maxtool.weights.jsonfile import parse_object

# By the estimate of weights/jsonfile.py; 262,144 tokens and 580,000 merges take 450,000,000.
MEMORY = 600_000_000


@dataclass(frozen=True, slots=True)
class TokenizerJson:
    """Contents of a ``tokenizer.json``: ``ends`` are what its template adds around a text.

    ``between`` is what it adds between two texts, what ends the first included.
    """

    vocabulary: Vocabulary | None
    added: tuple[AddedToken, ...]
    ends: tuple[str | None, str | None]
    between: tuple[str, ...]
    size: int

    def id_of(self, content: str) -> int | None:
        """The id of an added token."""
        return next((token.id for token in self.added if token.content == content), None)


def parse(data: bytes, file: Path) -> TokenizerJson:
    """Read a ``tokenizer.json``; MalformedFile if it asks for what has no bounds as well."""
    root: dict[str, Any] = parse_object(data, file=file, memory=MEMORY)
    _check_prefix(root.get("model"), file)
    if problem := find_problem(root):
        raise MalformedFile(problem, file=file)
    _check_with_library(data, file)
    added = _added(root.get("added_tokens") or [], file)
    model = root.get("model")
    vocabulary: Vocabulary | None = None
    if isinstance(model, dict) and model.get("type", "BPE") == "BPE" and "merges" in model:
        vocabulary = _bpe(root, model, added, file)
    elif isinstance(model, dict) and model.get("type") == "WordPiece":
        vocabulary = wordpiece.from_json(root, added, file)
    elif isinstance(model, dict) and model.get("type") == "Unigram":
        vocabulary = unigram.from_json(root, added, file)
    ids = [*(i for _, i in tokens_of(model)), *(token.id for token in added)]
    processor = root.get("post_processor")
    ends, between = _template_ends(processor), _between(processor)
    return TokenizerJson(vocabulary, added, ends, between, max(ids, default=-1) + 1)


def _check_prefix(model: object, file: Path) -> None:
    """Check what the library cuts off without looking, with a panic written to stderr."""
    prefix = model.get("continuing_subword_prefix") if isinstance(model, dict) else None
    merges = model.get("merges") if isinstance(model, dict) else None
    if not isinstance(prefix, str) or not isinstance(merges, list):
        return
    pairs = (entry.split(" ") if isinstance(entry, str) else entry for entry in merges)
    rights = [pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    lacking = sum(isinstance(right, str) and not right.startswith(prefix) for right in rights)
    if lacking:
        raise MalformedFile(f"{lacking} merges lack the prefix {prefix!r:.80}", file=file)


def _check_with_library(data: bytes, file: Path) -> None:
    from tokenizers import Tokenizer

    try:
        Tokenizer.from_str(data.decode("utf-8"))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        raise MalformedFile(f"the tokenizers library refuses it: {error}", file=file) from None


def _added(entries: Iterable[Mapping[str, Any]], file: Path) -> tuple[AddedToken, ...]:
    tokens = tuple(
        AddedToken(int(e["id"]), str(e["content"]), bool(e.get("special", False))) for e in entries
    )
    checks.tokens([token.content for token in tokens] or ["-"], file)
    checks.tokens([str(token.id) for token in tokens] or ["-"], file)
    return tokens


def _bpe(
    root: Mapping[str, Any], model: Mapping[str, Any], added: tuple[AddedToken, ...], file: Path
) -> SentencePiece | BytePairs:
    tokens, types = _columns(model["vocab"], added, model.get("unk_token"), file)
    merges = tuple(map(pair_of, model["merges"]))
    if model.get("byte_fallback"):
        return _sentencepiece(root, tokens, types, merges)
    name, reason = pretokenization.find(root)
    affixes = [key for key in _AFFIXES if model.get(key)]
    if affixes:
        name, reason = None, f"GGUF cannot say {', '.join(affixes)}"
    return BytePairs(tokens, types, merges, name, reason)


_AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix", "dropout")


def _columns(
    vocab: Mapping[str, int], added: tuple[AddedToken, ...], unknown: str | None, file: Path
) -> tuple[tuple[str, ...], tuple[TokenType, ...]]:
    """Tokens and types by id; a gap is an unused ``[PAD7]``, as llama.cpp fills it."""
    by_id = {i: token for token, i in vocab.items()}
    by_id.update({token.id: token.content for token in added})
    if len({*vocab, *(token.content for token in added)}) != len(by_id):
        raise MalformedFile("two tokens have one id, or one token two", file=file)
    size = max(by_id, default=-1) + 1
    if size > 2 * len(by_id) + 4096:
        what = f"{len(by_id)} tokens with ids up to {size - 1}"
        raise MalformedFile(what, file=file)
    kinds = {token.id: token.type for token in added}
    if unknown is not None and unknown in vocab:
        kinds[vocab[unknown]] = TokenType.UNKNOWN
    default = {True: TokenType.NORMAL, False: TokenType.UNUSED}
    tokens = tuple(by_id.get(i, f"[PAD{i}]") for i in range(size))
    checks.tokens(tokens, file)
    return tokens, tuple(kinds.get(i, default[i in by_id]) for i in range(size))


def _sentencepiece(
    root: Mapping[str, Any],
    tokens: tuple[str, ...],
    types: tuple[TokenType, ...],
    merges: tuple[tuple[str, str], ...],
) -> SentencePiece:
    """The SentencePiece model that a file with byte fallback is."""
    parts = json.dumps([root.get("normalizer"), root.get("pre_tokenizer")])
    everywhere = '"Prepend"' in parts or '"always"' in parts
    return ranked(
        tokens,
        types,
        merges,
        add_dummy_prefix=everywhere or '"first"' in parts,
        prefix_everywhere=everywhere,
    )


def _template_ends(processor: object) -> tuple[str | None, str | None]:
    """The special tokens that a template puts before and after a text."""
    match processor:
        case {"type": "Sequence", "processors": [*parts]}:
            found = [_template_ends(part) for part in parts]
            return next((ends for ends in found if any(ends)), (None, None))
        case {"type": "TemplateProcessing", "single": [first, *_, last]}:
            return _special(first), _special(last)
        case {"type": "BertProcessing" | "RobertaProcessing", "cls": [a, _], "sep": [b, _]}:
            return str(a), str(b)
    return None, None


def _between(processor: object) -> tuple[str, ...]:
    """The special tokens that a template puts between two texts."""
    match processor:
        case {"type": "Sequence", "processors": [*parts]}:
            return next(filter(None, map(_between, parts)), ())
        case {"type": "RobertaProcessing", "sep": [text, _]}:
            return str(text), str(text)
        case {"type": "TemplateProcessing", "pair": [*steps]}:
            special = [_special(step) for step in steps]
            places = [place for place, text in enumerate(special) if text is None]
            inside = special[places[0] : places[-1]] if places else []
            return tuple(text for text in inside if text is not None)
    return ()


def _special(step: object) -> str | None:
    match step:
        case {"SpecialToken": {"id": str(token)}}:
            return token
    return None
