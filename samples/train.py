"""Train a small Llama on the stories of ``stories.py``: ``fireside``, or a larger one for tests.

Needs the ``peers`` extra (torch, transformers), which the product itself never imports. Everything
is seeded; on the machine it was made on the run repeats bit for bit, elsewhere float arithmetic may
differ in its last digits and with it the weights.

    python samples/train.py --output samples/fireside
    python samples/train.py --model fireside-256 --output tests/data/fireside-256
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from stories import stories
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 20261120
THREADS = 2
CONTEXT = 512
VOCABULARY = 1024
BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
WARMUP = 100
TOKENIZER_STORIES = 5000
HELD_OUT = 64
PROMPT = "Once upon a time"

Batch: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A model to train: its sizes, and how much it sees of the stories."""

    hidden: int
    feed_forward: int
    layers: int
    heads: int
    key_heads: int
    steps: int
    batch: int  # stories in a step; with ``packed``, rows of as many as fill the context
    packed: bool  # so that it knows every position, and what follows the end of a story
    peak_rate: float
    dtype: torch.dtype  # of the weights as they are saved; they are trained in float32


SAMPLES = {
    "fireside": Sample(
        hidden=96,
        feed_forward=256,
        layers=4,
        heads=6,
        key_heads=2,
        steps=2200,
        batch=32,
        packed=False,
        peak_rate=4e-3,
        dtype=torch.float32,
    ),
    # Every row of every matrix is a multiple of 256, the block of the K and IQ4 encodings.
    "fireside-256": Sample(
        hidden=256,
        feed_forward=768,
        layers=2,
        heads=4,
        key_heads=2,
        steps=450,
        batch=8,
        packed=True,
        peak_rate=3e-3,
        dtype=torch.bfloat16,
    ),
}


def train_tokenizer() -> Tokenizer:
    """Byte-level BPE with GPT-2's pre-tokenizer; a text begins with ``BOS``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(stories(SEED, TOKENIZER_STORIES), trainer)
    begin = (BOS, tokenizer.token_to_id(BOS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[begin]
    )
    return tokenizer


def build_model(sample: Sample, tokenizer: Tokenizer) -> LlamaForCausalLM:
    """A Llama with a tied head."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=sample.hidden,
            intermediate_size=sample.feed_forward,
            num_hidden_layers=sample.layers,
            num_attention_heads=sample.heads,
            num_key_value_heads=sample.key_heads,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.token_to_id(BOS),
            eos_token_id=tokenizer.token_to_id(EOS),
            dtype="float32",
        )
    )


def encode(tokenizer: Tokenizer, texts: list[str]) -> Batch:
    """Token ids and labels [story, token]; padding repeats ``EOS`` and is not learned."""
    end = tokenizer.token_to_id(EOS)
    rows = [torch.tensor([*encoding.ids, end]) for encoding in tokenizer.encode_batch(texts)]
    return pad_sequence(rows, True, end), pad_sequence(rows, True, -100)


def pack(tokenizer: Tokenizer, source: Iterator[str], count: int) -> Batch:
    """Token ids and labels [row, token]; each row is full of stories, the last one cut.

    In every second row they are texts of their own, in the others one text, with a blank line
    between them.
    """
    ends = [tokenizer.token_to_id(EOS)], tokenizer.encode("\n\n", add_special_tokens=False).ids
    begin = [tokenizer.token_to_id(BOS)], []
    rows = []
    for index in range(count):
        row: list[int] = []
        while len(row) < CONTEXT:
            text = tokenizer.encode(next(source), add_special_tokens=False).ids
            row += [*begin[index % 2 if row else 0], *text, *ends[index % 2]]
        rows.append(row[:CONTEXT])
    ids = torch.tensor(rows)
    return ids, ids


def batches(sample: Sample, tokenizer: Tokenizer) -> Iterator[Batch]:
    """Yield the rows of each step; every story is seen once: the generator is the data set."""
    texts = stories(SEED + 1, sample.steps * sample.batch * (CONTEXT if sample.packed else 1))
    for _ in range(sample.steps):
        if sample.packed:
            yield pack(tokenizer, texts, sample.batch)
        else:
            yield encode(tokenizer, [next(texts) for _ in range(sample.batch)])


def rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine down to a hundredth, as a share of the peak."""
    done = (step - WARMUP) / (steps - WARMUP)
    return step / WARMUP if step < WARMUP else 0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2


def train(model: LlamaForCausalLM, sample: Sample, tokenizer: Tokenizer) -> None:
    """Learn what the sample says, and report every hundred steps."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=sample.peak_rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate(step + 1, sample.steps)
    )
    held_out = encode(tokenizer, list(stories(SEED + 2, HELD_OUT)))
    began = time.monotonic()
    for step, (ids, labels) in enumerate(batches(sample, tokenizer)):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            report(model, held_out, step + 1, time.monotonic() - began)


def report(model: LlamaForCausalLM, held_out: Batch, step: int, seconds: float) -> None:
    """Report on stderr how the model does on stories that it was not trained on."""
    with torch.no_grad():
        loss = model(input_ids=held_out[0], labels=held_out[1]).loss
    print(f"step {step}  held-out loss {loss:.4f} nats a token  {seconds:.0f} s", file=sys.stderr)


def greedy(model: LlamaForCausalLM, tokenizer: Tokenizer, prompt: str) -> str:
    """The prompt and its most likely continuation, up to ``EOS`` or the end of the context."""
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    with torch.no_grad():
        result = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=CONTEXT - ids.shape[1],
            pad_token_id=tokenizer.token_to_id(EOS),
        )
    return tokenizer.decode(result[0].tolist())


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the Hugging Face folder."""
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, model_max_length=CONTEXT
    ).save_pretrained(folder)


def main() -> None:
    """Train, save, and record the greedy continuation of the saved model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SAMPLES, default="fireside", help="what to train")
    parser.add_argument("--output", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--threads", type=int, default=THREADS, help="how many torch uses")
    arguments = parser.parse_args()
    sample, folder = SAMPLES[arguments.model], arguments.output
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(SEED)
    tokenizer = train_tokenizer()
    model = build_model(sample, tokenizer)
    train(model, sample, tokenizer)
    save(model.to(sample.dtype), tokenizer, folder)
    loaded = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    text = greedy(loaded, tokenizer, PROMPT)
    (folder / "greedy.txt").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
