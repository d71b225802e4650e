"""SentencePiece models: ids against the sentencepiece package, files against their own content."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool import tokenizer as room
from maxtool.errors import ConfigurationError, MalformedFile

sys.path.insert(0, str(Path(__file__).parent))
import tokenizer_samples as samples

# As in Gemma's model: runs of spaces and line ends, and marks.
OWN = ["▁▁", "▁▁▁▁", "\n\n", "\t\t", "<table>", "[INST]", "日本"]
KINDS: dict[str, dict[str, Any]] = {
    "bpe": {},
    "bpe without prefix": {"add_dummy_prefix": False},
    "bpe, extra spaces removed": {"remove_extra_whitespaces": True},
    "bpe, nfkc": {"normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": True},
    "bpe without bytes": {"byte_fallback": False},
    "bpe, user-defined pieces": {"user_defined_symbols": OWN, "add_dummy_prefix": False},
    "unigram": {"model_type": "unigram"},
    "unigram without prefix": {"model_type": "unigram", "add_dummy_prefix": False},
    "unigram without bytes": {"model_type": "unigram", "byte_fallback": False},
    "unigram, nfkc": {
        "model_type": "unigram",
        "normalization_rule_name": "nmt_nfkc",
        "remove_extra_whitespaces": True,
    },
}
# Of several code points that are one character, the library's character map keeps the first.
SEVERAL_POINTS = {"decomposed", "jamo"}
DIFFERENT = {"bpe, nfkc": SEVERAL_POINTS, "unigram, nfkc": SEVERAL_POINTS}


@pytest.fixture(scope="module")
def trained() -> dict[str, bytes]:
    return {name: samples.train_sentencepiece(**options) for name, options in KINDS.items()}


def both(
    folder: Path, model: bytes
) -> tuple[tokenizers.Tokenizer, sentencepiece.SentencePieceProcessor]:
    ours = room.read(samples.sentencepiece_folder(folder, model))
    assert ours is not None
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return tokenizers.Tokenizer.from_str(room.to_json(ours)), processor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", samples.TEXTS)
def test_ids_are_sentencepiece_ids(
    trained: dict[str, bytes], tmp_path: Path, kind: str, text: str
) -> None:
    library, processor = both(tmp_path, trained[kind])
    assert library.encode(text, add_special_tokens=False).ids == processor.encode(text)


@pytest.mark.parametrize("kind", KINDS)
def test_multilingual_ids(trained: dict[str, bytes], tmp_path: Path, kind: str) -> None:
    library, processor = both(tmp_path, trained[kind])
    different = {
        name
        for name, text in samples.MULTILINGUAL.items()
        if library.encode(text, add_special_tokens=False).ids != processor.encode(text)
    }
    # SentencePiece knows no special tokens in a text.
    assert different - {"special tokens"} == DIFFERENT.get(kind, set())


def test_hypothesis_text(trained: dict[str, bytes], tmp_path: Path) -> None:
    library, processor = both(tmp_path, trained["bpe"])
    likely = st.sampled_from([" ", "  ", "the", "▁", "\n", "é", "日", "🎉", "<0x41>", "aa", "ll"])

    @settings(max_examples=400, deadline=None)
    @given(st.one_of(st.text(max_size=60), st.lists(likely, max_size=20).map("".join)))
    def same(text: str) -> None:
        ids = processor.encode(text)
        assert library.encode(text, add_special_tokens=False).ids == ids
        if "\x00" not in text:
            assert library.decode(ids) == processor.decode(ids)

    same()


def test_a_special_token_takes_no_space_behind_it(
    trained: dict[str, bytes], tmp_path: Path
) -> None:
    library, processor = both(tmp_path, trained["bpe"])
    ids = library.encode("<s>the ball", add_special_tokens=False).ids
    without = room.read(samples.sentencepiece_folder(tmp_path, trained["bpe without prefix"]))
    assert without is not None
    assert ids[0] == processor.bos_id()
    assert library.decode(ids[1:]) == "the ball"
    assert processor.id_to_piece(ids[1]) != "▁the"
    samples.sentencepiece_folder(tmp_path, trained["bpe"], legacy=True)
    legacy = room.read(tmp_path)
    assert legacy is not None
    ids = tokenizers.Tokenizer.from_str(room.to_json(legacy)).encode("<s>the ball").ids
    assert ids == [processor.bos_id(), *processor.encode("the ball")]


IN_GGUF = [kind for kind in KINDS if "unigram" not in kind or "without bytes" in kind]


@pytest.mark.parametrize("kind", IN_GGUF)
def test_through_gguf_and_back(trained: dict[str, bytes], tmp_path: Path, kind: str) -> None:
    source = samples.sentencepiece_folder(tmp_path, trained[kind], add_bos_token=True)
    first = room.read(source)
    assert first is not None
    keys = room.to_gguf(first, {}, len(first.vocabulary.tokens))  # type: ignore[union-attr]
    second = room.from_gguf(keys)
    assert second is not None
    # llama.cpp puts the space behind special tokens too, whatever the source did.
    everywhere = replace(first.vocabulary, prefix_everywhere=True)  # type: ignore[type-var]
    assert second.vocabulary == everywhere
    (tmp_path / "out").mkdir()
    written = room.write_hf(second, tmp_path / "out")
    json_too = ["tokenizer.json"] if "unigram" in kind else []
    names = [*json_too, "tokenizer.model", "tokenizer_config.json"]
    assert [path.name for path in written] == names
    ours = sentencepiece.SentencePieceProcessor(model_file=str(written[-2]))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=trained[kind])
    for text in samples.TEXTS:
        assert ours.encode(text) == theirs.encode(text)
    third = room.read(tmp_path / "out")
    assert third is not None
    assert third.vocabulary == everywhere
    assert {name: third.special_ids[name] for name in ("bos", "eos")} == first.special_ids
    assert third.add["bos"] is True


def test_gguf_has_no_unigram_models_with_bytes(trained: dict[str, bytes], tmp_path: Path) -> None:
    first = room.read(samples.sentencepiece_folder(tmp_path, trained["unigram"]))
    assert first is not None
    with pytest.raises(ConfigurationError, match="unigram models with byte pieces"):
        room.to_gguf(first, {}, 1000)


def test_a_folder_is_written_as_it_was(trained: dict[str, bytes], tmp_path: Path) -> None:
    source = samples.sentencepiece_folder(tmp_path, trained["bpe"], odd=[1])
    tokenizer = room.read(source)
    assert tokenizer is not None
    (tmp_path / "out").mkdir()
    for path in room.write_hf(tokenizer, tmp_path / "out"):
        assert path.read_bytes() == (source / path.name).read_bytes()


def test_padding_and_added_tokens(trained: dict[str, bytes], tmp_path: Path) -> None:
    size = sentencepiece.SentencePieceProcessor(model_proto=trained["bpe"]).vocab_size()
    decoder = {
        str(size): {"content": "<|im_start|>", "special": True},
        str(size + 1): {"content": "plain▁one", "special": False},
    }
    folder = samples.sentencepiece_folder(tmp_path, trained["bpe"], added_tokens_decoder=decoder)
    tokenizer = room.read(folder)
    assert tokenizer is not None
    keys = room.to_gguf(tokenizer, {}, size + 4)
    tokens = keys["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert tokens[size:] == ["<|im_start|>", "plain one", f"[PAD{size + 2}]", f"[PAD{size + 3}]"]
    assert keys["tokenizer.ggml.token_type"].tolist()[size:] == [3, 4, 5, 5]  # type: ignore[attr-defined]
    assert keys["tokenizer.ggml.scores"].tolist()[size:] == [-1000.0, -1000.0, -10000.0, -10000.0]  # type: ignore[attr-defined]
    library = tokenizers.Tokenizer.from_str(room.to_json(tokenizer))
    assert library.encode("<|im_start|>the", add_special_tokens=False).ids[0] == size
    with pytest.raises(ConfigurationError, match="rows"):
        room.to_gguf(tokenizer, {}, size)


def test_end_tokens_come_from_every_configuration(
    trained: dict[str, bytes], tmp_path: Path
) -> None:
    folder = samples.sentencepiece_folder(tmp_path, trained["bpe"], add_bos_token=False)
    (folder / "config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": [2, 5]}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 7]}))
    tokenizer = room.read(folder)
    assert tokenizer is not None
    assert tokenizer.eos_token_ids == (5, 7, 2)
    assert (tokenizer.bos_token_id, tokenizer.add_bos) == (1, False)


@pytest.mark.parametrize(
    ("outer", "generation", "ends"),
    [
        ({}, {}, (7, 5)),
        ({"eos_token_id": None}, {"bos_token_id": 1}, (7, 5)),
        ({"eos_token_id": 2}, {}, (2,)),
        ({}, {"eos_token_id": [9, 3]}, (9, 3)),
        ({"eos_token_id": 2}, {"eos_token_id": [9]}, (2, 9)),
    ],
)
@pytest.mark.parametrize("table", ["text_config", "llm_config", "language_config"])
def test_end_tokens_of_the_table_of_a_language_model(
    table: str,
    outer: dict[str, Any],
    generation: dict[str, Any],
    ends: tuple[int, ...],
    trained: dict[str, bytes],
    tmp_path: Path,
) -> None:
    """Count them where nothing else says any."""
    folder = samples.sentencepiece_folder(tmp_path, trained["bpe"], add_bos_token=False)
    config = {**outer, table: {"eos_token_id": [7, 5], "pad_token_id": 4}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(generation))
    tokenizer = room.read(folder)
    assert tokenizer is not None
    assert (tokenizer.eos_token_ids, tokenizer.special_ids["pad"]) == (ends, 4)


def test_no_tokenizer_is_none(tmp_path: Path) -> None:
    assert room.read(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", '{"eos_token_id": -2}'),
        ("config.json", "[1]"),
        ("tokenizer_config.json", "{nonsense"),
        ("tokenizer_config.json", '{"a": 1, "a": 2}'),
        ("tokenizer_config.json", "[" * 100_000),
        (
            "tokenizer_config.json",
            f'{{"added_tokens_decoder": {{"{"9" * 5000}": {{"content": "q"}}}}}}',
        ),
        ("added_tokens.json", '{"x": 1000000000}'),
        ("added_tokens.json", '{"</s>": 499}'),
        ("added_tokens.json", '{"\\ud800": 499}'),
        ("tokenizer_config.json", '{"chat_template": "\\udfff"}'),
    ],
)
def test_malformed_configuration(
    trained: dict[str, bytes], tmp_path: Path, name: str, text: str
) -> None:
    folder = samples.sentencepiece_folder(tmp_path, trained["bpe"])
    (folder / name).write_text(text)
    with pytest.raises(MalformedFile):
        room.read(folder)


def test_damaged_models_are_refused_or_read(trained: dict[str, bytes], tmp_path: Path) -> None:
    good = trained["bpe"]

    @settings(max_examples=150, deadline=None)
    @given(st.integers(0, len(good) - 1), st.binary(max_size=4), st.integers(0, 8))
    def damaged(at: int, insert: bytes, skip: int) -> None:
        bad = good[:at] + insert + good[at + skip :]
        try:
            room.read(samples.sentencepiece_folder(tmp_path, bad))
        except (MalformedFile, ConfigurationError) as error:
            assert "tokenizer.model" in str(error)

    damaged()


def test_pieces_are_text(trained: dict[str, bytes], tmp_path: Path) -> None:
    bad = trained["bpe"].replace(b"<unk>", b"\xff\xffnk>")
    with pytest.raises(MalformedFile, match="1 pieces are not UTF-8"):
        room.read(samples.sentencepiece_folder(tmp_path, bad))


@pytest.mark.parametrize("options", [{"model_type": "char"}, {"model_type": "word"}])
def test_other_algorithms_are_named(tmp_path: Path, options: dict[str, str]) -> None:
    model = samples.train_sentencepiece(byte_fallback=False, **options)
    with pytest.raises(ConfigurationError, match="kind maxtool cannot use"):
        room.read(samples.sentencepiece_folder(tmp_path, model))


def test_pieces_beyond_the_library_are_refused(tmp_path: Path) -> None:
    from sentencepiece import sentencepiece_model_pb2 as schema

    proto = schema.ModelProto()
    proto.ParseFromString(samples.train_sentencepiece())
    proto.pieces.add(piece="q\u0394q", score=-1e4, type=1)
    tokenizer = room.read(samples.sentencepiece_folder(tmp_path, proto.SerializeToString()))
    assert tokenizer is not None
    with pytest.raises(ConfigurationError, match="not pieces"):
        room.to_json(tokenizer)


@pytest.mark.reference
@pytest.mark.parametrize("name", ["stories260K", "llama", "mistral"])
def test_keys_equal_llama_cpp(reference: Path, name: str) -> None:
    import gguf

    reader = gguf.GGUFReader(reference / name / f"{name}-f32.gguf")
    expected = {k: f for k, f in reader.fields.items() if k.startswith("tokenizer.")}
    config = json.loads((reference / name / "config.json").read_text())
    tokenizer = room.read(reference / name)
    assert tokenizer is not None
    keys = room.to_gguf(tokenizer, config, config["vocab_size"])
    assert list(keys) == list(expected)
    for key, field in expected.items():
        value = keys[key]
        plain = value.tolist() if hasattr(value, "tolist") else value
        assert plain == field.contents(), key


@pytest.mark.reference
@pytest.mark.parametrize("text", samples.TEXTS)
def test_reference_vocabulary(reference: Path, text: str) -> None:
    folder = reference / "stories260K"
    tokenizer = room.read(folder)
    assert tokenizer is not None
    library = tokenizers.Tokenizer.from_str(room.to_json(tokenizer))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    assert library.encode(text, add_special_tokens=False).ids == processor.encode(text)
    assert library.encode(text).ids == [1, *processor.encode(text)]


@pytest.mark.reference
def test_reference_gguf_vocabulary(reference: Path) -> None:
    """The vocabulary that llama.cpp wrote encodes as the tokenizer.model it came from."""
    import gguf

    folder = reference / "stories260K"
    fields = gguf.GGUFReader(folder / "stories260K-Q8_0.gguf").fields
    tokenizer = room.from_gguf({name: field.contents() for name, field in fields.items()})
    assert tokenizer is not None
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.add_bos) == (1, (2,), True)
    library = tokenizers.Tokenizer.from_str(room.to_json(tokenizer))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    for text in samples.TEXTS:
        assert library.encode(text, add_special_tokens=False).ids == processor.encode(text)


SOURCES: dict[str, tuple[dict[str, object], str | None]] = {
    "none": ({}, None),
    "a text": ({"tokenizer_config.json": {"chat_template": "a"}}, "a"),
    "of several": (
        {
            "tokenizer_config.json": {
                "chat_template": [
                    {"name": "tool_use", "template": "t"},
                    {"name": "default", "template": "d"},
                ]
            }
        },
        "d",
    ),
    "a file": ({"chat_template.jinja": "b"}, "b"),
    "a file goes first": (
        {"chat_template.jinja": "b", "tokenizer_config.json": {"chat_template": "a"}},
        "b",
    ),
    "an older file": ({"chat_template.json": {"chat_template": "c"}}, "c"),
    "no text": ({"tokenizer_config.json": {"chat_template": 3}}, None),
}


@pytest.mark.parametrize("case", SOURCES)
def test_where_a_chat_template_is_found(
    trained: dict[str, bytes], tmp_path: Path, case: str
) -> None:
    files, expected = SOURCES[case]
    samples.sentencepiece_folder(tmp_path, trained["bpe"])
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
    actual = room.read(tmp_path)
    assert actual is not None
    assert actual.chat_templates.get("default") == expected


def test_special_tokens_are_the_configuration_s(trained: dict[str, bytes], tmp_path: Path) -> None:
    folder = samples.sentencepiece_folder(
        tmp_path, trained["bpe"], bos_token=None, pad_token={"content": "<pad>"}
    )
    (folder / "special_tokens_map.json").write_text('{"unk_token": "?", "pad_token": "no"}')
    result = room.read(folder)
    assert result is not None
    assert result.special_tokens == {"eos_token": "</s>", "unk_token": "?", "pad_token": "<pad>"}


def test_tokens_added_beside_a_unigram_model(trained: dict[str, bytes], tmp_path: Path) -> None:
    size = sentencepiece.SentencePieceProcessor(model_proto=trained["unigram"]).vocab_size()
    decoder = {str(size): {"content": "<my tool>", "special": False}}
    folder = samples.sentencepiece_folder(
        tmp_path, trained["unigram"], added_tokens_decoder=decoder
    )
    tokenizer = room.read(folder)
    assert tokenizer is not None
    library = tokenizers.Tokenizer.from_str(room.to_json(tokenizer))
    assert size in library.encode("a <my tool> b", add_special_tokens=False).ids
