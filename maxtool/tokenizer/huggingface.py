"""The tokenizer files of a Hugging Face folder."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from maxtool.errors import ConfigurationError, MalformedFile, MissingFile
from maxtool.tokenizer import (
    canonical,
    checks,
    deberta,
    gpt_sw3,
    jsonfile,
    sentencepiece,
    unigram,
    wordpiece,
)
from maxtool.tokenizer.library import to_json
from maxtool.tokenizer.special_tokens import content_of
from maxtool.tokenizer.vocabulary import AddedToken, SentencePiece, Tokenizer, Vocabulary
from maxtool.weights.files_read import note_read
from maxtool.weights.jsonfile import parse_object
from maxtool.weights.text_tables import said_of_texts

SPECIAL = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
ENDS = "eos_token_id"
# What begins and ends a text where encoders have no such tokens by those names.
INSTEAD = {"bos": "cls", "eos": "sep"}
# Of all files together; the largest published tokenizer.json has 34 MB.
MAX_FILES = 100_000_000
# What belongs to a tokenizer and is carried as it is; the configurations of the model do not.
CARRIED = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "sentencepiece.bpe.model"),
    *("spiece.model", "spm.model"),
    *("chat_template.jinja", "chat_template.json"),
)
ADDITIONAL = "additional_chat_templates"
"""The folder with further chat templates, each called after its file."""
MOST_TEMPLATES = 64
VOCAB, FAIRSEQ, SPIECE = "vocab.txt", "sentencepiece.bpe.model", "spiece.model"
SPM = "spm.model"
# Classes of tokenizers with the last whose ids are those of its model, and then further ones.
T5_CLASSES = ("T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer", "MT5TokenizerFast")
EXTRA_IDS = 100  # of T5, where nothing says how many
# Of tokenizers with that model those whose ids are XLM-RoBERTa's.
FAIRSEQ_CLASSES = (None, "XLMRobertaTokenizer", "XLMRobertaTokenizerFast")
MAX_EXTRA = 1 << 16
# Of a token's id; ids themselves are compared with the size of the vocabulary.
MAX_DIGITS = 18


def read(folder: Path) -> Tokenizer | None:
    """The tokenizer of a folder, or None where there is none.

    A ``tokenizer.model`` says what the vocabulary is, a ``tokenizer.json`` beside it how text is
    encoded; a ``vocab.txt``, XLM-RoBERTa's ``sentencepiece.bpe.model``, the ``spiece.model`` of
    T5, SigLIP or GPT-SW3, or DeBERTa's ``spm.model`` is read where there is neither. Special ids
    come from ``tokenizer_config.json``, then ``config.json`` (by itself, then in its table of a
    language model), then ``generation_config.json`` (its list of end tokens), then the model
    itself.
    """
    files = _files(folder)
    config = _json(folder, "tokenizer_config.json")
    if not {"tokenizer.json", "tokenizer.model"} & set(files):
        alone = {VOCAB: _word_pieces, FAIRSEQ: _fairseq, SPIECE: _spiece, SPM: _deberta}
        return next((alone[name](folder, files, config) for name in alone if name in files), None)
    parsed = None
    if "tokenizer.json" in files:
        parsed = jsonfile.parse(files["tokenizer.json"], folder / "tokenizer.json")
    vocabulary = parsed.vocabulary if parsed else None
    own_ids: Mapping[str, int] = {}
    added: tuple[AddedToken, ...] = ()
    if "tokenizer.model" in files:
        file = folder / "tokenizer.model"
        model, own_ids = sentencepiece.parse(files["tokenizer.model"], file)
        vocabulary = replace(model, prefix_everywhere=config.get("legacy") is True)
        added = _added(folder, config, vocabulary)
    ids, stops = _special_ids(folder, config, parsed, own_ids)
    return Tokenizer(
        vocabulary=vocabulary,
        added=added,
        special_ids=ids,
        add=_add(config, parsed, ids),
        stops=stops,
        chat_templates=_templates(config, files, folder),
        special_tokens=_special_tokens(folder, config, own_ids, vocabulary),
        json=files["tokenizer.json"].decode() if parsed else None,
        json_size=parsed.size if parsed else 0,
        files=files,
    )


def _word_pieces(
    folder: Path, files: Mapping[str, bytes], config: Mapping[str, Any]
) -> Tokenizer | None:
    """The tokenizer of a folder with a ``vocab.txt`` and no other vocabulary."""
    found = wordpiece.from_vocab(files[VOCAB], config, folder / VOCAB)
    if found is None:
        return None
    vocabulary, ids = found
    return Tokenizer(vocabulary=vocabulary, special_ids=ids, files=files)


def _fairseq(
    folder: Path, files: Mapping[str, bytes], config: Mapping[str, Any]
) -> Tokenizer | None:
    """The tokenizer of a folder with XLM-RoBERTa's model and no other vocabulary."""
    if config.get("tokenizer_class") not in FAIRSEQ_CLASSES:
        return None
    model, _ = sentencepiece.parse(files[FAIRSEQ], folder / FAIRSEQ)
    vocabulary = unigram.of_fairseq(model)
    checks.tokens(vocabulary.tokens, folder / FAIRSEQ)
    add = dict.fromkeys(("bos", "eos", "sep"), True)
    return Tokenizer(vocabulary=vocabulary, special_ids=dict(unigram.IDS), add=add, files=files)


