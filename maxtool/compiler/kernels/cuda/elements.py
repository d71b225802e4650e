"""Elements of any type in the registers of a thread: 16-bit floats as float32."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.elements import WIDENED, computed, constant, stored

__all__ = [
    "WIDENED",
    "computed",
    "constant",
    "read",
    "read_as",
    "read_vector",
    "rounded",
    "stored",
    "write",
    "write_vector",
]

# The function that rounds two of them into one register.
PACK = {"float16": "mt_pack_f16", "bfloat16": "mt_pack_bf16"}


def read(buffer: b.Buffer, index: Sequence[b.Index], dtype: str) -> b.Expr:
    """One element, in the type it is computed with."""
    value = b.load(buffer, index, 1)
    return b.to_float32(value, dtype) if dtype in WIDENED else value


def read_as(buffer: b.Buffer, index: Sequence[b.Index], dtype: str, kind: str) -> b.Expr:
    """One element, of type ``dtype`` there and ``kind`` here."""
    value = read(buffer, index, dtype)
    return value if computed(dtype) == kind else T.Cast(kind, value)


def write(buffer: b.Buffer, value: b.Expr, index: Sequence[b.Index], dtype: str) -> None:
    """Store what was computed, rounded to nearest even."""
    b.store(buffer, b.to_storage(value, dtype) if dtype in WIDENED else value, index, 1)


def rounded(value: b.Expr, dtype: str) -> b.Expr:
    """What was computed, as it would be read after it was written."""
    return b.to_float32(b.to_storage(value, dtype), dtype) if dtype in WIDENED else value


def read_vector(buffer: b.Buffer, index: Sequence[b.Index], lanes: int) -> list[b.Expr]:
    """Neighbours along the last dimension in float32, aligned to their size, read in one go."""
    held = b.scratch((lanes,))
    b.store(held, b.load(buffer, index, lanes), (0,), lanes)
    return [held[lane] for lane in range(lanes)]


def write_vector(
    buffer: b.Buffer, values: Sequence[b.Expr], index: Sequence[b.Index], dtype: str
) -> None:
    """Store neighbours along the last dimension, aligned to their size, in one go if they fit."""
    if dtype in WIDENED and len(values) != 4:
        *outer, last = index
        for offset, value in enumerate(values):
            write(buffer, value, (*outer, last + offset), dtype)
        return
    if dtype not in WIDENED:
        held = b.scratch((len(values),), dtype)
        for lane, value in enumerate(values):
            b.store(held, value, (lane,), 1)
        b.store(buffer, b.load(held, (0,), len(values)), index, len(values))
        return
    pairs = b.scratch((2,), "uint32")
    for pair in range(2):
        low, high = values[2 * pair : 2 * pair + 2]
        b.store(pairs, b.call(PACK[dtype], low, high, returns="uint32"), (pair,), 1)
    b.do(b.call("mt_store_8", b.pointer(buffer, *index), b.pointer(pairs, 0)))
