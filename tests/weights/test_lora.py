"""LoRA adapters, merged as peft merges them (recorded by ``tests/data/record_lora.py``)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.weights import open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
MODEL, ADAPTERS = DATA / "tiny-llama", DATA / "lora"
# Each with the type of its weights, and the largest part of a value that rounding may cost.
CASES = {"patterns": ("float32", 1e-6), "rank-stabilized": ("bfloat16", 2**-8)}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ADAPTERS / "patterns", tmp_path / "adapter"))


def edit(folder: Path, **changes: Any) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("case", CASES)
def test_weights_are_those_of_peft(tmp_path: Path, case: str) -> None:
    dtype, error = CASES[case]
    base, output = tmp_path / "base", tmp_path / "m"
    assert run(MODEL, "-o", base, "--dtype", dtype).exit_code == 0
    done = run(base, "-o", output, "--merge-lora", ADAPTERS / case, "--verify")
    assert done.exit_code == 0, done.stderr
    before, after = open_checkpoint(base), open_checkpoint(output)
    expected = open_checkpoint(ADAPTERS / case / "expected.safetensors")
    for name in after.tensors:
        ours = after.read(name).data
        if name not in expected.tensors:
            assert ours.tobytes() == before.read(name).data.tobytes()
            continue
        theirs = expected.read(name).data
        assert ours.dtype == theirs.dtype
        difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
        assert (difference <= error * (1 + np.abs(theirs.astype(np.float64)))).all()
        assert not np.array_equal(ours, before.read(name).data)


def test_the_formula(tmp_path: Path) -> None:
    """Merge weights that are transposed, as those of GPT-2 are."""
    rng = np.random.default_rng(1)
    weight, first, second = (
        rng.normal(size=s).astype(np.float32) for s in ((5, 7), (2, 5), (7, 2))
    )
    folder, base = tmp_path / "adapter", tmp_path / "base"
    folder.mkdir()
    base.mkdir()
    save_file({"h.c_attn.weight": weight, "h.other": weight}, base / "model.safetensors")
    prefix = "base_model.model.h.c_attn.lora"
    factors = {f"{prefix}_A.weight": first, f"{prefix}_B.weight": second}
    save_file(factors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 3, "fan_in_fan_out": True}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    command = (base, "-o", tmp_path / "m.safetensors", "--no-recipe", "--merge-lora", folder)
    assert run(*command).exit_code == 0
    written = load_file(tmp_path / "m.safetensors")
    expected = weight + 1.5 * (second.astype(np.float64) @ first).T
    np.testing.assert_allclose(written["h.c_attn.weight"], expected, rtol=1e-5, atol=1e-6)
    assert written["h.other"].tobytes() == weight.tobytes()


def test_it_goes_through_a_recipe(tmp_path: Path) -> None:
    """Merge on the way to GGUF: the file is that of the merged folder."""
    lora = ("--merge-lora", ADAPTERS / "patterns")
    assert run(MODEL, "-o", tmp_path / "m", *lora).exit_code == 0
    assert run(MODEL, "-o", tmp_path / "a.gguf", *lora).exit_code == 0
    assert run(tmp_path / "m", "-o", tmp_path / "b.gguf").exit_code == 0
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def other_module(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    save_file({name.replace("q_proj", "w_proj"): t for name, t in tensors.items()}, file)


def one_factor(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    save_file({name: t for name, t in tensors.items() if "down_proj.lora_B" not in name}, file)


def whole_tensor(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    extra = {"base_model.model.lm_head.weight": np.zeros((97, 40), np.float32)}
    save_file(load_file(file) | extra, file)


def other_base(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    name = "base_model.model.model.embed_tokens.base_layer.weight"
    save_file(load_file(file) | {name: np.zeros((97, 40), np.float32)}, file)


def add_factors(folder: Path, first: str, second: str) -> None:
    """Add factors for the first layer's down_proj, under names of other forms."""
    file = folder / "adapter_model.safetensors"
    extra = {first: np.ones((3, 100), np.float32), second: np.ones((40, 3), np.float32)}
    save_file(load_file(file) | extra, file)


