"""Texts and trained tokenizers that the tests of this folder share."""
# ruff: noqa: RUF001 - the samples are in many scripts on purpose

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import decoders, models, trainers

TEXTS = [
    "Once upon a time, there was a little girl named Lily.",
    "  leading and trailing  ",
    "",
    " ",
    "   ",
    "a",
    "def f(x):\n\tif x:\n        return x ** 2  # comment\n\n\n",
    "Ünïcödé, naïve café, e\u0301 combining",
    "Привет, мир! Γειά σου Κόσμε",
    "日本語のテキスト、你好世界，안녕하세요",
    "שלום עולם مرحبا بالعالم हिन्दी",
    "🎉🎊👩‍👩‍👧‍👦 flags 🇩🇪🇫🇷",
    "▁ already visible ▁▁ spaces",
    "tabs\tand\r\nline ends\u00a0nbsp\u2003em\u200bzero",
    "1234567890 3.14159 1,000,000",
    "it's we're I'LL they'd THEY'VE",
    "<0x0A> literal bytes",
    "null \x00 and \x7f control \x1b[31m",
    "!!!???...;;;---___+++===",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "x" + " " * 37 + "y",
]

DATA = Path(__file__).parents[1] / "data"
MULTILINGUAL: dict[str, str] = json.loads((DATA / "multilingual.json").read_text())


def corpus() -> list[str]:
    """Deterministic sentences that make a vocabulary worth having."""
    rng = random.Random(7)
    words = (
        "the",
        "a",
        "little",
        "girl",
        "boy",
        "red",
        "ball",
        "park",
        "day",
        "time",
        "once",
        "upon",
        "was",
        "and",
        "to",
        "in",
        "play",
        "said",
    )
    lines = [" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(400)]
    code = [
        "    return x\n",
        "def f(a, b):",
        "        if a == b:",
        "the  double  space",
        "1 22 333",
    ]
    return [*lines, *code * 20, *[text for text in TEXTS if text.strip() and "\x00" not in text]]


def train_sentencepiece(**options: Any) -> bytes:
    """A small SentencePiece model; ``options`` override the trainer's."""
    out = io.BytesIO()
    defaults: dict[str, Any] = {
        "vocab_size": 500,
        "model_type": "bpe",
        "byte_fallback": True,
        "character_coverage": 0.98,
        "add_dummy_prefix": True,
        "remove_extra_whitespaces": False,
        "normalization_rule_name": "identity",
        "minloglevel": 2,
        "hard_vocab_limit": False,
        "num_threads": 1,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=out, **{**defaults, **options}
    )
    return out.getvalue()


def sentencepiece_folder(folder: Path, model: bytes, **config: object) -> Path:
    """A Hugging Face folder with a ``tokenizer.model``."""
    (folder / "tokenizer.model").write_bytes(model)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def train_byte_level(
    pre_tokenizer: Any,
    normalizer: Any = None,
    *,
    ignore_merges: bool = False,
) -> tokenizers.Tokenizer:
    """A small byte-level BPE tokenizer with a special and a plain added token."""
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>"],
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_tokens([tokenizers.AddedToken("<tool>", normalized=False)])
    return tokenizer
