"""Inner loops of products of many rows: LLVM keeps no vector of them on the stack.

What LLVM makes of a tile depends on the instruction set alone, so any machine sees it. Of AVX2 and
AVX-VNNI, only the loop of weights of 8 bits is here, which are widened: of others, LLVM writes out
all terms that share a scale, and with them the float sums, which are more than the 16 registers
hold. Kept in a loop of its own, the products of Q4_0 are 5 % slower (Zen 4, v3 code).
"""

from __future__ import annotations

import pytest

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.kernels.cpu.integer_dot import instruction_set
from maxtool.compiler.kernels.cpu.linear import linear
from maxtool.compiler.kernels.cpu.quantized_linear import most_low_rows, quantized_linear
from maxtool.compiler.kernels.cpu.tile_dot import ROWS
from maxtool.compiler.quantized_layout import layout_of
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from tests.effort import thinned

from .assembly import assembly, inner_loops, loops_with, spills

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
QUANTIZED = [
    ("cascadelake", "Q4_0", "vpdpbusd"),
    ("cascadelake", "Q8_0", "vpdpbusd"),
    ("cascadelake", "Q5_K", "vpdpbusd"),
    ("x86-64-v4", "Q4_0", "vpmaddubsw"),
    ("x86-64-v4", "Q8_0", "vpmaddwd"),
    ("x86-64-v3", "Q8_0", "vpmaddwd"),
    ("neoverse-v1", "Q4_0", "smmla"),
    ("neoverse-v1", "Q8_0", "smmla"),
    ("neoverse-n1", "Q8_0", "sdot"),
]


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
    ("cpu", "encoding", "instruction"), thinned(QUANTIZED, QUANTIZED[1], QUANTIZED[5], QUANTIZED[7])
)
def test_products_of_integers(cpu: str, encoding: str, instruction: str) -> None:
    """Tiles of many rows walk a column block in the shortest of the loops."""
    target = cpu_target(f"cpu:{cpu}")
    machine = instruction_set(target)
    layout = layout_of(QuantizationEncoding[encoding])
    has_panel = most_low_rows(machine, [layout]) is not None
    loops = loops_with(assembly(target, quantized_linear(machine, encoding)), instruction)
    tile = min(loops, key=len)
    assert count(tile, instruction) % (machine.rows if has_panel else machine.few_rows) == 0
    assert not spills(tile, target)


@pytest.mark.parametrize("encoding", thinned(["Q4_0", "Q8_0", "IQ4_NL"], "Q8_0"))
def test_sums_of_tiles_are_read_once(encoding: str) -> None:
    """AMX writes its sums to memory; nothing else is there."""
    target = cpu_target("cpu:sapphirerapids+amx-int8")
    function = quantized_linear(instruction_set(target), encoding)
    (loop,) = loops_with(assembly(target, function), "tdpbssd")
    kept = spills(loop, target)
    assert len(kept) == ROWS
    assert all("\tvcvtdq2ps\t" in line for line in kept)


def count(loop: list[str], instruction: str) -> int:
    """Return how often a loop has an instruction."""
    return sum(f"\t{instruction}\t" in line for line in loop)


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
