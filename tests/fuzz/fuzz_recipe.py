"""Recipes, applied to a model when they are well-formed."""

from __future__ import annotations

from harness import ROOT, Target, put, run
from models import huggingface, read_by_recipe


def seeds() -> list[bytes]:
    return [(ROOT / "recipes" / "llama.toml").read_bytes()]


def read(data: bytes) -> None:
    read_by_recipe(huggingface(), str(put(("recipe.toml",), data)))


OPS = ["transpose", "split", "concat", "reshape", "permute", "cast", "rope_pairs_to_halves"]
WORDS = [*OPS, "op = ", "from = ", "tie = ", "when = ", "{layer}", "quotient", "inf", "nan"]
TARGET = Target(seeds, read, [word.encode() for word in WORDS])

if __name__ == "__main__":
    run(TARGET)
