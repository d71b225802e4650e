"""gpt-oss as it is published, with blocks of MXFP4, beside the same model with plain numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.recipe import find_recipe
from maxtool.weights import open_checkpoint
from tests.artifact.measure import error
from tests.data.seeded import Array, input_ids, tensors
from tests.simt.model import SimulatedModel
from tests.variants import ours

HIDDEN, INNER, EXPERTS, WORDS = 32, 64, 3, 29
CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_local_experts": EXPERTS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 150000,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": False}
    | {"original_max_position_embeddings": 16},
    "sliding_window": 5,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "vocab_size": WORDS,
}
# What the sixteen numbers of four bits mean (OCP Microscaling Formats 1.0, E2M1).
NUMBERS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
MEANINGS = np.concatenate([NUMBERS, -NUMBERS])


def blocks(seed: int, rows: int, columns: int) -> tuple[Array, Array, Array]:
    """Blocks and scales as they are published, and the numbers ``[experts, rows, columns]``."""
    random = np.random.default_rng(seed)
    pairs = random.integers(0, 256, (EXPERTS, rows, columns // 32, 16)).astype(np.uint8)
    scales = random.integers(122, 126, (EXPERTS, rows, columns // 32)).astype(np.uint8)
    nibbles = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(*scales.shape, 32)
    plain = MEANINGS[nibbles] * np.float32(2.0) ** (scales[..., None].astype(np.int32) - 127)
    return pairs, scales, plain.reshape(EXPERTS, rows, columns).astype(np.float32)


def written(folder: Path, config: dict[str, object], weights: dict[str, Array]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model with plain numbers, and with blocks."""
    shapes: dict[str, list[int]] = {"model.norm.weight": [HIDDEN]}
    shapes |= {name: [WORDS, HIDDEN] for name in ("model.embed_tokens.weight", "lm_head.weight")}
    plain: dict[str, Array] = {}
    packed: dict[str, Array] = {}
    for layer in range(2):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}{norm}.weight"] = [HIDDEN]
        for name, rows, columns in (("q", 32, HIDDEN), ("k", 16, HIDDEN), ("v", 16, HIDDEN)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = [rows, columns]
            shapes[f"{at}self_attn.{name}_proj.bias"] = [rows]
        shapes |= {f"{at}self_attn.o_proj.weight": [HIDDEN, 32], f"{at}self_attn.sinks": [4]}
        shapes[f"{at}self_attn.o_proj.bias"] = [HIDDEN]
        shapes |= {f"{at}mlp.router.weight": [EXPERTS, HIDDEN], f"{at}mlp.router.bias": [EXPERTS]}
        sizes = {"gate_up_proj": (2 * INNER, HIDDEN), "down_proj": (HIDDEN, INNER)}
        for name, (rows, columns) in sizes.items():
            pairs, scales, numbers = blocks(layer, rows, columns)
            whole = f"{at}mlp.experts.{name}"
            shapes[f"{whole}_bias"] = [EXPERTS, rows]
            plain[whole] = np.ascontiguousarray(numbers.swapaxes(1, 2))
            packed |= {f"{whole}_blocks": pairs, f"{whole}_scales": scales}
    shared, folder = tensors(shapes, 1.0), tmp_path_factory.mktemp("gpt_oss")
    quantized = CONFIG | {"quantization_config": {"quant_method": "mxfp4"}}
    return (
        written(folder / "plain", CONFIG, shared | plain),
        written(folder / "packed", quantized, shared | packed),
    )


def outputs(path: Path) -> Array:
    ids = input_ids(12, WORDS)
    return ours.outputs(ours.planned(open_checkpoint(path)), {"input_ids": ids})[0]


def test_blocks_mean_the_plain_numbers(folders: tuple[Path, Path]) -> None:
    plain, packed = folders
    names = [find_recipe(open_checkpoint(folder)).name for folder in folders]
    assert names == ["gpt_oss", "gpt_oss_mxfp4"]
    np.testing.assert_allclose(outputs(packed), outputs(plain), rtol=1e-12)


def test_blocks_stay_blocks_in_gguf(folders: tuple[Path, Path], tmp_path: Path) -> None:
    plain, packed = folders
    convert(prepare(Request(packed, tmp_path / "packed.gguf")))
    file = open_checkpoint(tmp_path / "packed.gguf")
    kinds = {name: each.encoding for name, each in file.tensors.items() if "_exps.weight" in name}
    assert len(kinds) == 6 and set(kinds.values()) == {QuantizationEncoding.MXFP4}
    np.testing.assert_allclose(outputs(tmp_path / "packed.gguf"), outputs(plain), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [DType.float32, DType.float16])
def test_kernels_of_gpus_compute_the_same(folders: tuple[Path, Path], dtype: DType) -> None:
    """Blocks are decoded for them."""
    plain, packed = folders
    model = SimulatedModel(packed, dtype)
    found = model.run("forward", {"input_ids": input_ids(12, WORDS)})["logits"]
    assert error(found, outputs(plain)) <= model.tolerance
