"""LoRA adapters as GGUF: added to the base model's GGUF file they give the merged weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.conversion.factors import Factors, carried, zero
from maxtool.errors import MisshapenWeight
from maxtool.recipe import operations as ops
from maxtool.recipe import recognise
from maxtool.recipe.step import Step
from maxtool.weights import open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
MODEL, ADAPTERS = DATA / "tiny-llama", DATA / "lora"
# What an adapter changes by rows that are looked up, what GGUF has no place for, and what peft
# adapts only with a head.
NOT_ADAPTED = ("embed", "wte", "wpe", "pooler", "lm_head", "rotary", "classifier")
FAMILIES = sorted(file.parent.name for file in DATA.glob("tiny-*/*-f32.gguf"))
# Matrices stored transposed, joined, in stacks, and under other names.
QUICK = {"tiny-gpt2", "tiny-phi3", "tiny-mixtral", "tiny-llama", "tiny-bert"}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def tensors_of(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}


def adapted(base: Path, adapter: Path, alpha: float) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a GGUF file with those of an adapter, applied as llama.cpp applies them."""
    tensors, factors = tensors_of(base), tensors_of(adapter)
    for name in [n.removesuffix(".lora_a") for n in factors if n.endswith(".lora_a")]:
        first, second = (factors[f"{name}.lora_{letter}"] for letter in "ab")
        looked_up = name == "token_embd.weight"
        left, right = (first, second.T) if looked_up else (second, first)
        change = np.matmul(left.astype(np.float64), right) * alpha / second.shape[-1]
        assert change.shape == tensors[name].shape
        tensors[name] = tensors[name] + change
    return tensors


def random_adapter(base: Path, folder: Path, seed: int) -> None:
    """Write an adapter of half of a model's matrices, of several ranks and scales."""
    rng = np.random.default_rng(seed)
    checkpoint = open_checkpoint(base)
    names = [
        name.removesuffix(".weight")
        for name, info in checkpoint.tensors.items()
        if name.endswith(".weight") and len(info.shape) == 2
        if not any(word in name for word in NOT_ADAPTED)
    ]
    transposed = "gpt2" in base.name
    config: dict[str, Any] = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "rank_pattern": {}}
    config |= {"fan_in_fan_out": transposed, "alpha_pattern": {}}
    factors = {}
    for number, name in enumerate(names):
        if rng.random() < 0.5:
            continue
        rank = 3 + number % 2
        outputs, inputs = checkpoint.tensors[f"{name}.weight"].shape[:: -1 if transposed else 1]
        config["rank_pattern"][name] = rank
        config["alpha_pattern"][name] = 6 + number % 3
        for letter, shape in {"A": (rank, inputs), "B": (outputs, rank)}.items():
            values = rng.normal(size=shape).astype(np.float32)
            factors[f"base_model.model.{name}.lora_{letter}.weight"] = values
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(factors, folder / "adapter_model.safetensors")


def check_same(base: Path, adapter: Path, folder: Path, alpha: float) -> int:
    """Compare base and adapter with what was merged; return the number of factors."""
    paths = {name: folder / f"{name}.gguf" for name in ("base", "adapter", "merged")}
    plain = ("--dtype", "float32")
    for command in (
        (base, "-o", paths["base"], *plain),
        (base, "-o", paths["merged"], *plain, "--merge-lora", adapter),
        (adapter, "-o", paths["adapter"], "--base", base, "--verify"),
    ):
        done = run(*command)
        assert done.exit_code == 0, done.stderr
    merged = tensors_of(paths["merged"])
    # Merged weights are rounded to their type.
    types = {info.dtype.name for info in open_checkpoint(base).tensors.values()}
    error = 1e-5 if types == {"float32"} else 2**-8
    for name, ours in adapted(paths["base"], paths["adapter"], alpha).items():
        np.testing.assert_allclose(ours, merged[name], rtol=error, atol=10 * error, err_msg=name)
    return len(tensors_of(paths["adapter"]))


