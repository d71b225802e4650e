"""Record which types llama-quantize gives the tensors of models of many shapes.

Needs llama-quantize of llama.cpp, as vendored by llama-cpp-python 0.3.36:

    python tests/data/record_mixes.py LLAMA-QUANTIZE

``mixes.json.gz`` has the models, with the names and shapes of their tensors, and for each mix, with
and without an importance matrix, the types in the order of the names. The models are
made here: names, shapes and a few keys are all that the choice depends on, so that two rows are
enough for a matrix.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf import GGUFReader, GGUFWriter

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from maxtool.quantization.mixes import MIXES  # noqa: E402

ROWS = 2
FUSED = ("falcon", "gpt2", "phi3")  # with queries, keys and values in one matrix


class Model(NamedTuple):
    """A model's shape, as far as the types depend on it."""

    architecture: str = "llama"
    layers: int = 2
    heads: int = 4
    key_heads: int = 4
    experts: int = 0
    tied: bool = False
    width: int = 256
    inner: int = 512

    @property
    def key(self) -> str:
        """What the recording calls it."""
        tied = " tied" if self.tied else ""
        heads = f"{self.heads}/{self.key_heads}"
        experts = f" {self.experts} experts" if self.experts else ""
        sizes = f"{self.width}x{self.inner}"
        return f"{self.architecture} {self.layers} layers {heads}{experts} {sizes}{tied}"


MODELS = (
    *(Model(layers=layers) for layers in (1, 3, 8, 17, 22, 32, 80)),
    *(Model(layers=layers, heads=8, key_heads=2) for layers in (8, 22)),
    *(Model(layers=80, heads=heads, key_heads=8) for heads in (8, 12, 64)),
    *(Model(layers=layers, tied=True) for layers in (2, 16)),
    *(Model(layers=32, heads=8, key_heads=keys, experts=8) for keys in (2, 8)),
    *(Model(layers=16, experts=experts) for experts in (2, 4, 16)),
    *(Model("falcon", layers, tied=tied) for layers, tied in ((2, True), (32, True), (60, False))),
    *(Model("qwen2", layers, heads=8, key_heads=keys) for layers, keys in ((80, 8), (80, 1))),
    *(Model(name, 12, tied=name == "gpt2") for name in ("gpt2", "phi3", "gemma2", "starcoder2")),
    Model("bert", 12, tied=True),
    Model("qwen3moe", 16, heads=8, key_heads=1, experts=128),
    Model(layers=8, width=96, inner=256),
    Model(layers=8, width=256, inner=352, tied=True),
    Model(layers=8, width=100, inner=96),
)


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """The tensors of a model, by their names in GGUF."""
    width, inner = model.width, model.inner
    result: dict[str, tuple[int, ...]] = {"token_embd.weight": (ROWS, width)}
    if not model.tied:
        result["output.weight"] = (ROWS, width)
    if model.architecture in ("gpt2", "bert"):
        result["position_embd.weight"] = (ROWS, width)
    for layer in range(model.layers):
        for name, shape in layer_shapes(model, width, inner):
            result[f"blk.{layer}.{name}.weight"] = shape
    return result | {"output_norm.weight": (width,)}


def layer_shapes(model: Model, width: int, inner: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the tensors of a layer."""
    split = ("attn_q", "attn_k", "attn_v")
    for name in ("attn_qkv",) if model.architecture in FUSED else split:
        yield name, (ROWS, width)
    yield "attn_output", (ROWS, width)
    yield "ffn_norm", (width,)
    experts = (model.experts,) if model.experts else ()
    last = "_exps" if model.experts else ""
    if model.experts:
        yield "ffn_gate_inp", (model.experts, width)
    for name in ("ffn_gate", "ffn_up"):
        yield name + last, (*experts, ROWS, width)
    yield f"ffn_down{last}", (*experts, ROWS, inner)


def write(model: Model, file: Path) -> None:
    """Write the model, all zeros."""
    writer = GGUFWriter(file, model.architecture)
    writer.add_block_count(model.layers)
    writer.add_context_length(64)
    writer.add_embedding_length(model.width)
    writer.add_feed_forward_length(model.inner)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_rope_dimension_count(64)
    writer.add_key_length(64)
    writer.add_value_length(64)
    writer.add_causal_attention(model.architecture != "bert")
    writer.add_sliding_window(32)
    if model.experts:
        writer.add_expert_count(model.experts)
        writer.add_expert_used_count(1)
        writer.add_expert_feed_forward_length(model.inner)
    for name, shape in shapes(model).items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_importance(model: Model, file: Path) -> None:
    """Write an importance matrix, all ones, in llama.cpp's older form."""
    entries = {
        name: int(np.prod((*shape[:-2], shape[-1])))
        for name, shape in shapes(model).items()
        if len(shape) > 1
    }
    parts = [np.int32(len(entries)).tobytes()]
    for name, size in entries.items():
        parts += [
            np.int32(len(name)).tobytes(),
            name.encode(),
            np.array([1, size], "<i4").tobytes(),
        ]
        parts.append(np.ones(size, np.float32).tobytes())
    file.write_bytes(b"".join(parts))


def types(program: str, source: Path, mix: str, *options: str) -> str:
    """The types that llama-quantize gives the tensors of a file, by their names in order."""
    target = source.with_name("quantized.gguf")
    command = [program, *options, str(source), str(target), mix, "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = {each.name: each.tensor_type.name for each in GGUFReader(target).tensors}
    return runs([found[name] for name in sorted(found)])


def runs(names: list[str]) -> str:
    """Names in order, with how often each comes in a row: ``Q4_K*3 Q6_K*1``."""
    return " ".join(f"{name}*{len([*group])}" for name, group in groupby(names))


def recorded(program: str, model: Model, scratch: Path) -> dict[str, Any]:
    """A model, and the types that each mix gives it."""
    source, importance = scratch / "source.gguf", scratch / "importance.dat"
    write(model, source)
    write_importance(model, importance)
    weighed = ("--imatrix", str(importance))
    return {
        "model": model._asdict(),
        "shapes": shapes(model),
        "plain": {mix: types(program, source, mix) for mix in MIXES if mix != "Q2_K_S"},
        "weighed": {mix: types(program, source, mix, *weighed) for mix in MIXES},
        "pure": {
            mix: types(program, source, mix, "--pure") for mix in ("Q8_0", "Q4_K_M", "IQ4_XS")
        },
    }


def main(arguments: list[str]) -> None:
    """Write the file."""
    (program,) = arguments
    content = {}
    for model in MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            content[model.key] = recorded(program, model, Path(scratch))
        print(model.key, file=sys.stderr)
    packed = gzip.compress(json.dumps(content).encode(), mtime=0)
    (HERE / "mixes.json.gz").write_bytes(packed)


if __name__ == "__main__":
    main(sys.argv[1:])
