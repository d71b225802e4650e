"""The trained model with rows of 256: its quantized files, in float64, beside llama.cpp itself."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from maxtool.evaluation.model_summary import summarize
from maxtool.evaluation.token_scores import joined, score
from maxtool.quantization.codec import dequantize
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.weights.checkpoint import open_checkpoint
from tests.parity import yardstick
from tests.parity.traced import TracedModel

PEER = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"}
# llama.cpp rounds activations to 8 bits in blocks of 32 or 256 before it multiplies them.
ROUNDING = 0.01


def test_the_files_have_every_encoding_that_llama_cpp_alone_writes() -> None:
    encodings = {name for row in yardstick.RECORDED["files"].values() for name in row["encodings"]}
    assert encodings >= PEER
    assert len(yardstick.STORED) == 4


def test_the_folder_is_small() -> None:
    sizes = {file.name: file.stat().st_size for file in yardstick.FOLDER.iterdir()}
    assert sizes.pop("model.safetensors") + sizes.pop("tokenizer.json") < 4_000_000
    assert sum(sizes.values()) < 4 << 20


def test_every_row_is_whole_blocks_of_256() -> None:
    checkpoint = open_checkpoint(yardstick.FOLDER)
    matrices = [tensor for tensor in checkpoint.tensors.values() if len(tensor.shape) > 1]
    assert len(matrices) == 15
    assert all(tensor.shape[-1] % 256 == 0 for tensor in matrices)


def test_the_tokenizer_is_that_of_the_sample() -> None:
    sample = yardstick.ROOT / "samples" / "fireside" / "tokenizer.json"
    assert (yardstick.FOLDER / "tokenizer.json").read_bytes() == sample.read_bytes()


def test_greedy_text_is_the_most_likely_one_and_ends_by_itself() -> None:
    tokenizer = Tokenizer.from_file(str(yardstick.FOLDER / "tokenizer.json"))
    ids = tokenizer.encode((yardstick.FOLDER / "greedy.txt").read_text(encoding="utf-8")).ids
    prompt = len(tokenizer.encode("Once upon a time").ids)
    end = json.loads((yardstick.FOLDER / "config.json").read_text())["eos_token_id"]
    logits = TracedModel(open_checkpoint(yardstick.FOLDER)).forward(np.array([ids]))
    assert logits[0, prompt - 1 :].argmax(-1).tolist() == [*ids[prompt:], end]


@pytest.mark.parametrize("name", yardstick.STORED)
def test_tensors_are_those_that_the_gguf_package_decodes(name: str) -> None:
    file = yardstick.FOLDER / f"{name}.gguf"
    checkpoint = open_checkpoint(file)
    tensors = gguf.GGUFReader(file).tensors
    counted = Counter(tensor.tensor_type.name for tensor in tensors)
    assert counted == yardstick.RECORDED["files"][name]["encodings"]
    for tensor in tensors:
        weight = checkpoint.read(tensor.name)
        if weight.quantization_encoding is None:
            continue
        assert weight.quantization_encoding is QuantizationEncoding[tensor.tensor_type.name]
        actual = dequantize(weight.data, weight.quantization_encoding, tensor=tensor.name)
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(actual, expected.reshape(actual.shape))


@pytest.mark.parametrize("name", yardstick.NAMES)
def test_logits_are_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    model = TracedModel(open_checkpoint(yardstick.checkpoint(name, tmp_path)))
    theirs = yardstick.logits(name).astype(np.float64)
    ours = model.forward(yardstick.prompt()[np.newaxis])[0, -len(theirs) :]
    error = np.linalg.norm(theirs - ours) / np.linalg.norm(ours)
    assert error < ROUNDING
    np.testing.assert_array_equal(ours.argmax(-1), theirs.argmax(-1))


def test_the_text_is_read_as_llama_cpp_reads_it() -> None:
    windows = yardstick.windows()
    np.testing.assert_array_equal(windows.ids[0, : len(yardstick.prompt())], yardstick.prompt())
    assert windows.count == yardstick.RECORDED["windows"]
    assert windows.tokens.size == yardstick.RECORDED["scored_tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("name", yardstick.NAMES)
def test_perplexity_is_that_of_llama_cpp(name: str, tmp_path: Path) -> None:
    model = TracedModel(open_checkpoint(yardstick.checkpoint(name, tmp_path)))
    windows = yardstick.windows()
    rows = [windows.scored(model.forward(ids[np.newaxis])[0]) for ids in windows.ids]
    scores = joined([score(r, r, t) for r, t in zip(rows, windows.tokens, strict=True)])
    expected, _ = yardstick.RECORDED["files"][name]["perplexity"]
    actual = summarize(scores, scores)
    assert actual.perplexity.value == pytest.approx(expected, rel=0.005)
