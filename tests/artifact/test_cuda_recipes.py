"""Recipes compiled for GPUs: the models of tests/data, without a GPU."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxtool import artifact
from maxtool.compiler.cuda.binaries import device_source
from maxtool.compiler.cuda.device_code import machine_code, portable_code
from maxtool.compiler.cuda.resources import Resources, read_resources
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.pipeline import compile_module
from maxtool.dtype import DType
from maxtool.recipe import load_recipe, recipe_names
from maxtool.runtime import loader
from tests.variants.rows import Files, rows

pytestmark = pytest.mark.slow

DATA = Path(__file__).resolve().parents[1] / "data"
ARCHS = ("sm_80", "sm_90")
TARGET = f"cuda:{','.join(ARCHS)}"
FUNCTION = re.compile(r'^extern "C" __global__ [^\n]*\{\n.*?^}\n', re.MULTILINE | re.DOTALL)
NAME = re.compile(r"\b(\w+_kernel\w*)\(")

# Models of other recipes with other tensors.
OTHERS = {"gpt_oss_mxfp4", "qwen3_5_vision", "qwen3_5_moe_vision", "qwen3_5_moe_fused"}
OTHERS |= {"gte_new"}  # those of gte
OTHERS |= {"qwen2_vl", "paddleocr_vl"}  # those of qwen2_vl_vision and its kin
OTHERS |= {"gemma3_vision"}  # what has both parts recognises its folders
WHOLE = {"gemma3_image_text": "gemma3_vision"}
# Families that are called otherwise than their recipes.
FAMILIES = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}
FAMILIES |= {"deberta_v2": "deberta-v2"}
FAMILIES |= {"gemma3n": "gemma3n_text", "gemma3n_vision": "gemma3n"}
FAMILIES |= {"gemma4": "gemma4_text", "gemma4_vision": "gemma4"}
FAMILIES |= {"gemma4_unified": "gemma4_unified_text"}
FAMILIES |= {"qwen2_vl_vision": "qwen2_vl", "paddleocr_vl_vision": "paddleocr_vl"}
FAMILIES |= {"llama4": "llama4_text", "llama4_vision": "llama4"}

# Heads and rows of no real model, whose elements do not come sixteen bytes at a time.
ODD = re.compile(r"_unaligned|^attention_\d+_\d+_(6|14)_")
# Bytes a thread may put aside: two tiles that are held to few registers, for more blocks at a time
# on a multiprocessor, put aside two or three.
LITTLE = 16
TYPES = ("float16", "bfloat16", "float32")
# One recipe in so many is compiled, in one of the types: families share most of their kernels.
SHARE = 6


def recipes(dtype: str, *, everything: bool) -> list[str]:
    """Recipes of models of texts that are compiled in a type: some in one type, or all in all."""
    texts = [name for name in recipe_names() if load_recipe(name).architecture in TEXT]
    number = TYPES.index(dtype)
    return [
        name
        for name in texts
        if name not in OTHERS
        and (everything or zlib.crc32(name.encode()) % (SHARE * len(TYPES)) == number)
    ]


def planned(recipe: str, dtype: str, folder: Path) -> artifact.Build:
    """Plan a model of a recipe: the tiny one of tests/data, or the first that was recorded."""
    model = tiny(recipe)
    if not model.is_dir():
        family = FAMILIES.get(recipe, recipe)
        model = Files(folder / recipe).checkpoint(next(rows(family))).path
    request = artifact.Request(model, Path("unused"), target=TARGET, dtype=DType(dtype))
    build = artifact.prepare(request)
    assert build.plan.recipe.name == recipe
    return build


def tiny(recipe: str) -> Path:
    """Return where a recipe's tiny model is, if it has one."""
    return DATA / f"tiny-{WHOLE.get(recipe, recipe).replace('_', '-')}"


