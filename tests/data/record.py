"""Make the tiny checkpoints beside this script, and record what transformers computes from them.

Needs the ``peers`` extra (torch, transformers). Weights are random with a fixed seed; the
tokenizers are trained on the stories of ``samples/stories.py``, which are our own text.

    python tests/data/record.py
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
import torch
from recording import SEED, randomize, record, write_json
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "samples"))

from stories import stories  # noqa: E402 - found only after the line above

COMMON = {
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Tiny:
    """One checkpoint: how it is built, stored and given a tokenizer."""

    build: Callable[[], PreTrainedModel]
    dtype: torch.dtype
    tokenizer: Callable[[Path], None]
    older: bool = False


def llama() -> PreTrainedModel:
    """Sizes that no tile divides, and heads wider than hidden_size / heads."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=97,
            hidden_size=40,
            intermediate_size=100,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
            tie_word_embeddings=False,
            **COMMON,
        )
    )


def llama_tied() -> PreTrainedModel:
    """Tied head, biases everywhere, as many key heads as query heads, linear rope scaling."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=300,
            hidden_size=32,
            intermediate_size=72,
            num_attention_heads=4,
            num_key_value_heads=4,
            rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            **COMMON,
        )
    )


def mistral() -> PreTrainedModel:
    """A sliding window that the recorded sequence outgrows."""
    return MistralForCausalLM(
        MistralConfig(
            vocab_size=97,
            hidden_size=32,
            intermediate_size=96,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=8,
            sliding_window=7,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=False,
            **COMMON,
        )
    )


def sentencepiece_tokenizer(folder: Path) -> None:
    """A SentencePiece ``tokenizer.model`` of 97 pieces, with the usual Llama settings."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines(),
        model_writer=model,
        model_type="bpe",
        vocab_size=97,
        character_coverage=1.0,
        normalization_rule_name="identity",
        num_threads=1,
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    settings = {
        "tokenizer_class": "LlamaTokenizer",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "add_bos_token": True,
        "add_eos_token": False,
        "legacy": False,
    }
    write_json(folder / "tokenizer_config.json", settings)


def byte_level_tokenizer(folder: Path) -> None:
    """A ``tokenizer.json``: byte-level BPE with GPT-2's pre-tokenizer, 300 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|pad|>", "<|begin_of_text|>", "<|end_of_text|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 1)]
    )
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|begin_of_text|>",
        "eos_token": "<|end_of_text|>",
        "pad_token": "<|pad|>",
        "model_max_length": 64,
    }
    write_json(folder / "tokenizer_config.json", settings)


def lines() -> Iterator[str]:
    """The text the tokenizers learn from, a paragraph at a time."""
    return (line for text in stories(SEED, 400) for line in text.splitlines())


def older_spelling(path: Path) -> None:
    """Rewrite config.json in the keys of transformers 4, which most checkpoints still use."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.44.2"
    write_json(path, dict(sorted(config.items())))


CHECKPOINTS = {
    "tiny-llama": Tiny(llama, torch.float32, sentencepiece_tokenizer),
    "tiny-llama-tied": Tiny(llama_tied, torch.bfloat16, byte_level_tokenizer, older=True),
    "tiny-mistral": Tiny(mistral, torch.float32, sentencepiece_tokenizer),
}


def main() -> None:
    """Make every checkpoint anew, then record it."""
    torch.set_num_threads(1)
    for name, tiny in CHECKPOINTS.items():
        torch.manual_seed(SEED)
        model = tiny.build()
        randomize(model)
        model.to(tiny.dtype).save_pretrained(HERE / name)
        (HERE / name / "generation_config.json").unlink(missing_ok=True)
        tiny.tokenizer(HERE / name)
        if tiny.older:
            older_spelling(HERE / name / "config.json")
        record(HERE / name)
        print(name)


if __name__ == "__main__":
    main()
