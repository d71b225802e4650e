"""Write tests/data/quantized: a tiny Llama as quantizing libraries store it, and what they decode.

And mxfp4_experts.npz: blocks and scales in gpt-oss' layout, and what transformers makes of them.

Needs the ``peers`` extra, compressed-tensors, bitsandbytes, torchao and accelerate. The weights are
random with a fixed seed. ``decoded.json`` has type, shape and SHA-256 of each matrix as the library
that wrote it, or transformers, decodes it on a CPU.

    python tests/data/record_quantized.py
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import bitsandbytes
import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from recording import SEED, randomize
from safetensors.torch import load_file, save_file
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    PerGroup,
)
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    CompressedTensorsConfig,
    FineGrainedFP8Config,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    TorchAoConfig,
)
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

FOLDER = Path(__file__).parent / "quantized"
State = dict[str, torch.Tensor]


def model(dtype: torch.dtype, hidden: int = 32) -> PreTrainedModel:
    """A Llama of two layers."""
    torch.manual_seed(SEED)
    made = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=hidden,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    randomize(made)
    return made.to(dtype)


def linear(state: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of the matrices that are quantized."""
    return [name for name in state if name.endswith("_proj.weight")]


def digests(weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Type, shape and checksum of each weight."""
    return {
        name: [
            str(weight.dtype).removeprefix("torch."),
            list(weight.shape),
            hashlib.sha256(weight.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest(),
        ]
        for name, weight in sorted(weights.items())
    }


def write_decoded(folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
    text = json.dumps(digests(weights), indent=1)
    (folder / "decoded.json").write_text(text + "\n", encoding="utf-8")


# --- compressed-tensors ---------------------------------------------------------------------------


def compressed(name: str, form: str, dtype: torch.dtype, **weights: Any) -> None:
    """Compress every matrix by the library's compressor, and load the folder by transformers."""
    made = model(dtype)
    state = {key: value.clone() for key, value in made.state_dict().items()}
    args = QuantizationArgs(**weights)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=form)
    compressor = BaseCompressor.get_value_from_registry(form)
    decoded: State = {}
    for key in linear(state):
        stored = compressor.compress(_local(state.pop(key), scheme.weights), scheme)
        decoded[key] = compressor.decompress(stored, scheme)["weight"]
        module = key.removesuffix("weight")
        state |= {f"{module}{end}": value.contiguous() for end, value in stored.items()}
    config = QuantizationConfig(
        config_groups={"group_0": scheme},
        format=form,
        ignore=["lm_head"],
        quantization_status="compressed",
    )
    folder = FOLDER / name
    _save(folder, made, state, config.model_dump(mode="json"))
    write_decoded(folder, decoded)
    dense = CompressedTensorsConfig.from_dict(config.model_dump(mode="json") | {"dequantize": True})
    loaded = AutoModelForCausalLM.from_pretrained(folder, quantization_config=dense, dtype="auto")
    for key, weight in loaded.state_dict().items():
        if key in decoded and not torch.equal(weight, decoded[key].to(weight.dtype)):
            raise SystemExit(f"{name}: transformers decodes {key} otherwise")


def _local(weight: torch.Tensor, args: QuantizationArgs) -> State:
    """A weight with the scales and zeros that the library computes from its extremes."""
    size = args.group_size if args.strategy == "group" else weight.shape[1]
    groups = weight.reshape(weight.shape[0], -1, size)
    least, most = groups.amin(-1), groups.amax(-1)
    if args.strategy == "tensor":
        least, most = weight.amin().reshape(1), weight.amax().reshape(1)
    scale, zero = calculate_qparams(least, most, args)
    state = {"weight": weight, "weight_scale": scale.to(weight.dtype)}
    return state | ({} if args.symmetric else {"weight_zero_point": zero.to(torch.int8)})


