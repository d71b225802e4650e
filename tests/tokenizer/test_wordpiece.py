"""WordPiece in its three forms gives the ids that the tokenizers library's own file gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from maxtool import tokenizer as room
from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.tokenizer import TokenType, WordPieces, wordpiece

SOURCE = Path(__file__).resolve().parents[1] / "data" / "tiny-bert"
ORACLE = Library.from_file(str(SOURCE / "tokenizer.json"))
TEXTS = [
    "Once upon a time, there lived a BRAVE beaver!",
    "Ünïcödé á é  tabs\tand\nlines",
    "日本語 and 🎉 [MASK] don't x" + "y" * 120,
    "",
    "   ",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a vocab.txt, and no tokenizer.json."""
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copyfile(SOURCE / name, tmp_path / name)
    return tmp_path


def encoded(text: str, written: str) -> list[int]:
    ids: list[int] = Library.from_str(written).encode(text).ids
    return ids


def read(folder: Path) -> room.Tokenizer:
    result = room.read(folder)
    assert result is not None
    return result


@pytest.mark.parametrize("text", TEXTS)
def test_a_vocabulary_of_lines(folder: Path, text: str) -> None:
    assert encoded(text, room.to_json(read(folder))) == ORACLE.encode(text).ids


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("form", ["vocab.txt", "tokenizer.json"])
def test_through_the_keys_of_gguf(folder: Path, text: str, form: str) -> None:
    source = read(folder) if form == "vocab.txt" else read(SOURCE)
    keys = room.to_gguf(source, {}, 160)
    assert keys["tokenizer.ggml.model"] == "bert"
    back = room.from_gguf(keys)
    assert back is not None
    assert isinstance(back.vocabulary, WordPieces)
    assert encoded(text, room.to_json(back)) == ORACLE.encode(text).ids


def test_pieces_have_phantom_spaces_in_gguf(folder: Path) -> None:
    keys = room.to_gguf(read(folder), {}, 163)
    plain = (folder / "vocab.txt").read_text().splitlines()
    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(types, np.ndarray)
    for token, written, kind in zip(plain, tokens, types, strict=False):
        expected = token.removeprefix("##") if token.startswith("##") else f"▁{token}"
        assert written == (token if token.startswith("[") else expected)
        assert kind == (TokenType.CONTROL if token.startswith("[") else TokenType.NORMAL)
    assert tokens[160:] == ["▁[PAD160]", "▁[PAD161]", "▁[PAD162]"]
    assert set(types[160:]) == {TokenType.UNUSED}


@given(st.lists(st.tuples(st.text(min_size=1), st.sampled_from(TokenType)), max_size=8))
def test_phantom_spaces_are_undone(rows: list[tuple[str, TokenType]]) -> None:
    unique = dict(rows)
    vocabulary = WordPieces(tuple(unique), tuple(unique.values()))
    columns = wordpiece.gguf_columns(vocabulary, len(unique))
    back, _ = wordpiece.from_gguf_columns(columns["tokens"], vocabulary.types, {})
    assert back.tokens == vocabulary.tokens


def test_capitals(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "do_lower_case": False}))
    cased = read(folder)
    assert encoded("he", room.to_json(cased)) != encoded("HE", room.to_json(cased))
    with pytest.raises(ConfigurationError, match="capitals"):
        room.to_gguf(cased, {}, 160)


def test_a_class_that_means_something_else(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    assert room.read(folder) is None


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"[PAD]\n\xff\n", "not UTF-8"), (b"a\nb\na\n", "1 tokens occur twice")],
)
def test_vocabularies_that_are_wrong(folder: Path, data: bytes, what: str) -> None:
    (folder / "vocab.txt").write_bytes(data)
    with pytest.raises(MalformedFile, match=what):
        room.read(folder)


def test_special_tokens_that_are_missing(folder: Path) -> None:
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\nhe\n")
    with pytest.raises(ConfigurationError, match="no token for cls, sep"):
        room.to_json(read(folder))


def test_columns_of_other_lengths(folder: Path) -> None:
    keys = room.to_gguf(read(folder), {}, 160)
    keys["tokenizer.ggml.token_type"] = np.array([1, 1], np.int32)
    with pytest.raises(MalformedFile, match="token_type: 2"):
        room.from_gguf(keys)


def test_mpnet(folder: Path) -> None:
    """Special tokens are others than BERT's, which are words there; two stand between texts."""
    words = (folder / "vocab.txt").read_text().splitlines()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    (folder / "vocab.txt").write_text("\n".join([*special, *words, "<mask>"]) + "\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "MPNetTokenizer"}')
    ours = Library.from_str(room.to_json(read(folder)))
    plain = [token + len(special) for token in ORACLE.encode("he sat").ids[1:-1]]
    assert ours.encode("he sat").ids == [0, *plain, 2]
    assert ours.encode("he sat", "he sat").ids == [0, *plain, 2, 2, *plain, 2]
    assert ours.encode("<mask>").ids == [0, len(words) + len(special), 2]
    assert len(ours.encode("[SEP]").ids) > 3
    assert read(folder).special_ids["pad"] == 1


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", [{}, {"do_lower_case": False, "cls_token": "[CLS]"}])
def test_mpnet_as_transformers_has_it(folder: Path, config: dict[str, object]) -> None:
    transformers = pytest.importorskip("transformers")
    words = (folder / "vocab.txt").read_text().splitlines()
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *words, "<mask>"]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    settings = {"tokenizer_class": "MPNetTokenizer", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    places = {token: number for number, token in enumerate(tokens)}
    theirs = transformers.MPNetTokenizer(vocab=places, **config)
    ours = Library.from_str(room.to_json(read(folder)))
    for text in (*filter(None, TEXTS), "a <mask> b", "[SEP] </s> x"):
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        assert ours.encode("he", text).ids == theirs("he", text)["input_ids"], text


def test_special_tokens_by_the_names_of_the_configuration(folder: Path) -> None:
    words = (folder / "vocab.txt").read_text().replace("[CLS]", "<s>")
    (folder / "vocab.txt").write_text(words)
    (folder / "tokenizer_config.json").write_text('{"cls_token": {"content": "<s>"}}')
    assert encoded("he", room.to_json(read(folder))) == ORACLE.encode("he").ids
