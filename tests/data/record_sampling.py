"""Record the probabilities that transformers draws tokens from, for random logits and options.

Needs the ``peers`` extra (torch, transformers).

    python tests/data/record_sampling.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent
VOCAB, CASES = 12, 80


def options(rng: np.random.Generator) -> dict[str, Any]:
    """Each option in two cases of three, among them values that change nothing or leave one."""
    ranges: dict[str, list[Any]] = {
        "temperature": [0.3, 0.7, 1.5],
        "top_k": [1, 3, 6, VOCAB, 50],
        "top_p": [0.05, 0.5, 0.9, 1.0],
        "min_p": [0.0, 0.05, 0.4, 1.0],
        "repetition_penalty": [0.8, 1.2, 3.0],
    }
    return {
        name: rng.choice(values).item() for name, values in ranges.items() if rng.random() < 0.67
    }


def main() -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = LlamaConfig(vocab_size=VOCAB, num_attention_heads=1, num_key_value_heads=1, **sizes)
    model = LlamaForCausalLM(config)
    rng = np.random.default_rng(11)
    cases = []
    for _ in range(CASES):
        logits = np.round(rng.normal(scale=2, size=VOCAB), 1).astype(np.float32)  # so that some tie
        before = rng.integers(0, VOCAB, 5).tolist()
        given = options(rng)
        defaults = {"top_k": 0, "top_p": 1.0, "temperature": 1.0}
        generation = GenerationConfig(do_sample=True, **{**defaults, **given})
        processors = model._get_logits_processor(
            generation, input_ids_seq_length=5, device="cpu", logits_processor=[]
        )
        scores = processors(torch.tensor([before]), torch.tensor(logits)[None])
        shares = torch.softmax(scores.double(), -1)[0].tolist()
        cases.append(
            {"logits": logits.tolist(), "before": before, "options": given, "shares": shares}
        )
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "sampling.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