def _save(folder: Path, made: PreTrainedModel, state: State, quantization: Any) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = made.config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
    config |= {"dtype": str(made.dtype).removeprefix("torch."), "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


# --- bitsandbytes --------------------------------------------------------------------------------


def bits_and_bytes(name: str, dtype: torch.dtype, **options: Any) -> None:
    """Let transformers quantize, save and load again, and decode as its ``dequantize`` does.

    Rows are not shorter than a block, which the kernel of bitsandbytes 0.50.2 for AVX-512 misreads.
    """
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as plain:
        model(dtype, hidden=64).save_pretrained(plain)
        settings = BitsAndBytesConfig(**options, llm_int8_skip_modules=["lm_head"])
        made = AutoModelForCausalLM.from_pretrained(
            plain, quantization_config=settings, dtype=dtype, device_map="cpu"
        )
        made.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    loaded = AutoModelForCausalLM.from_pretrained(folder, device_map="cpu")
    modules = {
        f"{path}.weight": module
        for path, module in loaded.named_modules()
        if path.endswith("_proj")
    }
    write_decoded(folder, {path: _decoded(module) for path, module in modules.items()})


def _decoded(module: Any) -> torch.Tensor:
    weight = module.weight
    if isinstance(weight, bitsandbytes.nn.Int8Params):
        return bitsandbytes.functional.int8_vectorwise_dequant(weight.data, weight.SCB)
    return bitsandbytes.functional.dequantize_4bit(weight.data, weight.quant_state)


# --- torchao -------------------------------------------------------------------------------------


def torch_ao(name: str, config: Any) -> None:
    """Let transformers quantize, save and load again, and decode as the tensors' class does."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as plain:
        model(torch.bfloat16).save_pretrained(plain)
        settings = TorchAoConfig(quant_type=config)
        made = AutoModelForCausalLM.from_pretrained(
            plain, quantization_config=settings, dtype=torch.bfloat16, device_map="cpu"
        )
        made.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    state = AutoModelForCausalLM.from_pretrained(folder, device_map="cpu").state_dict()
    write_decoded(folder, {key: state[key].dequantize() for key in linear(state)})


# --- 8-bit floats in blocks ----------------------------------------------------------------------


def fine_grained(name: str) -> None:
    """Scale blocks as DeepSeek does, and let transformers load them as plain weights."""
    made = model(torch.float32)
    state = {key: value.clone() for key, value in made.state_dict().items()}
    for key in linear(state):
        rows, columns = state[key].shape
        blocks = state[key].reshape(rows // 16, 16, columns // 16, 16)
        scale = blocks.abs().amax((1, 3)) / 448
        values = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
        state[key] = values.reshape(rows, columns)
        state[f"{key}_scale_inv"] = scale
    settings = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    settings |= {"fmt": "e4m3", "weight_block_size": [16, 16]}
    _save(FOLDER / name, made, state, settings)
    dense = FineGrainedFP8Config(weight_block_size=(16, 16), dequantize=True)
    loaded = AutoModelForCausalLM.from_pretrained(
        FOLDER / name, quantization_config=dense, dtype=torch.float32, device_map="cpu"
    ).state_dict()
    write_decoded(FOLDER / name, {key: loaded[key] for key in linear(loaded)})


# --- MXFP4 ---------------------------------------------------------------------------------------


def experts() -> None:
    """Random blocks with every exponent that is a number."""
    generator = np.random.default_rng(SEED)
    blocks = generator.integers(0, 256, (2, 64, 4, 16), np.uint8)
    scales = generator.permutation(np.arange(512) % 255).astype(np.uint8).reshape(2, 64, 4)
    decoded = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales))
    bits = decoded.contiguous().view(torch.uint16).numpy()
    file = FOLDER.with_name("mxfp4_experts.npz")
    np.savez_compressed(file, blocks=blocks, scales=scales, decoded=bits)


FOUR = {"load_in_4bit": True}
GROUP = {"num_bits": 4, "strategy": "group", "group_size": 16}
RECORDINGS: dict[str, Callable[[str], None]] = {
    "ct-int4-group": lambda name: compressed(name, "pack-quantized", torch.bfloat16, **GROUP),
    "ct-int4-zeros": lambda name: compressed(
        name, "pack-quantized", torch.float16, **GROUP, symmetric=False
    ),
    "ct-int3-channel": lambda name: compressed(
        name, "pack-quantized", torch.float16, num_bits=3, strategy="channel", symmetric=False
    ),
    "ct-int8-packed": lambda name: compressed(
        name, "pack-quantized", torch.bfloat16, num_bits=8, strategy="tensor"
    ),
    "ct-int8-channel": lambda name: compressed(
        name, "int-quantized", torch.bfloat16, num_bits=8, strategy="channel"
    ),
    "ct-int8-zeros": lambda name: compressed(
        name, "naive-quantized", torch.float16, num_bits=8, strategy="channel", symmetric=False
    ),
    "ct-fp8-channel": lambda name: compressed(
        name, "float-quantized", torch.bfloat16, num_bits=8, type="float", strategy="channel"
    ),
    "fp8-blocks": fine_grained,
    "torchao-int8": lambda name: torch_ao(name, Int8WeightOnlyConfig(version=2)),
    "torchao-int4-in-int8": lambda name: torch_ao(
        name, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(16))
    ),
    "torchao-fp8": lambda name: torch_ao(name, Float8WeightOnlyConfig()),
    "bnb-nf4": lambda name: bits_and_bytes(
        name, torch.bfloat16, **FOUR, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True
    ),
    "bnb-fp4": lambda name: bits_and_bytes(name, torch.float16, **FOUR, bnb_4bit_quant_type="fp4"),
    "bnb-int8": lambda name: bits_and_bytes(name, torch.float16, load_in_8bit=True),
}


def main() -> None:
    """Make the folders named, or all."""
    experts()
    for name in sys.argv[1:] or RECORDINGS:
        RECORDINGS[name](name)
        files = {file.name: len(load_file(file)) for file in (FOLDER / name).glob("*.safetensors")}
        print(name, files)


if __name__ == "__main__":
    main()
