"""Unigram vocabularies of a tokenizer.json go through GGUF, with the ids of the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as schema
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from maxtool import tokenizer as room
from maxtool.errors import MalformedFile
from maxtool.tokenizer.vocabulary import SentencePiece, TokenType
from tests.tokenizer import tokenizer_samples as samples

# The one space that XLM-RoBERTa's map of characters leaves as it is: the library cuts at it, and
# SentencePiece does not.
NEXT_LINE = "\x85"
SAMPLES = [*samples.TEXTS, *samples.MULTILINGUAL.values(), "a<mask>b </s> c", "\ta\n\n b \u2028"]
TEXTS = [text for text in SAMPLES if NEXT_LINE not in text]
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>"]
SPECIAL = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>"}


@pytest.fixture(scope="module")
def model() -> Any:
    """SentencePiece's own model, as XLM-RoBERTa's are trained."""
    made = schema.ModelProto()
    made.ParseFromString(
        samples.train_sentencepiece(
            model_type="unigram",
            byte_fallback=False,
            vocab_size=300,
            normalization_rule_name="nmt_nfkc",
            remove_extra_whitespaces=True,
        )
    )
    return made


def xlm_roberta(model: Any) -> tokenizers.Tokenizer:
    """The library's form of it, as transformers makes it."""
    pieces = [(name, 0.0) for name in FAIRSEQ]
    pieces += [(piece.piece, piece.score) for piece in model.pieces[3:]] + [("<mask>", 0.0)]
    result = tokenizers.Tokenizer(models.Unigram(pieces, 3, byte_fallback=False))
    result.decoder = decoders.Metaspace()
    result.add_special_tokens(FAIRSEQ)
    result.add_special_tokens([AddedToken("<mask>", lstrip=False)])
    result.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)]
    )
    return result


def by_words(model: Any) -> tokenizers.Tokenizer:
    """The form that is published with XLM-RoBERTa, and that transformers 5 makes."""
    result = xlm_roberta(model)
    result.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
    result.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    return result


def by_spaces(model: Any) -> tokenizers.Tokenizer:
    """The form that transformers 4 makes of a SentencePiece model."""
    result = xlm_roberta(model)
    result.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(Regex(" {2,}"), "▁"),
        ]
    )
    result.pre_tokenizer = pre_tokenizers.Metaspace()
    return result


FORMS = {"words": by_words, "spaces": by_spaces}


def saved(original: tokenizers.Tokenizer, folder: Path) -> Path:
    original.save(str(folder / "tokenizer.json"))
    config = {f"{name}_token": token for name, token in SPECIAL.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def read(folder: Path) -> room.Tokenizer:
    result = room.read(folder)
    assert result is not None
    return result


def through_gguf(tokenizer: room.Tokenizer, rows: int) -> tokenizers.Tokenizer:
    keys = room.to_gguf(tokenizer, {}, rows)
    assert keys["tokenizer.ggml.model"] == "t5"
    assert keys["tokenizer.ggml.add_sep_token"] is True
    back = room.from_gguf(keys)
    assert back is not None
    return tokenizers.Tokenizer.from_str(room.to_json(back))


@pytest.mark.parametrize("form", FORMS)
def test_through_gguf(model: Any, tmp_path: Path, form: str) -> None:
    original = FORMS[form](model)
    ours = read(saved(original, tmp_path))
    library = through_gguf(ours, original.get_vocab_size() + 2)
    any_character = st.characters(codec="utf-8", exclude_characters=NEXT_LINE)
    likely = st.sampled_from([" ", "  ", "the", "▁", "\n", "é", "日", "ﬁ", "\u00a0", "ll", "<s>"])

    @settings(max_examples=200, deadline=None)
    @given(
        st.one_of(st.text(any_character, max_size=60), st.lists(likely, max_size=20).map("".join))
    )
    def same(text: str) -> None:
        assert library.encode(text).ids == original.encode(text).ids

    same()
    for text in TEXTS:
        assert library.encode(text).ids == original.encode(text).ids, text
    assert library.encode(*TEXTS[:2]).ids == original.encode(*TEXTS[:2]).ids


def test_types_are_those_of_llama_cpp(model: Any, tmp_path: Path) -> None:
    original = by_words(model)
    original.add_tokens(["<more>"])
    vocabulary = read(saved(original, tmp_path)).vocabulary
    assert isinstance(vocabulary, SentencePiece)
    control, unknown = TokenType.CONTROL, TokenType.UNKNOWN
    assert vocabulary.types[:4] == (control, control, control, unknown)
    assert vocabulary.types[-2:] == (control, TokenType.USER_DEFINED)
    scores = np.float32([piece.score for piece in model.pieces[3:]])
    np.testing.assert_array_equal(np.float32(vocabulary.scores[4:-2]), scores)


@pytest.mark.parametrize("tokenizer_class", [None, "XLMRobertaTokenizer"])
def test_the_model_of_sentencepiece_alone(
    model: Any, tmp_path: Path, tokenizer_class: str | None
) -> None:
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model.SerializeToString())
    config = {} if tokenizer_class is None else {"tokenizer_class": tokenizer_class}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours, original = read(tmp_path), by_words(model)
    library = tokenizers.Tokenizer.from_str(room.to_json(ours))
    for text in TEXTS:
        assert library.encode(text).ids == original.encode(text).ids, text
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    text = samples.TEXTS[0]
    assert library.encode(text).tokens[1:-1] == processor.encode(text, out_type=str)
    through_gguf(ours, original.get_vocab_size())


def test_a_model_with_ids_of_another_class_is_left_alone(model: Any, tmp_path: Path) -> None:
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model.SerializeToString())
    config = {"tokenizer_class": "CamembertTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert room.read(tmp_path) is None


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (None, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit()])),
        (None, pre_tokenizers.Metaspace()),
        (normalizers.Lowercase(), pre_tokenizers.Metaspace()),
        (normalizers.Strip(), pre_tokenizers.Metaspace()),
    ],
)
def test_other_steps_have_no_form_in_gguf(
    model: Any, tmp_path: Path, normalizer: Any, pre_tokenizer: Any
) -> None:
    original = xlm_roberta(model)
    if normalizer is not None:
        original.normalizer = normalizer
    original.pre_tokenizer = pre_tokenizer
    assert read(saved(original, tmp_path)).vocabulary is None


def test_a_map_that_is_no_base64(model: Any, tmp_path: Path) -> None:
    root = json.loads(by_words(model).to_str())
    root["normalizer"]["precompiled_charsmap"] = "not base64"
    (tmp_path / "tokenizer.json").write_text(json.dumps(root))
    with pytest.raises(MalformedFile):
        room.read(tmp_path)
