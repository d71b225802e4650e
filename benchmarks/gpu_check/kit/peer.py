"""The same shape in transformers with torch.compile and a static cache; prints one JSON object.

python peer.py SHAPE.json PROMPT TOKENS ROUNDS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache


def load(shape: Path) -> LlamaForCausalLM:
    config = LlamaConfig(**json.loads(shape.read_text()))
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        return LlamaForCausalLM(config).eval()


def timed(work) -> float:  # noqa: ANN001 - a function of nothing
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


@torch.inference_mode()
def measure(model: LlamaForCausalLM, prompt: int, tokens: int, rounds: int) -> dict[str, float]:
    """Tokens a second: of reading ``prompt`` tokens, and of writing ``tokens`` behind them."""
    config = model.config
    ids = torch.randint(0, config.vocab_size, (1, prompt), device="cuda")
    cache = StaticCache(config=config, max_cache_len=prompt + tokens + 8)
    read = torch.compile(model.forward)
    step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)

    def prefill() -> torch.Tensor:
        cache.reset()
        at = torch.arange(prompt, device="cuda")
        output = read(ids, past_key_values=cache, cache_position=at, logits_to_keep=1)
        return output.logits[:, -1:].argmax(-1)

    def decode(token: torch.Tensor) -> None:
        for index in range(tokens):
            at = torch.tensor([prompt + index], device="cuda")
            found = step(token.clone(), past_key_values=cache, cache_position=at)
            token = found.logits[:, -1:].argmax(-1).clone()

    for _ in range(2):
        decode(prefill())
    reading = median(timed(prefill) for _ in range(rounds))
    first = prefill()
    writing = median(timed(lambda: decode(first)) for _ in range(rounds))
    return {"prefill": prompt / reading, "decode": tokens / writing}


if __name__ == "__main__":
    made = measure(load(Path(sys.argv[1])), *map(int, sys.argv[2:]))
    print(json.dumps({**made, "torch": torch.__version__}))