def _spiece(
    folder: Path, files: Mapping[str, bytes], config: Mapping[str, Any]
) -> Tokenizer | None:
    """The tokenizer of a folder with such a model alone: T5's, SigLIP's or GPT-SW3's."""
    readers = (_t5, canonical.read, gpt_sw3.read)
    return next(filter(None, (read(folder, files, config) for read in readers)), None)


def _deberta(
    folder: Path, files: Mapping[str, bytes], config: Mapping[str, Any]
) -> Tokenizer | None:
    """The tokenizer of a folder with DeBERTa's model and no other vocabulary."""
    if config.get("tokenizer_class") not in deberta.CLASSES:
        return None
    vocabulary, _ = sentencepiece.parse(files[SPM], folder / SPM)
    return deberta.of_model(vocabulary, _added(folder, config, vocabulary), config, files)


def _t5(folder: Path, files: Mapping[str, bytes], config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a folder with T5's model and no other vocabulary."""
    if config.get("tokenizer_class") not in T5_CLASSES:
        return None
    model, ids = sentencepiece.parse(files[SPIECE], folder / SPIECE)
    extra = config.get("extra_ids", EXTRA_IDS)
    if not _is_id(extra) or not 0 <= extra <= MAX_EXTRA:
        what = f"extra_ids is {extra!r:.40}, not a number from 0 to {MAX_EXTRA}"
        raise ConfigurationError(what, file=folder / "tokenizer_config.json")
    vocabulary = replace(model, prefix_everywhere=True)
    added = _added(folder, config, vocabulary)
    known, first = {token.content for token in added}, len(model.tokens)
    named = (f"<extra_id_{extra - 1 - number}>" for number in range(extra))
    behind = (AddedToken(i, text, special=True) for i, text in enumerate(named, first))
    added += tuple(token for token in behind if token.content not in known)
    return Tokenizer(
        vocabulary=vocabulary, added=added, special_ids=ids, add={"eos": True}, files=files
    )


def write_hf(tokenizer: Tokenizer, folder: Path) -> list[Path]:
    """Write the tokenizer's files into a folder; the paths written.

    What came from a Hugging Face folder is written as it stood. A SentencePiece vocabulary from
    GGUF becomes a ``tokenizer.model``, any but its BPE a ``tokenizer.json``, alone where merges are
    listed, with a ``tokenizer_config.json``.
    """
    files = dict(tokenizer.files) or _made(tokenizer)
    paths = [folder / name for name in files]
    for path, data in zip(paths, files.values(), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return paths


def _made(tokenizer: Tokenizer) -> dict[str, bytes]:
    vocabulary = tokenizer.vocabulary
    if vocabulary is None:
        raise ConfigurationError("this tokenizer has no form in a Hugging Face folder")
    config = json.dumps(_config(tokenizer), indent=2, ensure_ascii=False).encode() + b"\n"
    files = {"tokenizer_config.json": config}
    if isinstance(vocabulary, SentencePiece) and not _lists_merges(vocabulary):
        model = sentencepiece.serialize(vocabulary, tokenizer.special_ids)
        files = {"tokenizer.model": model, **files}
    if not _is_llama(vocabulary):
        files = {"tokenizer.json": to_json(tokenizer).encode(), **files}
    return files


def _is_llama(vocabulary: Vocabulary | None) -> bool:
    """Return whether Llama's tokenizer class reads a vocabulary from a ``tokenizer.model``."""
    is_bpe = isinstance(vocabulary, SentencePiece) and vocabulary.algorithm == "bpe"
    return is_bpe and not _lists_merges(vocabulary)


def _lists_merges(vocabulary: Vocabulary | None) -> bool:
    """Return whether a file listed the merges of a SentencePiece model."""
    return isinstance(vocabulary, SentencePiece) and bool(vocabulary.merges)


def _config(tokenizer: Tokenizer) -> dict[str, object]:
    """The ``tokenizer_config.json`` of a tokenizer that came from GGUF."""
    vocabulary = tokenizer.vocabulary
    pieces = vocabulary.tokens if vocabulary else ()
    usual = "LlamaTokenizer" if _is_llama(vocabulary) else "PreTrainedTokenizerFast"
    config: dict[str, object] = {"tokenizer_class": usual}
    if isinstance(vocabulary, SentencePiece):
        config["legacy"] = vocabulary.prefix_everywhere
        config["add_prefix_space"] = vocabulary.add_dummy_prefix
    for name, i in tokenizer.special_ids.items():
        config[f"{name}_token"] = pieces[i]
    config.update({f"add_{name}_token": value for name, value in tokenizer.add.items()})
    templates = tokenizer.chat_templates
    if set(templates) == {"default"}:
        config["chat_template"] = templates["default"]
    elif templates:
        config["chat_template"] = [{"name": k, "template": v} for k, v in templates.items()]
    return config


def _files(folder: Path) -> dict[str, bytes]:
    """The files of the tokenizer that are there, as they stand."""
    files: dict[str, bytes] = {}
    left = MAX_FILES
    for name in (*CARRIED, *additional(folder)):
        data = _bytes(folder / name, left)
        if data is not None:
            files[name] = data
            left -= len(data)
    return files


def additional(folder: Path) -> list[str]:
    """The paths of further chat templates in a folder, by name."""
    found = itertools.islice((folder / ADDITIONAL).glob("*.jinja"), MOST_TEMPLATES)
    return sorted(f"{ADDITIONAL}/{file.name}" for file in found if file.is_file())


def _bytes(path: Path, most: int = MAX_FILES) -> bytes | None:
    try:
        with path.open("rb") as stream:
            note_read(path)
            # It takes memory for as many bytes as it is asked for, however few there are.
            data = stream.read(min(os.fstat(stream.fileno()).st_size, most) + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MissingFile(f"cannot be read: {error.strerror}", file=path) from None
    if len(data) > most:
        what = f"a tokenizer whose files have more than {MAX_FILES} bytes up to this one"
        raise MalformedFile(what, file=path)
    return data


def _json(folder: Path, name: str) -> dict[str, Any]:
    data = _bytes(folder / name)
    return {} if data is None else parse_object(data, file=folder / name)


def _added(
    folder: Path, config: Mapping[str, Any], vocabulary: SentencePiece
) -> tuple[AddedToken, ...]:
    """Tokens that ``added_tokens.json`` and the configuration put over or behind the model's."""
    found: dict[int, AddedToken] = {}
    for content, i in _json(folder, "added_tokens.json").items():
        if isinstance(i, int):
            found[i] = AddedToken(i, content, special=False)
    decoder = config.get("added_tokens_decoder")
    for key, entry in decoder.items() if isinstance(decoder, dict) else ():
        match entry:
            case {"content": str(content)} if key.isascii() and key.isdigit():
                if len(key) > MAX_DIGITS:
                    what = f"an added token has an id of {len(key)} digits"
                    raise MalformedFile(what, file=folder / "tokenizer_config.json")
                found[int(key)] = AddedToken(int(key), content, entry.get("special") is True)
    size = len(vocabulary.tokens) + len(found)
    checks.ids({f"{token.content!r:.80}": i for i, token in found.items()}, size, folder)
    tokens = tuple(found[i] for i in sorted(found))
    checks.tokens(vocabulary.extended(tokens).tokens, folder)
    return tokens


def _special_ids(
    folder: Path,
    config: Mapping[str, Any],
    parsed: jsonfile.TokenizerJson | None,
    own: Mapping[str, int],
) -> tuple[dict[str, int], tuple[int, ...]]:
    """Ids by name in the order llama.cpp's converter finds them, and the further end tokens."""
    ids: dict[str, int] = {}
    for name in SPECIAL if parsed else ():
        named = config.get(f"{name}_token") or config.get(f"{INSTEAD.get(name, name)}_token")
        content = content_of(named)
        token_id = None if content is None or parsed is None else parsed.id_of(content)
        if token_id is not None:
            ids[name] = token_id
    model = _json(folder, "config.json")
    generation = _json(folder, "generation_config.json")
    for name in SPECIAL:
        value = said_of_texts(model, f"{name}_token_id")
        if _is_id(value):
            ids.setdefault(name, value)
    told = generation.get(ENDS)
    # What a table says may be no more than its class's default: it counts where nothing else does.
    lists = [told, said_of_texts(model, ENDS) if told is None else model.get(ENDS)]
    every = [i for value in lists for i in (value if isinstance(value, list) else [value])]
    stops = tuple(dict.fromkeys(filter(_is_id, every)))
    if stops:
        ids.setdefault("eos", stops[0])
    for name in ("bos", "eos"):
        if name in own:
            ids.setdefault(name, own[name])
    last = parsed.id_of(parsed.ends[1] or "") if parsed else None
    if last is not None and last != ids.get("eos"):
        # What a template ends texts with is the end of a text, another named one that of a turn.
        ids |= {"eos": last} | ({"eot": ids["eos"]} if "eos" in ids else {})
    _check_signs(ids, stops, folder)
    return ids, stops


def _special_tokens(
    folder: Path, config: Mapping[str, Any], own: Mapping[str, int], vocabulary: Vocabulary | None
) -> dict[str, str]:
    """Texts of special tokens: the configurations' word, for what they do not name the model's.

    A name that a configuration sets to null has no token, whatever the model's ids.
    """
    tokens = vocabulary.tokens if vocabulary else ()
    found: dict[str, str | None] = {name: tokens[i] for name, i in own.items() if i < len(tokens)}
    for source in (_json(folder, "special_tokens_map.json"), config):
        named = {name: source.get(f"{name}_token", "") for name in SPECIAL}
        found |= {name: content_of(entry) for name, entry in named.items() if entry != ""}
    return {f"{name}_token": text for name, text in found.items() if text is not None}


def _check_signs(ids: Mapping[str, int], stops: Iterable[int], folder: Path) -> None:
    """Refuse negative ids. Those beyond the model's rows are left out when these are known."""
    every = {**ids, **{f"end token {i}": i for i in stops}}
    checks.ids(every, max(every.values(), default=0) + 1, folder)


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _add(
    config: Mapping[str, Any], parsed: jsonfile.TokenizerJson | None, ids: Mapping[str, int]
) -> dict[str, bool]:
    """Return which tokens are added around a text: by the configuration, else by the template."""
    add: dict[str, bool] = {}
    for name, end in zip(("bos", "eos"), parsed.ends if parsed else (), strict=False):
        if end is not None and parsed is not None:
            add[name] = parsed.id_of(end) == ids.get(name)
    if parsed is not None and parsed.between:
        add["sep"] = _separates(parsed, ids)
    for name in ("bos", "eos", "sep"):
        value = config.get(f"add_{name}_token")
        if isinstance(value, bool):
            add[name] = value
    return add


def _separates(parsed: jsonfile.TokenizerJson, ids: Mapping[str, int]) -> bool:
    """Return whether a separator is put between two texts beside the end of the first.

    As llama.cpp's converter tells it: what begins a text, put there again, is none.
    """
    known = {ids.get("sep"), ids.get("eos")} - {None}
    more = parsed.between if parsed.ends[1] is None else parsed.between[1:]
    return len(more) == 1 and parsed.id_of(more[0]) in known


def _templates(
    config: Mapping[str, Any], files: Mapping[str, bytes], folder: Path
) -> dict[str, str]:
    """Chat templates by name, as text; a file of their own goes before the configuration."""
    value = config.get("chat_template")
    if "chat_template.json" in files and value is None:
        value = _json(folder, "chat_template.json").get("chat_template")
    templates = _named(value)
    if "chat_template.jinja" in files:
        templates["default"] = _text(files["chat_template.jinja"], folder / "chat_template.jinja")
    for name in (one for one in files if one.startswith(f"{ADDITIONAL}/")):
        stem = name.removeprefix(f"{ADDITIONAL}/").removesuffix(".jinja")
        templates[stem] = _text(files[name], folder / name)
    checks.templates(templates, folder)
    return templates


def _named(value: object) -> dict[str, str]:
    """A template, or a list of those with names."""
    templates: dict[str, str] = {}
    for entry in value if isinstance(value, list) else ({"name": "default", "template": value},):
        match entry:
            case {"name": str(name), "template": str(text)}:
                templates[name] = text
    return templates


def _text(data: bytes, file: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFile(f"not UTF-8: {error}", file=file) from None
