"""Loops of products: where LLVM keeps no vector of them on the stack.

What LLVM makes of a tile depends on the instruction set alone, so any machine sees it. Tiles that
walk a panel are here by the loops that stay loops. Of AVX2 and AVX-VNNI that is the one of weights
that are widened: of others, LLVM writes out all terms that share a scale, and with them the float
sums, which are more than the 16 registers hold. Kept in a loop of its own, the products of Q4_0 are
5 % slower (Zen 4, v3 code). Weights that are unpacked as they are multiplied have all terms of a
unit in one loop: docs/compiler.md says of which encodings that is more than the registers hold.
"""

from __future__ import annotations

import pytest

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.kernels.cpu.integer_dot import instruction_set
from maxtool.compiler.kernels.cpu.linear import linear
from maxtool.compiler.kernels.cpu.quantized_linear import quantized_linear
from maxtool.compiler.kernels.cpu.tile_dot import ROWS
from maxtool.dtype import DType
from tests.effort import thinned

from .assembly import assembly, count, functions, inner_loops, loops_around, loops_with, spills

pytestmark = pytest.mark.usefixtures("optimised")

# A CPU, the type of the weights, the instruction of the products.
FLOATS = [
    ("znver4", "bfloat16", "vdpbf16ps"),
    ("x86-64-v4", "bfloat16", "vfmadd231ps"),
    ("x86-64-v4", "float16", "vfmadd231ps"),
    ("x86-64-v3", "float32", "vfmadd231ps"),
    ("x86-64-v3", "bfloat16", "vfmadd231ps"),
    ("x86-64-v3", "float16", "vfmadd231ps"),
    ("x86-64", "float32", "mulps"),
    ("neoverse-v1", "bfloat16", "bfdot"),
    ("neoverse-n1", "float16", "fmla"),
]
PANELS = [
    ("cascadelake", "Q5_0", "vpdpbusd"),
    ("cascadelake", "Q5_K", "vpdpbusd"),
    ("x86-64-v4", "Q5_0", "vpmaddubsw"),
    ("x86-64-v4", "Q5_K", "vpmaddubsw"),
    ("x86-64-v3", "Q8_0", "vpmaddwd"),
    ("x86-64-v3", "IQ4_XS", "vpmaddwd"),
    ("neoverse-v1", "Q4_0", "smmla"),
    ("neoverse-v1", "Q8_0", "smmla"),
    ("neoverse-n1", "Q8_0", "sdot"),
]
# CPUs, and the encodings that they unpack and multiply in registers alone: of one row, and of the
# few rows of a low tile.
ONE_ROW = {
    "cascadelake": "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4",
    "x86-64-v4": "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q4_K Q5_K IQ4_NL IQ4_XS MXFP4",
    "sierraforest": "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q4_K IQ4_NL IQ4_XS MXFP4",
    "x86-64-v3": "Q4_0 Q4_1 Q5_0 Q5_1",
}
FEW_ROWS = {
    "cascadelake": "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K IQ4_NL IQ4_XS MXFP4",
    "x86-64-v4": "Q4_0 Q4_1 Q5_0 Q5_1 Q4_K IQ4_XS MXFP4",
    "sierraforest": "Q4_0 Q4_1 Q8_0 IQ4_NL IQ4_XS",
}
# The instructions of their products of narrow and of wide weights.
INSTRUCTIONS = {
    "cascadelake": ("vpdpbusd",),
    "x86-64-v4": ("vpmaddubsw", "vpmaddwd"),
    "sierraforest": ("vpdpbusd",),
    "x86-64-v3": ("vpmaddubsw", "vpmaddwd"),
}


@pytest.mark.parametrize(
    ("cpu", "dtype", "instruction"), thinned(FLOATS, FLOATS[0], FLOATS[4], FLOATS[7])
)
def test_products_of_floats(cpu: str, dtype: str, instruction: str) -> None:
    """Loops for one row and for many have none."""
    target = cpu_target(f"cpu:{cpu}")
    terms = target.terms(DType(dtype))
    loops = loops_with(assembly(target, linear(target.tile, dtype, terms=terms)), instruction)
    tile = target.tile
    sums = tile.mr * tile.nr // tile.width
    assert sums in [count(loop, instruction) for loop in loops], "the loop of the tile"
    assert not [line for loop in loops for line in spills(loop, target)]


