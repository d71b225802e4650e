from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

DATA = Path(__file__).resolve().parents[1] / "data"
WHOLE = DATA / "recipes" / "whole.toml"

Edit = Callable[..., Path]


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    """Copies a tiny checkpoint, with keys of its config.json and tensors replaced or removed."""

    def edit(
        name: str = "tiny-llama",
        config: dict[str, Any] | None = None,
        tensors: dict[str, np.ndarray | None] | None = None,
    ) -> Path:
        folder = tmp_path / name
        shutil.copytree(DATA / name, folder)
        file = folder / "config.json"
        content = json.loads(file.read_text()) | (config or {})
        file.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))
        if tensors:
            weights = load_file(folder / "model.safetensors") | tensors
            kept = {k: v for k, v in weights.items() if v is not None}
            save_file(kept, folder / "model.safetensors")
        return folder

    return edit


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a recipe that inherits nothing, with pieces of its text replaced."""

    def write(*replacements: tuple[str, str]) -> Path:
        text = WHOLE.read_text()
        for old, new in replacements:
            assert old in text, old
            text = text.replace(old, new)
        file = tmp_path / "changed.toml"
        file.write_text(text)
        return file

    return write