@pytest.mark.parametrize(
    "family",
    [pytest.param(f, marks=() if f in QUICK else pytest.mark.slow) for f in FAMILIES],
)
def test_it_is_the_merged_model(tmp_path: Path, family: str) -> None:
    random_adapter(DATA / family, tmp_path / "adapter", FAMILIES.index(family))
    assert check_same(DATA / family, tmp_path / "adapter", tmp_path, 6) > 0


@pytest.mark.parametrize(("case", "alpha"), [("patterns", 6), ("rank-stabilized", 8)])
def test_adapters_of_peft(tmp_path: Path, case: str, alpha: float) -> None:
    assert check_same(MODEL, ADAPTERS / case, tmp_path, alpha) > 0


def test_what_llama_cpp_reads_of_it(tmp_path: Path) -> None:
    output = tmp_path / "a.gguf"
    assert run(MODEL, "-o", tmp_path / "base.gguf").exit_code == 0
    command = (ADAPTERS / "patterns", "-o", output, "--base", tmp_path / "base.gguf")
    done = run(*command, "--name", "Mine", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["recipe"] == "llama"
    reader = GGUFReader(output)
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert keys == {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": "lora",
        "general.name": "Mine",
        "adapter.lora.alpha": 6.0,
        "general.quantization_version": 2,
    }
    shapes = {tensor.name: tensor.shape.tolist() for tensor in reader.tensors}
    assert shapes["token_embd.weight.lora_a"] == [2, 97]  # as ggml counts: rank, tokens
    assert recognise(open_checkpoint(output)).problems == ["this is a LoRA adapter, not a model"]
    assert shapes["token_embd.weight.lora_b"] == [2, 40]
    assert shapes["blk.0.ffn_down.weight.lora_a"] == [100, 3]
    assert shapes["blk.0.ffn_down.weight.lora_b"] == [3, 40]
    assert run(*command, "--force", "--dtype", "float16").exit_code == 0
    assert {t.tensor_type.name for t in GGUFReader(output).tensors} == {"F16"}


def test_the_configuration_of_the_base_suffices(tmp_path: Path) -> None:
    """Find it where the adapter says that it is, however that is quantized."""
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    base.mkdir()
    config = json.loads((MODEL / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (base / "config.json").write_text(json.dumps(config))
    shutil.copytree(ADAPTERS / "rank-stabilized", adapter)
    said = json.loads((adapter / "adapter_config.json").read_text())
    said["base_model_name_or_path"] = str(base)
    (adapter / "adapter_config.json").write_text(json.dumps(said))
    done = run(adapter, "-o", tmp_path / "a.gguf")
    assert done.exit_code == 0, done.stderr
    assert f"the base model is that of {base}" in " ".join(done.stderr.split())
    assert run(adapter, "-o", tmp_path / "b.gguf", "--base", MODEL).exit_code == 0
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


PATTERNS = ADAPTERS / "patterns"
REFUSED: list[tuple[list[str | Path], int, str]] = [
    ([PATTERNS, "-o", "a.gguf"], 2, "pass --base"),
    ([PATTERNS, "-o", "a", "--base", MODEL], 2, "becomes a GGUF file"),
    ([PATTERNS, "-o", "a.gguf", "--base", MODEL, "--quantize", "Q8_0"], 2, "not for adapters"),
    ([PATTERNS, "-o", "a.gguf", "--base", MODEL, "--merge-lora", PATTERNS], 2, "not for adapters"),
    ([PATTERNS, "-o", "a.gguf", "--base", MODEL, "--split-max-size", "1"], 2, "not for adapters"),
    ([MODEL, "-o", "a.gguf", "--base", MODEL], 2, "--base is for an adapter"),
    ([PATTERNS, "-o", "a.gguf", "--base", DATA / "tiny-qwen2"], 4, "does not fit [28, 28]"),
    ([PATTERNS, "-o", "a.gguf", "--base", DATA / "tiny-gpt2"], 4, "has no model.embed_tokens"),
    ([PATTERNS, "-o", "a.gguf", "--base", DATA / "nothing"], 3, "nothing"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED)
def test_refusals(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str | Path],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == code, result.stderr
    assert message in " ".join(result.stderr.split())
    assert not list(tmp_path.iterdir())


def test_a_tied_embedding_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    config = json.loads((MODEL / "config.json").read_text()) | {"tie_word_embeddings": True}
    (base / "config.json").write_text(json.dumps(config))
    result = run(PATTERNS, "-o", tmp_path / "a.gguf", "--base", base)
    assert result.exit_code == 4
    assert "it is the head too" in " ".join(result.stderr.split())


def test_nothing_is_written_over_the_base(tmp_path: Path) -> None:
    base = tmp_path / "base.gguf"
    assert run(MODEL, "-o", base).exit_code == 0
    before = base.read_bytes()
    assert run(PATTERNS, "-o", base, "--base", base, "--force").exit_code == 2
    assert base.read_bytes() == before


def test_an_absurd_base_is_refused_at_once(tmp_path: Path) -> None:
    config = json.loads((MODEL / "config.json").read_text()) | {"num_hidden_layers": 10**6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = run(PATTERNS, "-o", tmp_path.parent / "a.gguf", "--base", tmp_path)
    assert result.exit_code == 4
    assert "has 1000000 layers" in " ".join(result.stderr.split())


def factors(rng: np.random.Generator, rows: int, columns: int, rank: int) -> Factors:
    return Factors(rng.normal(size=(rows, rank)), rng.normal(size=(rank, columns)))


def product(item: Factors) -> np.ndarray[Any, Any]:
    result: np.ndarray[Any, Any] = np.matmul(item.left, item.right)
    return result


CHAINS: dict[str, list[Step]] = {
    "columns": [Step("split", {"axis": 1, "sizes": (4, 8), "groups": 1})],
    "turned": [
        Step("transpose", {"axes": (1, 0)}),
        Step("split", {"axis": 0, "sizes": (8, 4), "groups": 2}),
        Step("concat", {"axis": 0, "sizes": (8, 4), "groups": 1}),
    ],
    "stacked": [
        Step("split", {"axis": 0, "sizes": (4, 4), "groups": 1}),
        Step("rope_pairs_to_halves", {"heads": 2, "rotated": 0}),
        Step("stack", {"axis": 0, "count": 2}),
        Step("unstack", {"axis": 0, "count": 2}),
    ],
}


@pytest.mark.parametrize("name", CHAINS)
def test_factors_go_through_as_their_products_do(name: str) -> None:
    item = factors(np.random.default_rng(0), 8, 12, 3)
    ours = carried(CHAINS[name], [item])
    theirs = ops.run(CHAINS[name], [product(item)])
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(product(one), other, atol=1e-12)
        assert one.rank == 3  # what is split and joined again shares a factor


def test_different_products_are_joined() -> None:
    rng = np.random.default_rng(1)
    items = [factors(rng, 4, 6, 2), zero((2, 6)), factors(rng, 4, 6, 3)]
    step = Step("concat", {"axis": 0, "sizes": (4, 2, 4), "groups": 2})
    (joined,) = carried([step], items)
    (expected,) = ops.run([step], [product(item) for item in items])
    assert joined.rank == 5
    np.testing.assert_allclose(product(joined), expected, atol=1e-12)


@pytest.mark.parametrize(
    "step",
    [
        Step("add", {"value": 1.0}),
        Step("reshape", {"stored": (4, 6), "shape": (24,)}),
        Step("zero_rows_before", {"count": 2}),
    ],
)
def test_what_is_no_move_of_rows_is_refused(step: Step) -> None:
    with pytest.raises(MisshapenWeight, match=f"cannot be carried through {step.op}"):
        carried([step], [factors(np.random.default_rng(2), 4, 6, 2)])