def source_of(build: artifact.Build) -> str:
    """The CUDA C++ of a model's kernels."""
    lowering = ModuleLowering(build.contents.lowering)
    for graph in build.graphs.values():
        lowering.entry(graph)
    return device_source(compile_module(lowering.module(), build.target, asserts=False))


# Encoders of images have no folder of their own among the data.
TEXT = ("decoder", "encoder", "image_text")


class Kernels:
    """The kernels of many models, each once, under names that say whose was the first."""

    def __init__(self) -> None:
        self._functions: dict[str, dict[str, str]] = defaultdict(dict)

    def add(self, recipe: str, source: str) -> int:
        """Take the kernels of a recipe's model; how many it has."""
        head, functions = source[: source.index('extern "C"')], set(FUNCTION.findall(source))
        for text in functions:
            name = NAME.findall(text)[0]
            renamed = text.replace(f"{name}(", f"{name}__{recipe}(")
            self._functions[head].setdefault(text, renamed)
        return len(functions)

    def compile(self) -> Iterator[tuple[str, Resources]]:
        """Yield each kernel's resources on each architecture: one compiler run per head size."""
        for head, functions in self._functions.items():
            ptx = portable_code(head + "".join(functions.values()), ARCHS)
            for code in machine_code(ptx, ARCHS):
                result = read_resources(code.log)
                assert len(result) == len(functions)
                yield from result.items()


@pytest.mark.parametrize("dtype", TYPES)
def test_recipes_compile_and_stay_in_registers(
    dtype: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kernels = Kernels()
    for recipe in recipes(dtype, everything=request.config.getoption("--everything")):
        assert kernels.add(recipe, source_of(planned(recipe, dtype, tmp_path))) > 5, recipe
    slow = [name for name, one in kernels.compile() if one.stack > LITTLE]
    assert not [name for name in slow if not ODD.search(name)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[artifact.Report, Path]:
    folder = tmp_path_factory.mktemp("cuda") / "model"
    request = artifact.Request(
        DATA / "tiny-llama", folder, target=TARGET, ptx=True, standalone=True, dtype=DType.float16
    )
    return artifact.make(artifact.prepare(request)), folder


def test_the_artifact_holds_machine_code(built: tuple[artifact.Report, Path]) -> None:
    _, folder = built
    for arch in (80, 90):
        elf = (folder / f"sm_{arch}.cubin").read_bytes()
        machine, flags = struct.unpack_from("<H", elf, 18)[0], struct.unpack_from("<I", elf, 48)[0]
        assert (elf[:4], machine, flags >> 8 & 0xFF) == (b"\x7fELF", 190, arch)
    assert b".target sm_80" in (folder / "compute_80.ptx").read_bytes()


def test_the_manifest_says_what_is_there(built: tuple[artifact.Report, Path]) -> None:
    report, folder = built
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["target"]["archs"] == list(ARCHS) and manifest["target"]["ptx"] is True
    libraries = {f"lib/{name}" for name in ("libtvm_runtime.so", "libtvm_runtime_cuda.so")}
    device = {"sm_80.cubin", "sm_90.cubin", "compute_80.ptx"}
    assert libraries | device <= manifest["files"].keys()
    assert manifest["kernels"].keys() == report.kernels.keys() == set(ARCHS)
    names = set(manifest["kernels"]["sm_90"])
    assert any(name.startswith("linear_float16") for name in names)
    assert any(name.startswith("attention") for name in names)
    loader.Manifest(folder).verify()


def test_matrices_and_cache_are_stored_in_their_type(built: tuple[artifact.Report, Path]) -> None:
    manifest = json.loads((built[1] / "manifest.json").read_text())
    types = {one["name"]: one["dtype"] for one in manifest["weights"]["tensors"]}
    assert types["layers.0.attn.q.weight"] == "float16"
    kept = {one["name"].rpartition(".")[2]: one["dtype"] for one in manifest["state"]}
    assert kept == {"key": "float16", "value": "float16", "seen": "int8"}
