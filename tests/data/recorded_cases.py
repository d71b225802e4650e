"""What the scripts share that record models whose weights follow from their names."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

Shapes = dict[str, list[int]]


def quiet() -> None:
    """Let transformers say nothing, and compute the same on any number of cores."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def shapes_of(file: Path) -> Shapes:
    """The shapes in a file, by the names of tensors."""
    with safe_open(file, "np") as opened:
        return {key: list(opened.get_slice(key).get_shape()) for key in opened.keys()}  # noqa: SIM118


def filled(
    model: Any, fill: Callable[[Shapes], Mapping[str, Any]], maker: Any = None
) -> tuple[Any, dict[str, Any], Shapes]:
    """A model that is saved and loaded again with other weights; its configuration, and shapes.

    ``maker`` is the class that loads it, if that is another than its own.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save_pretrained(folder)
        file = folder / "model.safetensors"
        shapes = shapes_of(file)
        save_file(dict(fill(shapes)), file, {"format": "pt"})
        loaded = (maker or type(model)).from_pretrained(folder, attn_implementation="eager").eval()
        return loaded, json.loads((folder / "config.json").read_text()), shapes


def write(out: Path, texts: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write what is known of cases, as JSON, beside their outputs; and say how much it is."""
    bits = {
        name: np.frombuffer(json.dumps(each).encode(), np.uint8) for name, each in texts.items()
    }
    np.savez_compressed(out, **bits, **arrays)
    print(len(texts["cases"]), "cases,", out.stat().st_size, "bytes")
