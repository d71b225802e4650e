"""Instruction sets for quantized numbers: what each computes, wherever it can be tried.

Sets that this machine has run natively. Of all of them the kernels are also built with what their
instructions compute written out in plain TensorIR, which runs anywhere, and the code that LLVM
makes for a machine that has the set is searched for its instructions.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tvm import tirx
from tvm.tirx.script.builder import ir

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.integer_dot import (
    SETS,
    Dot,
    InstructionSet,
    IntegerDot,
    instruction_set,
    plain_bytes,
    plain_look_up,
)
from maxtool.compiler.kernels.cpu.quantized_linear import most_low_rows, quantized_linear
from maxtool.compiler.kernels.cpu.tile_dot import Place, TileDot
from maxtool.compiler.quantized_layout import layout_of
from maxtool.compiler.quantized_packing import pack_quantized
from maxtool.quantization import QuantizationEncoding, dequantize
from maxtool.runtime.loader.errors import MachineLacks
from maxtool.runtime.loader.host import TILES, check_machine
from tests.aarch64.emulation import EMULATED
from tests.effort import thinned

from .harness import HOST, call, compiled, compiled_for, error, normal
from .quantized_numbers import SAME_INTEGERS, blocks_of, rounded

E = QuantizationEncoding
# Weights from zero on, of eight bits, looked up, and with a scale for 16 terms.
ENCODINGS = thinned([E.Q5_K, E.Q8_0, E.IQ4_NL, E.Q6_K], E.Q5_K)

# A CPU with each set and not the better ones, and the instructions of its products of narrow and
# of wide weights.
CPUS = {
    "amx-int8": ("sapphirerapids+amx-int8", "tdpbssd", "tdpbssd"),
    "avx512vnni": ("cascadelake", "vpdpbusd", "vpdpbusd"),
    "avx512bw": ("x86-64-v4", "vpmaddubsw", "vpmaddwd"),
    "avxvnni": ("sierraforest", "vpdpbusd", "vpdpbusd"),
    "avx2": ("x86-64-v3", "vpmaddubsw", "vpmaddwd"),
    "i8mm": ("neoverse-v1", "smmla", "smmla"),
    "dotprod": ("neoverse-n1", "sdot", "sdot"),
}
# Features with which LLVM has the instructions of a set besides the set's own.
ALSO = {"avxvnni": "avx512vnni"}
NATIVE = [name for name in SETS if {name, ALSO.get(name)} & set(HOST.features)]
TILED = cpu_target(f"cpu:{CPUS[TILES][0]}")


def has_tiles() -> bool:
    """Tell whether this machine has AMX and gives leave to use it."""
    try:
        check_machine(TILED.manifest)
    except MachineLacks:
        return False
    return EMULATED not in os.environ


# They are used only where they are asked for.
TARGETS = dict.fromkeys(NATIVE, HOST) | ({TILES: TILED} if has_tiles() else {})


def agrees(
    machine: InstructionSet, encoding: QuantizationEncoding, target: CpuTarget = HOST
) -> None:
    """Compare products of one row and of several with those of the same integers."""
    function = compiled_for(target, quantized_linear(machine, encoding.name))
    n, k = 37, 768  # three column blocks, of which the last panel may have one
    layout = layout_of(encoding)
    blocks = blocks_of(0, encoding, n, k)
    packed, weight = pack_quantized(blocks, encoding), dequantize(blocks, encoding).astype("f8")
    for rows in (1, 3, most_low_rows(machine, [layout]) + machine.rows + 1):
        x = normal(rows, rows, k)
        actual = call(function, x, packed, shape=(rows, n))
        expected = rounded(x, layout.span) @ weight.T
        assert error(actual, expected) < SAME_INTEGERS


def plain_pairs(sums_type: str, weights: b.Expr, values: b.Expr) -> b.Expr:
    """Sums of 2 products in each of an integer type twice as wide."""
    lanes = int(sums_type.partition("x")[2])
    result = None
    for term in range(2):
        places = list(range(term, 2 * lanes, 2))
        weight, value = (
            ir.Cast(sums_type, tirx.Shuffle([b.let(vector)], places))
            for vector in (weights, values)
        )
        result = weight * value if result is None else result + weight * value
    return result


def plain_matrix(sums: b.Expr, weights: b.Expr, activations: b.Expr) -> b.Expr:
    """``smmla`` twice: each of 2 rows of 8 bytes times each of 4 columns of them."""
    wide = [
        b.let(ir.Cast(f"int32x{lanes}", ir.reinterpret(f"int8x{lanes}", vector)))
        for vector, lanes in ((weights, 32), (activations, 16))
    ]
    places = [(row, 2 * half + column) for half in (0, 1) for row in (0, 1) for column in (0, 1)]
    for term in range(8):
        weight, value = (
            tirx.Shuffle([vector], [8 * place[side] + term for place in places])
            for vector, side in zip(wide, (1, 0), strict=True)
        )
        sums = sums + weight * value
    return sums


def plain_tile(sums: b.Buffer, activations: Place, weights: Place, depth: int) -> None:
    """``tdpbssd``: 16 rows of bytes times 16 columns of them, whose terms are apart by fours."""
    (x, (*tile, first)), (w, (top, left)) = activations, weights
    with ir.serial(b.integer(16)) as row, ir.serial(b.integer(16)) as column:
        b.store(sums, b.int32(0), (row, column))
        with ir.serial(b.integer(depth)) as group, ir.serial(b.integer(4)) as term:
            word = b.let(x[(*tile, first + row * depth + group)])
            bits = ir.shift_left(word, ir.Cast("int32", 24 - 8 * term))
            weight = ir.reinterpret("int8", w[top + group, left + 4 * column + term])
            product = ir.shift_right(bits, b.int32(24)) * ir.Cast("int32", weight)
            b.store(sums, sums[row, column] + product, (row, column))


def nothing() -> None:
    """Do what plain TensorIR needs before and after."""


def written_out_matrices(dot: Dot | None) -> Dot | None:
    """A dot for unpacked weights whose instructions are plain TensorIR."""
    if isinstance(dot, TileDot):
        return replace(
            dot,
            look_up=plain_look_up,
            multiply=plain_tile,
            configure=nothing,
            release=nothing,
        )
    return dot and written_out(dot)


def written_out(dot: IntegerDot) -> IntegerDot:
    """A dot whose instructions are plain TensorIR."""
    integers = b.vector_type("int32", dot.lanes)

    def of_words(sums: b.Expr, weights: b.Expr, values: b.Expr) -> b.Expr:
        words = b.vector_type("int16", 2 * dot.lanes)
        return sums + plain_pairs(
            integers, ir.reinterpret(words, weights), ir.reinterpret(words, values)
        )

    def of_bytes(sums: b.Expr, weights: b.Expr, values: b.Expr) -> b.Expr:
        signed = b.vector_type("int8", 4 * dot.lanes)
        return sums + plain_pairs(dot.sum_type, weights, ir.reinterpret(signed, values))

    def of_signed(sums: b.Expr, weights: b.Expr, values: b.Expr) -> b.Expr:
        signed = ir.reinterpret(b.vector_type("int8", 4 * dot.lanes), weights)
        return plain_bytes(dot.lanes, sums, signed, values)

    multiply = partial(plain_bytes, dot.lanes)
    if dot.words:
        multiply = of_words
    elif dot.sums == "int16":
        multiply = of_bytes
    elif dot.rows > 1:
        multiply = plain_matrix
    elif dot.signed:
        multiply = of_signed
    pairs = None if dot.pairs is None else partial(plain_pairs, integers)
    return replace(dot, multiply=multiply, look_up=plain_look_up, pairs=pairs)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda each: each.name)
@pytest.mark.parametrize("name", TARGETS)
def test_what_this_machine_runs(name: str, encoding: QuantizationEncoding) -> None:
    agrees(SETS[name], encoding, TARGETS[name])


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda each: each.name)
@pytest.mark.parametrize("name", SETS)
def test_what_the_instructions_compute(name: str, encoding: QuantizationEncoding) -> None:
    dot = written_out(SETS[name].unpacking(layout_of(encoding)))
    matrices = written_out_matrices(SETS[name].matrices)
    rows = 2 if matrices is None else matrices.rows
    blocks = SETS[name].blocks
    agrees(InstructionSet(dot, dot, HOST.tile.width, rows, blocks, matrices), encoding)


@pytest.mark.parametrize("name", SETS)
def test_the_code_has_the_instructions(name: str) -> None:
    cpu, narrow, wide = CPUS[name]
    target = cpu_target(f"cpu:{cpu}")
    machine = instruction_set(target)
    assert machine is SETS[name]
    for encoding, instruction in (("Q4_0", narrow), ("Q8_0", wide)):
        function = quantized_linear(machine, encoding)
        module = b.build({"kernel": function}, target.tvm)
        assert f"\t{instruction}\t" in module.mod.inspect_source("asm").replace("{vex}\t", "\t")


def test_numbers_that_are_not_rounded_wrong() -> None:
    """Ties go to the even neighbour, as in NumPy."""
    x = np.zeros((1, 256), "f4")
    x[0, :6] = (127, 0.5, 1.5, 2.5, -0.5, -1.5)
    weight = np.ones((16, 256), "f4")
    blocks = blocks_of(0, E.Q8_0, 16, 256)
    records = blocks.view([("d", "<f2"), ("qs", "i1", 32)])
    records["d"], records["qs"] = 1, 1
    function = compiled(quantized_linear, instruction_set(HOST), "Q8_0")
    actual = call(function, x, pack_quantized(blocks, E.Q8_0), shape=(1, 16))
    np.testing.assert_array_equal(actual, np.rint(x) @ weight.T)
