"""Models of transformers in float64, which tell its own rounding from a mistake of ours.

Its code asks for float32 by name, in norms, routers, states and soft maxima; while one of these
models computes, the name is float64. Angles of positions are computed in float32 as it defines
them, since artifacts and GGUF files hold such tables too.

Importing this needs torch and transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

Loader = Callable[[Path, torch.dtype], torch.nn.Module]
ROTARY = "rotary_emb"
_NARROW, _WIDE = torch.float32, torch.float64
_CASTS = {_NARROW: torch.Tensor.float, _WIDE: torch.Tensor.double}


@contextmanager
def _float32_being(dtype: torch.dtype) -> Iterator[None]:
    """Let every name of float32 in torch be another type."""
    before = torch.float32
    _name(dtype)
    try:
        yield
    finally:
        _name(before)


def _name(dtype: torch.dtype) -> None:
    torch.float32 = torch.float = dtype
    torch.Tensor.float = _CASTS[dtype]
    torch.set_default_dtype(dtype)


@contextmanager
def wide_model(load: Loader, folder: Path) -> Iterator[torch.nn.Module]:
    """A model in float64, to be called inside.

    Args:
        load: Loads a folder in a type.
        folder: A checkpoint whose tensors are float32.
    """
    narrow = load(folder, _NARROW)
    copy = folder / "float64"
    copy.mkdir()
    (copy / "config.json").write_text((folder / "config.json").read_text())
    arrays = load_file(folder / "model.safetensors")
    widened = {name: array.astype(np.float64) for name, array in arrays.items()}
    save_file(widened, copy / "model.safetensors", {"format": "pt"})
    with _float32_being(_WIDE), torch.no_grad():
        model = load(copy, _WIDE).double()
        _keep_angles(model, narrow)
        yield model


def _keep_angles(model: torch.nn.Module, narrow: torch.nn.Module) -> None:
    """Have a model take its rotary tables from that in float32."""
    tables = dict(narrow.named_modules())
    for name, module in model.named_modules():
        if name.endswith(ROTARY):
            module.forward = _widened(tables[name])


def _widened(table: torch.nn.Module) -> Callable[..., tuple[torch.Tensor, ...]]:
    def forward(x: torch.Tensor, *given: Any, **named: Any) -> tuple[torch.Tensor, ...]:
        with _float32_being(_NARROW):
            found = table(x.to(_NARROW), *given, **named)
        return tuple(each.double() for each in found)

    return forward
