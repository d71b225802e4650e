"""Targets by name, what the machine's kernel hides, and kernels compiled for other machines."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm

from maxtool.compiler import cpu_target as targets
from maxtool.compiler.cpu_target import HOST_CPU, TILES, RegisterTile, cpu_target
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.attention import attention
from maxtool.compiler.kernels.cpu.backend import CpuBackend
from maxtool.compiler.kernels.cpu.embedding import embedding
from maxtool.compiler.kernels.cpu.linear import linear
from maxtool.compiler.kernels.cpu.norm import rms_norm
from maxtool.compiler.kernels.cpu.rope import rope
from maxtool.compiler.kernels.kernel_options import SILU_MUL
from maxtool.compiler.kernels.kv_cache_write import cache_write
from maxtool.compiler.kernels.pointwise import pointwise
from maxtool.dtype import DType
from maxtool.errors import MachineLacks, UsageError
from maxtool.runtime import loader
from tests.effort import thinned


@pytest.mark.parametrize(
    ("name", "triple", "cpu", "feature"),
    [
        ("cpu:x86-64", "x86_64-linux-gnu", "x86-64", "sse2"),
        ("cpu:x86-64-v3", "x86_64-linux-gnu", "x86-64-v3", "avx2"),
        ("cpu:x86-64-v4", "x86_64-linux-gnu", "x86-64-v4", "avx512f"),
        ("cpu:znver5", "x86_64-linux-gnu", "znver5", "avx512f"),
        ("cpu:neoverse-n1", "aarch64-linux-gnu", "neoverse-n1", "neon"),
        ("cpu:aarch64-linux-gnu", "aarch64-linux-gnu", "generic", "neon"),
        ("cpu:apple-m1", "arm64-apple-macos", "apple-m1", "neon"),
    ],
)
def test_names(name: str, triple: str, cpu: str, feature: str) -> None:
    target = cpu_target(name)
    assert (target.triple, target.cpu, target.host) == (triple, cpu, False)
    assert replace(target.tile, pairs=None) == TILES[feature]
    assert target.manifest == {
        "kind": "cpu",
        "triple": triple,
        "cpu": cpu,
        "features": list(target.features),
    }


def test_sets_that_only_some_machines_have_are_recorded() -> None:
    """LLVM vectorises with SVE by itself, and hypervisors may hide it."""
    assert {"fullfp16", "sve"} <= set(cpu_target("cpu:neoverse-v1").features)
    assert "sve2" in cpu_target("cpu:neoverse-n2").features
    assert "sve" not in cpu_target("cpu:neoverse-n1").features


def test_tiles_are_used_only_where_they_are_asked_for() -> None:
    plain, asked = cpu_target("cpu:sapphirerapids"), cpu_target("cpu:sapphirerapids+amx-int8")
    assert "amx-int8" not in plain.features
    assert asked.features == ("amx-int8", *plain.features)
    assert asked.manifest["features"] == list(asked.features)
    for name in ("znver5+amx-int8", "sapphirerapids+", "sapphirerapids+avx512fp16"):
        with pytest.raises(UsageError, match=r"to add to (znver5|sapphirerapids)"):
            cpu_target(f"cpu:{name}")


@pytest.mark.parametrize("name", ["gpu", "cpu:", "cpu:znver99", "cpu:a-b-c", "", "cpu:mips-x-y"])
def test_unknown_names_say_what_is_known(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        cpu_target(name)
    assert "znver5" in (raised.value.hint or "")


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(UsageError, match="did you mean znver5"):
        cpu_target("cpu:zenver5")


def test_this_machine() -> None:
    target = cpu_target()
    assert target.host
    assert replace(target.tile, pairs=None) in TILES.values()
    assert target.cpu


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes this machine a Cascade Lake whose kernel lists these flags."""

    def make(flags: str) -> None:
        listing = tmp_path / "cpuinfo"
        listing.write_text(f"processor : 0\nflags\t\t: {flags}\n")
        monkeypatch.setattr(targets, "CPU_FLAGS", listing)
        monkeypatch.setattr(targets.platform, "system", lambda: "Linux")
        monkeypatch.setattr(targets.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(targets.codegen, "llvm_get_system_cpu", lambda: "cascadelake")
        monkeypatch.delenv(HOST_CPU, raising=False)

    return make


@pytest.mark.parametrize(
    ("flags", "tile"),
    [("fpu sse2 avx2 fma", TILES["avx2"]), ("fpu sse2", TILES["sse2"])],
)
def test_hidden_instructions_are_not_used(
    machine: Callable[[str], None], flags: str, tile: RegisterTile
) -> None:
    machine(flags)
    assert cpu_target().tile is tile


def test_each_recorded_instruction_set_is_asked_for(machine: Callable[[str], None]) -> None:
    """A virtual machine may hide the newest sets of a CPU alone."""
    older = "fpu sse2 avx2 fma f16c avx512f avx512bw"
    machine(f"{older} avx512_vnni")
    assert (cpu_target().cpu, "avx512vnni" in cpu_target().features) == ("cascadelake", True)
    machine(older)
    assert (cpu_target().cpu, "avx512vnni" in cpu_target().features) == ("x86-64-v4", False)


def test_sets_beside_those_that_the_name_promises(machine: Callable[[str], None]) -> None:
    """A virtual machine may pass an older CPU's name on, and the sets of the one that it is."""
    flags = "fpu sse2 avx2 fma f16c avx512f avx512bw avx512_vnni avx512_bf16"
    machine(flags)
    target = cpu_target()
    assert (target.cpu, target.added) == ("cascadelake", ("avx512bf16",))
    assert target.tile.pairs == "avx512bf16"
    assert "+avx512bf16" in target.tvm.attrs["mattr"]
    assert "avx512bf16" in target.manifest["features"]
    machine(f"{flags} avx512_fp16 avx_vnni")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOST_CPU, "sapphirerapids")
        assert cpu_target().added == ()


