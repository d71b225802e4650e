"""What the scripts beside this file share: random weights, and recording of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

SEED = 3
SEQUENCE, PROMPT, CONTINUATION = 24, 8, 24
CLEAR_MARGIN = 1e-3


class Unclear(Exception):
    """Two tokens are nearly as likely: float rounding could change which one follows."""


def randomize(model: PreTrainedModel, norm: float = 1.0) -> None:
    """Weights that keep activations near unit size; norms, around ``norm``, and biases matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ("norm" in name or ".ln_" in name) and not name.endswith("bias"):
                parameter.normal_(norm, 0.25)
            elif parameter.dim() == 1:
                parameter.normal_(0.0, 0.3)
            else:
                parameter.normal_(0.0, 1.5 / parameter.shape[-1] ** 0.5)


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def load(folder: Path) -> PreTrainedModel:
    """The folder as transformers loads it, in float32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model: PreTrainedModel, ids: np.ndarray) -> np.ndarray:
    """Logits at every position, in one call."""
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy()


def greedy(model: PreTrainedModel, prompt: np.ndarray, count: int) -> np.ndarray:
    """The tokens after ``prompt``, computed with a cache; ``eos`` does not stop it.

    Raises:
        Unclear: If one of them is not the clear winner.
    """
    tokens, cache, ids = [], None, torch.from_numpy(prompt)
    for _ in range(count):
        with torch.no_grad():
            found = model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache, last = found.past_key_values, found.logits[0, -1]
        first, second = last.topk(2).values
        if first - second < CLEAR_MARGIN:
            raise Unclear(f"token {len(tokens)} leads by {first - second:.1e} only")
        ids = last.argmax()[None, None]
        tokens.append(int(ids))
    return np.array([tokens])


def record(
    folder: Path,
    *,
    seed: int = SEED,
    sequence: int = SEQUENCE,
    prompt: int = PROMPT,
    continuation: int = CONTINUATION,
) -> None:
    """Write expected.npz from the folder, loaded twice since a scaling may remember lengths.

    Raises:
        Unclear: If a greedy token is not the clear winner.
    """
    model = load(folder)
    vocabulary = model.config.get_text_config().vocab_size
    ids = np.random.default_rng(seed).integers(3, vocabulary, size=(1, sequence))
    np.savez_compressed(
        folder / "expected.npz",
        input_ids=ids,
        logits=logits(model, ids),
        greedy_prompt=ids[:, :prompt],
        greedy_tokens=greedy(load(folder), ids[:, :prompt], continuation),
    )