@pytest.mark.parametrize(
    ("cpu", "encoding", "instruction"), thinned(PANELS, PANELS[1], PANELS[4], PANELS[7])
)
def test_tiles_that_walk_a_panel(cpu: str, encoding: str, instruction: str) -> None:
    """Tiles of many rows walk a column block in the shortest of the loops."""
    target = cpu_target(f"cpu:{cpu}")
    machine = instruction_set(target)
    code = assembly(target, quantized_linear(machine, encoding))
    tile = min(_tiles(code, instruction, "_multiply_panel"), key=len)
    assert count(tile, instruction) % machine.rows == 0
    assert not spills(tile, target)


def pairs(listed: dict[str, str]) -> list[tuple[str, str]]:
    """CPUs with each of their encodings."""
    return [(cpu, encoding) for cpu, all_of in listed.items() for encoding in all_of.split()]


@pytest.mark.parametrize(
    ("cpu", "encoding"),
    thinned(pairs(ONE_ROW), ("cascadelake", "Q6_K"), ("x86-64-v3", "Q4_0")),
)
def test_one_row_of_weights_that_are_unpacked_as_they_are_multiplied(
    cpu: str, encoding: str
) -> None:
    target, code = built(cpu, encoding)
    loops = [
        loop
        for instruction in INSTRUCTIONS[cpu]
        for body in functions(code, "_multiply_row")
        for loop in loops_around(body, instruction)
    ]
    assert loops
    assert not [line for loop in loops for line in spills(loop, target)]


@pytest.mark.parametrize(
    ("cpu", "encoding"),
    thinned(pairs(FEW_ROWS), ("cascadelake", "Q4_0"), ("sierraforest", "Q4_1")),
)
def test_a_few_rows_of_weights_that_are_unpacked_as_they_are_multiplied(
    cpu: str, encoding: str
) -> None:
    target, code = built(cpu, encoding)
    low = [
        loop
        for instruction in INSTRUCTIONS[cpu]
        for loop in _tiles(code, instruction, "_multiply_tile")
    ]
    assert low
    assert not [line for loop in low for line in spills(loop, target)]


def built(cpu: str, encoding: str) -> tuple[CpuTarget, str]:
    """A target, and the assembly of products of an encoding for it."""
    target = cpu_target(f"cpu:{cpu}")
    return target, assembly(target, quantized_linear(instruction_set(target), encoding))


def _tiles(code: str, instruction: str, name: str) -> list[list[str]]:
    """The loops of functions of a name, which multiply a tile, that have an instruction."""
    return [loop for body in functions(code, name) for loop in loops_around(body, instruction)]


@pytest.mark.parametrize("encoding", thinned(["Q4_0", "Q8_0", "IQ4_NL"], "Q8_0"))
def test_sums_of_tiles_are_read_once(encoding: str) -> None:
    """AMX writes its sums to memory; nothing else is there."""
    target = cpu_target("cpu:sapphirerapids+amx-int8")
    function = quantized_linear(instruction_set(target), encoding)
    (loop,) = loops_with(assembly(target, function), "tdpbssd")
    kept = spills(loop, target)
    assert len(kept) == ROWS
    assert all("\tvcvtdq2ps\t" in line for line in kept)


CODE = """
f:
.LA:
\tvmovups\t%zmm1, 64(%rsp)
\tjmp\t.LC
.LB:
\tvaddps\t%zmm1, %zmm2, %zmm2
\tjne\t.LA
\tret
.LC:
\tvmovups\t128(%rsp), %zmm3
\tmovq\t8(%rsp), %rax
\tje\t.LB
\tdecq\t%rcx
\tjmp\t.LC
"""


def test_loops_are_seen_wherever_their_blocks_lie() -> None:
    (loop,) = inner_loops(CODE)
    assert loop[0] == ".LC:" and loop[-1] == "\tjmp\t.LC"
    assert spills(loop, cpu_target("cpu:znver4")) == ["\tvmovups\t128(%rsp), %zmm3"]


NESTED = """
f:
.LA:
\tvpdpbusd\t%zmm1, %zmm2, %zmm3
.LB:
\tprefetcht1\t(%rax)
\tjne\t.LB
\tvmovups\t128(%rsp), %zmm3
\tjne\t.LA
\tret
f.1:
\tret
"""


def test_a_loop_around_another_is_seen_without_it() -> None:
    first, second = functions(NESTED, "f")
    (loop,) = loops_around(first, "vpdpbusd")
    assert not any("prefetch" in line for line in loop)
    assert spills(loop, cpu_target("cpu:znver4")) == ["\tvmovups\t128(%rsp), %zmm3"]
    assert second == "f.1:\n\tret\n"