def twice(folder: Path) -> None:
    name = "model.layers.0.mlp.down_proj.lora"
    add_factors(folder, f"{name}_A.weight", f"{name}_B.weight")


def twice_as_embedding(folder: Path) -> None:
    name = "base_model.model.model.layers.0.mlp.down_proj.lora_embedding"
    add_factors(folder, f"{name}_A", f"{name}_B")


def fill(folder: Path, value: float) -> None:
    """Fill both factors of a weight with a number."""
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    for name, tensor in tensors.items():
        if "0.self_attn.q_proj" in name:
            tensor.fill(value)
    save_file(tensors, file)


BAD: list[tuple[Callable[[Path], None], int, list[str]]] = [
    (lambda f: edit(f, use_dora=True), 3, ["use_dora is not supported"]),
    (lambda f: edit(f, peft_type="IA3"), 3, ["LORA is read"]),
    (lambda f: edit(f, init_lora_weights="pissa_niter_4"), 3, ["changed the weights"]),
    (lambda f: edit(f, lora_alpha="x"), 3, ["a number of float32"]),
    (lambda f: edit(f, lora_alpha=10**400), 3, ["a number of float32"]),
    (lambda f: edit(f, lora_alpha=1e39), 3, ["a number of float32"]),
    (lambda f: edit(f, r=True), 3, ["r a whole number"]),
    (lambda f: edit(f, alpha_pattern={"q_proj": 10**400}), 4, ["only names of modules are read"]),
    (
        lambda f: fill(f, 1e30),
        4,
        ["0.self_attn.q_proj.weight", "1920 of 1920 values are not finite"],
    ),
    (
        lambda f: fill(f, np.nan),
        4,
        ["0.self_attn.q_proj.weight", "values are not finite numbers of"],
    ),
    (twice, 4, ["a second change of model.layers.0.mlp.down_proj.weight"]),
    (twice_as_embedding, 4, ["a second change of model.layers.0.mlp.down_proj.weight"]),
    (lambda f: edit(f, rank_pattern={}), 4, ["of rank 3, and the configuration says 2"]),
    (lambda f: edit(f, alpha_pattern={"(a+)+": 3}), 4, ["only names of modules are read"]),
    (lambda f: (f / "adapter_config.json").unlink(), 3, ["adapter_config.json"]),
    (other_module, 4, ["layers.0.self_attn.w_proj", "layers.1.self_attn.w_proj"]),
    (one_factor, 4, ["layers.0.mlp.down_proj", "its second factor is missing"]),
    (whole_tensor, 4, ["only these are read"]),
    (other_base, 4, ["which the adapter was trained on"]),
]


@pytest.mark.parametrize(("spoil", "code", "messages"), BAD)
def test_what_does_not_fit_is_listed(
    tmp_path: Path,
    adapter: Path,
    spoil: Callable[[Path], None],
    code: int,
    messages: list[str],
) -> None:
    spoil(adapter)
    result = run(MODEL, "-o", tmp_path / "m", "--merge-lora", adapter)
    assert result.exit_code == code
    said = " ".join(result.stderr.split())
    assert all(message in said for message in messages), said
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


def test_quantized_weights_are_refused(tmp_path: Path) -> None:
    assert run(MODEL, "-o", tmp_path / "q.gguf", "--quantize", "Q8_0").exit_code == 0
    result = run(tmp_path / "q.gguf", "-o", tmp_path / "m", "--merge-lora", ADAPTERS / "patterns")
    assert result.exit_code == 4
    assert "does not fit the checkpoint" in result.stderr


def test_an_adapter_is_never_written_into(adapter: Path) -> None:
    result = run(MODEL, "-o", adapter / "m", "--merge-lora", adapter)
    assert result.exit_code == 2
    assert "inside it" in result.stderr
