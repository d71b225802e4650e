"""llama.cpp's own figures for quantized files of ``fireside-256``: a yardstick for kernels.

Each name of ``NAMES`` is a type of llama.cpp's; ``data/record_llama_cpp.py`` says how the figures
were made.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.evaluation.windows import Windows, cut

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "data" / "fireside-256"
RECORDED: dict[str, Any] = json.loads((FOLDER / "llama_cpp.json").read_text(encoding="utf-8"))
NAMES = tuple(RECORDED["files"])
REFERENCE = "BF16"  # what llama.cpp's divergences are from; of it, only the error says something
STORED = tuple(name for name in NAMES if (FOLDER / f"{name}.gguf").is_file())


def checkpoint(name: str, scratch: Path) -> Path:
    """The file of a type; of one that maxtool writes, a new one in ``scratch``."""
    if name in STORED:
        return FOLDER / f"{name}.gguf"
    file = scratch / f"{name}.gguf"
    how = ["--dtype", "bfloat16"] if name == "BF16" else ["--quantize", name, "--pure"]
    done = CliRunner().invoke(app, ["convert", str(FOLDER), "-o", str(file), *how, "--force"])
    assert done.exit_code == 0, done.output
    return file


def prompt() -> np.ndarray[Any, Any]:
    """Token ids, of the last of which the logits of each file were recorded."""
    with np.load(FOLDER / "llama_cpp.npz") as arrays:
        return np.array(arrays["input_ids"], np.int64)


def logits(name: str) -> np.ndarray[Any, Any]:
    """llama.cpp's logits behind the last tokens of the prompt."""
    with np.load(FOLDER / "llama_cpp.npz") as arrays:
        return np.array(arrays[name])


def text() -> str:
    """The text of the recorded perplexities, on which the model was not trained."""
    samples = str(ROOT / "samples")
    sys.path.insert(0, samples)
    try:
        from stories import stories  # type: ignore[import-not-found]
    finally:
        sys.path.remove(samples)
    about = RECORDED["text"]
    return "\n\n".join(stories(about["seed"], about["stories"]))


@cache
def windows() -> Windows:
    """The windows of the text, as maxtool cuts it."""
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    ids = np.array(tokenizer.encode(text()).ids, np.int64)
    return cut(ids, RECORDED["text"]["context"], int(ids[0]))
