"""Write tests/data/quantized/bitnet-*: a tiny Llama with weights of transformers' BitNet modules.

Needs the ``peers`` extra and accelerate, and no library that quantizes.
``decoded.json`` has type, shape and SHA-256 of what each module multiplies its input by.

    TORCH_COMPILE_DISABLE=1 python -m tests.data.record_bitnet
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations import bitnet

from tests.data.recording import SEED, randomize

FOLDER = Path(__file__).parent / "quantized"
SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def ternary(name: str, dtype: torch.dtype, linear_class: str) -> None:
    """Pack signs of weights, or 0 for small ones, and load the folder again."""
    torch.manual_seed(SEED)
    made = LlamaForCausalLM(LlamaConfig(**SIZES))
    randomize(made)
    state = {key: value.clone() for key, value in made.to(dtype).state_dict().items()}
    for key in [key for key in state if key.endswith("_proj.weight")]:
        weight = state[key].float()
        size = weight.abs().mean()
        signs = torch.where(weight.abs() < size, 0, weight.sign())
        state[key] = bitnet.pack_weights(signs)
        state[f"{key}_scale"] = (1 + size).reshape(1).to(dtype)
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    settings = {"quant_method": "bitnet", "linear_class": linear_class}
    config = made.config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
    config |= {"dtype": str(dtype).removeprefix("torch.")}
    config |= {"quantization_config": settings | {"quantization_mode": "offline"}}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    modules = {path: each for path, each in loaded.named_modules() if path.endswith("_proj")}
    decoded = {f"{path}.weight": _digest(_weight(each)) for path, each in sorted(modules.items())}
    (folder / "decoded.json").write_text(json.dumps(decoded, indent=1) + "\n")


def _weight(module: Any) -> torch.Tensor:
    if isinstance(module, bitnet.AutoBitLinear):
        return module.weight * module.weight_scale
    return bitnet.unpack_weights(module.weight, module.weight_scale.dtype) / module.weight_scale


def _digest(weight: torch.Tensor) -> list[Any]:
    held = weight.contiguous().view(torch.uint8).numpy().tobytes()
    kind = str(weight.dtype).removeprefix("torch.")
    return [kind, list(weight.shape), hashlib.sha256(held).hexdigest()]


def main() -> None:
    """Write both kinds."""
    ternary("bitnet-products", torch.bfloat16, "autobitlinear")
    ternary("bitnet-quotients", torch.float16, "bitlinear")


if __name__ == "__main__":
    main()
