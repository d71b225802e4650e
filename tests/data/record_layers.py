"""Record what PyTorch computes for convolutions, attention and rotary embedding: ``layers.npz``.

Run it where torch and transformers are installed: ``python tests/data/record_layers.py``. Keys are
``CASE/NAME``; every array is float32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as rotate_pairs
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as rotate_halves

# name: dimensions, length of each, channels in and out, and the options of nn.Conv1d or nn.Conv2d
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, int], dict[str, object]]] = {
    "line": ((9,), (4, 6), {"kernel_size": 3}),
    "line_strided": ((10,), (4, 6), {"kernel_size": 3, "stride": 2, "padding": 1, "groups": 2}),
    "line_dilated": ((11,), (2, 3), {"kernel_size": 2, "dilation": 3, "bias": False}),
    "image": ((5, 6), (3, 4), {"kernel_size": (3, 2)}),
    "image_strided": ((7, 6), (4, 4), {"kernel_size": 3, "stride": (2, 1), "padding": (1, 2)}),
    "image_dilated": ((8, 7), (2, 4), {"kernel_size": 2, "dilation": (3, 2), "groups": 2}),
    "image_depthwise": ((5, 5), (6, 6), {"kernel_size": 3, "padding": 1, "groups": 6}),
}
HIDDEN, HEADS, LENGTH = 12, 3, 5


def convolutions() -> dict[str, torch.Tensor]:
    found = {}
    for name, (sizes, (inner, outer), options) in CONVOLUTIONS.items():
        layer = (nn.Conv1d if len(sizes) == 1 else nn.Conv2d)(inner, outer, **options)
        x = torch.randn(2, inner, *sizes)
        found |= {f"{name}/x": x, f"{name}/y": layer(x)}
        found |= {f"{name}/{key}": value for key, value in layer.named_parameters()}
    return found


def attention() -> dict[str, torch.Tensor]:
    found = {}
    layer = nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True)
    nn.init.normal_(layer.in_proj_bias)
    nn.init.normal_(layer.out_proj.bias)
    x = torch.randn(2, LENGTH, HIDDEN)
    hidden = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
    found |= {f"attention/{key}": value for key, value in layer.named_parameters()}
    found["attention/x"] = x
    found["attention/y"] = layer(x, x, x)[0]
    found["attention/causal"] = layer(x, x, x, attn_mask=hidden)[0]
    return found


def rotary() -> dict[str, torch.Tensor]:
    x = torch.randn(2, LENGTH, HEADS, 8)
    angles = torch.outer(torch.arange(3, 3 + LENGTH).float(), 100.0 ** -(torch.arange(4) / 4))
    cos, sin = angles.cos(), angles.sin()
    halves = [torch.cat([one, one], -1)[None] for one in (cos, sin)]
    found = {"rotary/x": x, "rotary/interleaved": rotate_pairs(x, sin[None], cos[None])}
    found["rotary/halves"] = rotate_halves(x, x, *halves, unsqueeze_dim=2)[0]
    return found


def main() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        found = convolutions() | attention() | rotary()
    arrays = {name: value.detach().numpy() for name, value in found.items()}
    np.savez_compressed(Path(__file__).with_name("layers.npz"), **arrays)


if __name__ == "__main__":
    main()