@pytest.mark.parametrize("leave", [True, False])
def test_tiles_of_this_machine_are_used_where_its_system_lets_them(
    machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, *, leave: bool
) -> None:
    def ask(_kind: str) -> None:
        if not leave:
            raise loader.MachineLacks("no leave")

    monkeypatch.setattr(targets, "ask_for_tiles", ask)
    machine(f"{ALL} amx_tile amx_int8")
    target = cpu_target()
    assert ("amx-int8" in target.features) is leave
    assert ("+amx-int8" in target.tvm.attrs["mattr"]) is leave
    assert "amx-int8" not in cpu_target("cpu:sapphirerapids").features


def test_sets_that_nothing_goes_with_are_not_added(machine: Callable[[str], None]) -> None:
    machine("fpu sse2 avx2 fma avx512_vnni avx512_bf16")
    assert (cpu_target().cpu, cpu_target().added) == ("x86-64-v3", ())


ALL = "fpu sse2 avx2 fma f16c avx512f avx512bw avx512_vnni"
LESSER = {"x86-64": "sse2", "x86-64-v2": "sse2", "x86-64-v3": "avx2", "x86-64-v4": "avx512f"}


@pytest.mark.parametrize(("name", "feature"), LESSER.items())
def test_this_machine_as_a_lesser_one(
    machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, name: str, feature: str
) -> None:
    machine(ALL)
    monkeypatch.setenv(HOST_CPU, name)
    target = cpu_target()
    assert (target.cpu, target.host, target.tile) == (name, True, TILES[feature])
    assert target.features == cpu_target(f"cpu:{name}").features
    assert cpu_target("cpu:znver5").cpu == "znver5", "a target that is named stays what it is"


