"""Checkpoints of any size with random weights, made on the spot."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Described(Protocol):
    """A shape of a model, by its configuration and its tensors."""

    @property
    def config(self) -> dict[str, object]:
        """config.json in the words of Hugging Face."""

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor, as Hugging Face names them."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama, and whether its head is the embedding."""

    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    context: int = 512
    tied: bool = True

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def config(self) -> dict[str, object]:
        """config.json in the words of Hugging Face."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "float32",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "tie_word_embeddings": self.tied,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": None,
            "eos_token_id": None,
        }

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor, as Hugging Face names them."""
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = {
            "input_layernorm": (self.hidden,),
            "self_attn.q_proj": (width, self.hidden),
            "self_attn.k_proj": (kv_width, self.hidden),
            "self_attn.v_proj": (kv_width, self.hidden),
            "self_attn.o_proj": (self.hidden, width),
            "post_attention_layernorm": (self.hidden,),
            "mlp.gate_proj": (self.inner, self.hidden),
            "mlp.up_proj": (self.inner, self.hidden),
            "mlp.down_proj": (self.hidden, self.inner),
        }
        names = {
            "model.embed_tokens.weight": (self.vocabulary, self.hidden),
            "model.norm.weight": (self.hidden,),
        }
        if not self.tied:
            names["lm_head.weight"] = (self.vocabulary, self.hidden)
        return names | {
            f"model.layers.{index}.{name}.weight": shape
            for index in range(self.layers)
            for name, shape in layer.items()
        }


def make(folder: Path, shape: Described) -> None:
    """A Hugging Face folder with random weights of the usual size, norms of one."""
    import numpy as np
    from safetensors.numpy import save_file

    generator = np.random.default_rng(0)
    arrays = {
        name: np.ones(size, np.float32)
        if len(size) == 1
        else generator.standard_normal(size, np.float32) * np.float32(0.02)
        for name, size in shape.tensors.items()
    }
    folder.mkdir()
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(shape.config, indent=2))


def make_sparse(folder: Path, shape: Described, shard_bytes: int = 5_000_000_000) -> int:
    """A Hugging Face folder in bfloat16 whose payloads are holes; returns its bytes."""
    from maxtool.dtype import DType
    from maxtool.weights import TensorSpec
    from maxtool.weights.formats import safetensors

    shards: list[list[TensorSpec]] = [[]]
    filled = total = 0
    for name, size in shape.tensors.items():
        spec = TensorSpec(name, DType.bfloat16, size)
        if filled + spec.nbytes > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(spec)
        filled += spec.nbytes
        total += spec.nbytes
    folder.mkdir()
    weight_map = {}
    for number, specs in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        header, offsets = safetensors.header(specs)
        with (folder / name).open("wb") as stream:
            stream.write(header)
            stream.truncate(offsets[-1])
        weight_map |= {spec.name: name for spec in specs}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text(json.dumps(shape.config))
    return total


def processor() -> str:
    """The processor's name; Linux keeps it where the platform module does not look."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> str:
    """One line on where a figure was taken."""
    load = os.getloadavg()[0]
    return f"{processor()}, {usable_cores()} usable cores, load {load:.1f}, {platform.platform()}"
