"""The sample model: its shipped greedy text is what its graph finds most likely."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from maxtool.weights.checkpoint import open_checkpoint
from tests.parity.traced import TracedModel

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "fireside"
PROMPT = "Once upon a time"


def test_greedy_text_is_the_most_likely_one_and_ends_by_itself() -> None:
    tokenizer = Tokenizer.from_file(str(SAMPLE / "tokenizer.json"))
    text = (SAMPLE / "greedy.txt").read_text(encoding="utf-8")
    ids = tokenizer.encode(text).ids
    prompt = tokenizer.encode(PROMPT).ids
    assert ids[: len(prompt)] == prompt
    checkpoint = open_checkpoint(SAMPLE)
    assert checkpoint.config is not None
    logits = TracedModel(checkpoint).forward(np.array([ids]))
    most_likely = logits[0, len(prompt) - 1 :].argmax(-1)
    assert most_likely.tolist() == [*ids[len(prompt) :], checkpoint.config["eos_token_id"]]


def test_the_sample_is_small() -> None:
    assert sum(file.stat().st_size for file in SAMPLE.iterdir()) < 2_200_000
