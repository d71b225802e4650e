"""Make ``samples/fireside``: train a small Llama on the stories of ``stories.py``.

Needs the ``peers`` extra (torch, transformers), which the product itself never imports. Everything
is seeded; on the machine it was made on the run repeats bit for bit, elsewhere float arithmetic may
differ in its last digits and with it the weights.

    python samples/train.py --output samples/fireside
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

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
STEPS = 2200
BATCH = 32
WARMUP = 100
PEAK_RATE = 4e-3
TOKENIZER_STORIES = 5000
HELD_OUT = 64
PROMPT = "Once upon a time"


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


def build_model(tokenizer: Tokenizer) -> LlamaForCausalLM:
    """A Llama of half a million parameters: tied head, three queries to a key."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=6,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.token_to_id(BOS),
            eos_token_id=tokenizer.token_to_id(EOS),
            dtype="float32",
        )
    )


def encode(tokenizer: Tokenizer, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels [story, token]; padding repeats ``EOS`` and is not learned."""
    end = tokenizer.token_to_id(EOS)
    rows = [torch.tensor([*encoding.ids, end]) for encoding in tokenizer.encode_batch(texts)]
    return pad_sequence(rows, True, end), pad_sequence(rows, True, -100)


def rate(step: int) -> float:
    """Linear warm-up, then half a cosine down to a hundredth, as a share of the peak."""
    done = (step - WARMUP) / (STEPS - WARMUP)
    return step / WARMUP if step < WARMUP else 0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2


def train(model: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    """Every story is seen once: the generator is the data set."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step + 1))
    source = stories(SEED + 1, STEPS * BATCH)
    held_out = encode(tokenizer, list(stories(SEED + 2, HELD_OUT)))
    began = time.monotonic()
    for step in range(STEPS):
        ids, labels = encode(tokenizer, [next(source) for _ in range(BATCH)])
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            report(model, held_out, step + 1, time.monotonic() - began)


def report(
    model: LlamaForCausalLM, held_out: tuple[torch.Tensor, torch.Tensor], step: int, seconds: float
) -> None:
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
    parser.add_argument("--output", type=Path, required=True, help="folder to write the model to")
    folder = parser.parse_args().output
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    tokenizer = train_tokenizer()
    model = build_model(tokenizer)
    train(model, tokenizer)
    save(model, tokenizer, folder)
    loaded = LlamaForCausalLM.from_pretrained(folder)
    text = greedy(loaded, tokenizer, PROMPT)
    (folder / "greedy.txt").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