@pytest.mark.parametrize(
    ("flags", "name", "kind", "message"),
    [
        (ALL, "znver4", MachineLacks, "znver4: .*cascadelake.* has no avx512bf16"),
        ("fpu sse2 avx2 fma", "x86-64-v4", MachineLacks, "has no .*avx512f"),
        (ALL, "sapphirerapids", MachineLacks, "avx512bf16, avx512fp16, avxvnni"),
        (ALL, "neoverse-n1", UsageError, "no such CPU for x86_64-linux-gnu"),
        (ALL, "x86-64-v9", UsageError, "MAXTOOL_HOST_CPU=x86-64-v9"),
    ],
)
def test_what_this_machine_is_not(
    machine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    flags: str,
    name: str,
    kind: type[Exception],
    message: str,
) -> None:
    machine(flags)
    monkeypatch.setenv(HOST_CPU, name)
    with pytest.raises(kind, match=message):
        cpu_target()


@pytest.mark.parametrize(
    ("name", "pairs"),
    [("znver4", "avx512bf16"), ("icelake-server", None), ("neoverse-v1", "bf16")],
)
def test_which_machines_multiply_pairs_of_bfloat16(name: str, pairs: str | None) -> None:
    target = cpu_target(f"cpu:{name}")
    assert target.tile.pairs == pairs
    assert target.terms(DType.bfloat16) == (2 if pairs else 1)
    assert target.terms(DType.float16) == target.terms(DType.float32) == 1


def test_tiles_fit_their_registers() -> None:
    for tile in TILES.values():
        vectors = tile.nr // tile.width
        assert tile.nr % tile.width == 0
        assert tile.mr * vectors + vectors + 1 <= tile.registers


def every_kernel(tile: RegisterTile) -> dict[str, Any]:
    return {
        "linear": linear(tile, "float32", True),
        "linear_f16": linear(tile, "float16"),
        "linear_bf16": linear(tile, "bfloat16"),
        "linear_pairs": linear(tile, "bfloat16", terms=2),
        "embedding": embedding(tile, 40, 64, "float16", tile.nr),
        "norm": rms_norm(tile, 64, 1e-5),
        "gate": pointwise(CpuBackend(tile), 64, 2, SILU_MUL),
        "rope": rope(tile, 16, 16),
        "key": cache_write(CpuBackend(tile), 2, 16, "float32", transposed=True),
        "value": cache_write(CpuBackend(tile), 2, 16, "float32"),
        "attention": attention(tile, 4, 2, 16, 0.25, 32),
    }


# The machines that are least like each other, by the number that ELF has for them.
OTHERS = (("cpu:aarch64-linux-gnu", 183), ("cpu:x86-64", 62))


@pytest.mark.parametrize(
    ("name", "machine"),
    thinned(
        [*OTHERS, ("cpu:x86-64-v3", 62), ("cpu:znver5", 62)],
        *OTHERS,
    ),
)
def test_every_kernel_compiles_for_other_machines(tmp_path: Path, name: str, machine: int) -> None:
    target = cpu_target(name)
    module = builder.build(every_kernel(target.tile), target.tvm)
    path = tmp_path / "kernels.o"
    module.mod.write_to_file(str(path), "o")
    header = path.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", header, 18)[0] == machine


def test_wide_vectors_are_used_where_there_are_any() -> None:
    target = cpu_target("cpu:cascadelake")
    kernels = {"linear": linear(target.tile, "float32")}
    assembly = builder.build(kernels, target.tvm).mod.inspect_source("asm")
    multiplies = [line for line in assembly.splitlines() if "vfmadd" in line]
    assert multiplies
    assert all("zmm" in line for line in multiplies)


def test_the_pipeline_keeps_small_buffers_out_of_the_pool() -> None:
    target = cpu_target("cpu:x86-64-v3")
    kernels = {"norm": rms_norm(target.tile, 64, 1e-5)}
    code = builder.build(kernels, target.tvm).mod.inspect_source("ll")
    assert "call ptr @TVMBackendAllocWorkspace" not in code
    assert "AllocWorkspace, align" not in code
    assert isinstance(target.tvm, tvm.target.Target)
