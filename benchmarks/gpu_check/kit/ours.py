"""Speed of one artifact on the card, with random weights; prints one JSON object.

python ours.py ARTIFACT PROMPT TOKENS ROUNDS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from random_weights import generate


def load(folder: Path) -> tuple[Any, float]:
    """The model, and the seconds that loading took."""
    sys.path.insert(0, str(folder))
    import run

    began = time.perf_counter()
    return run.load(check=False), time.perf_counter() - began


def prefill_rate(model: Any, ids: list[int], rounds: int) -> float:  # noqa: ANN401
    """Tokens read in a second, from arrays on the host to logits on the host."""
    arrays = {"input_ids": [ids], "position": np.zeros(1, np.int32)}
    state = model.new_state(batch=1)

    def once() -> float:
        began = time.perf_counter()
        model.run("prefill", arrays, state)
        return time.perf_counter() - began

    once()
    return len(ids) / median(once() for _ in range(rounds))


def decode_rate(model: Any, ids: list[int], tokens: int, rounds: int) -> float:  # noqa: ANN401
    """Tokens written in a second behind a prompt, the first one not counted."""

    def once() -> float:
        stream = model.generate(ids, max_tokens=tokens + 1)
        next(stream)
        began = time.perf_counter()
        count = sum(1 for _ in stream)
        if count != tokens:
            raise SystemExit(f"the model wrote {count} tokens instead of {tokens}")
        return time.perf_counter() - began

    once()
    return tokens / median(once() for _ in range(rounds))


def main(folder: Path, prompt: int, tokens: int, rounds: int) -> None:
    nbytes = generate(folder)
    model, seconds = load(folder)
    vocabulary = model.manifest.limits["input_ids"][1] + 1
    ids = np.random.default_rng(0).integers(0, vocabulary, prompt).tolist()
    results = {
        "weight_bytes": nbytes,
        "load_seconds": seconds,
        "prefill": prefill_rate(model, ids, rounds),
        "decode": decode_rate(model, ids[: prompt // 4], tokens, rounds),
    }
    (folder / model.manifest.root["weights"]["file"]).unlink()
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
