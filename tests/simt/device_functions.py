"""The functions of CUDA C++ that kernels call by name: what their instructions are said to do.

Fragments lie in registers as the PTX ISA draws them: a warp's thread ``lane`` has the group
``lane // 4`` and the place ``lane % 4`` in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.simt.dtypes import Array, Value, uniform
from tests.simt.faults import Unsupported
from tests.simt.flat_memory import FlatMemory
from tests.simt.memory import WIDEST, Address, Either, Pointer
from tests.simt.scope import WARP, Scope
from tests.simt.warps import require_warps

U32 = np.dtype(np.uint32)
U16 = np.dtype(np.uint16)
F32 = np.dtype(np.float32)
F16 = np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)

LANE = np.arange(WARP)
GROUP, PLACE = LANE // 4, LANE % 4
# Rows and columns of the two 16-bit values in each register of a lane: [registers, lanes, 2].
PAIR = np.arange(2)
A_ROW = np.stack([GROUP + 8 * (r % 2) for r in range(4)])[..., None] + 0 * PAIR
A_COLUMN = np.stack([PLACE * 2 + 8 * (r // 2) for r in range(4)])[..., None] + PAIR
B_ROW = np.stack([PLACE * 2 + 8 * r for r in range(2)])[..., None] + PAIR
B_COLUMN = np.stack([GROUP, GROUP])[..., None] + 0 * PAIR
# Of each of the four sums of a lane: [registers, lanes].
D_ROW = np.stack([GROUP + 8 * (r // 2) for r in range(4)])
D_COLUMN = np.stack([PLACE * 2 + r % 2 for r in range(4)])


def _mma(half: np.dtype[Any]) -> Callable[..., None]:
    """``mma.sync.m16n8k16``: ``d += a @ b`` with a [16, 16], b [16, 8] and float32 sums."""

    def apply(scope: Scope, d: Pointer, a: Pointer, b: Pointer) -> None:
        require_warps(scope, "mma")
        left = _matrix(_registers(scope, a, 4), half, (16, 16), A_ROW, A_COLUMN)
        right = _matrix(_registers(scope, b, 2), half, (16, 8), B_ROW, B_COLUMN)
        product = left @ right
        sums = d.load(scope, F32, 4)
        per_lane = product[:, D_ROW, D_COLUMN].transpose(1, 0, 2).reshape(4, scope.size)
        d.store(scope, F32, 4, sums + per_lane)

    return apply


def _registers(scope: Scope, pointer: Pointer, count: int) -> Array:
    """[warps, registers, lanes] of a fragment."""
    words = np.ascontiguousarray(pointer.load(scope, U32, count))
    return words.reshape(count, -1, WARP).transpose(1, 0, 2)


def _matrix(
    registers: Array, half: np.dtype[Any], shape: tuple[int, int], row: Array, column: Array
) -> Array:
    values = np.ascontiguousarray(registers).view(half).reshape(*registers.shape, 2)
    matrix = np.empty((len(registers), *shape), np.float32)
    matrix[:, row, column] = values.astype(np.float32)
    return matrix


def _ldmatrix(*, transposed: bool) -> Callable[..., None]:
    """Four 8x8 matrices of 16-bit values; lane ``8 m + i`` gives the address of row i of m."""

    def apply(scope: Scope, registers: Pointer, row: Pointer) -> None:
        require_warps(scope, "ldmatrix")
        if not isinstance(row.memory, FlatMemory) or not row.memory.per_block:
            raise Unsupported("ldmatrix from something other than shared memory")
        words = row.load(scope, U32, 4)
        halves = np.ascontiguousarray(np.broadcast_to(words, (4, scope.size)).T).view(U16)
        matrices = halves.reshape(-1, 4, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(-1, -2)
        pairs = np.ascontiguousarray(matrices).view(U32)  # [warps, matrices, 8, 4]
        registers.store(scope, U32, 4, pairs.reshape(-1, 4, WARP).transpose(1, 0, 2).reshape(4, -1))

    return apply


def _either(_: Scope, taken: Value, first: Address, second: Address) -> Address:
    if uniform(taken):
        return first if taken else second
    return Either(taken, first, second)


def _load(words: int) -> Callable[..., None]:
    def apply(scope: Scope, registers: Pointer, pointer: Pointer) -> None:
        registers.store(scope, U32, words, pointer.load(scope, U32, words))

    return apply


def _store(words: int) -> Callable[..., None]:
    def apply(scope: Scope, pointer: Pointer, registers: Pointer) -> None:
        pointer.store(scope, U32, words, registers.load(scope, U32, words))

    return apply


def _unpack(half: np.dtype[Any]) -> Callable[..., None]:
    def apply(scope: Scope, floats: Pointer, bits: Value) -> None:
        pairs = np.ascontiguousarray(scope.full(bits)).astype(U32).view(half).reshape(-1, 2)
        floats.store(scope, F32, 2, pairs.T.astype(np.float32))

    return apply


def _pack(half: np.dtype[Any]) -> Callable[..., Value]:
    def apply(scope: Scope, low: Value, high: Value) -> Value:
        pair = np.stack([scope.full(low), scope.full(high)], axis=-1).astype(half)
        return np.ascontiguousarray(pair).view(U32)[:, 0]

    return apply


def _bf16(scope: Scope, x: Value) -> Value:
    return scope.full(x).astype(BF16).view(U16)


def _copies(scope: Scope) -> Any:
    if scope.chunk is None:
        raise Unsupported("an asynchronous copy on the host")
    return scope.chunk.copies


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mt_mma_f16": _mma(F16),
    "mt_mma_bf16": _mma(BF16),
    "mt_ldmatrix_x4": _ldmatrix(transposed=False),
    "mt_ldmatrix_x4_trans": _ldmatrix(transposed=True),
    "mt_cp_async_16": lambda scope, *inputs: _copies(scope).start(scope, *inputs),
    "mt_cp_async_commit": lambda scope: _copies(scope).commit(scope),
    "mt_cp_async_wait": lambda scope, left: _copies(scope).wait(scope, left),
    "mt_either": _either,
    "mt_load_16": _load(WIDEST // 4),
    "mt_store_16": _store(WIDEST // 4),
    "mt_load_8": _load(2),
    "mt_store_8": _store(2),
    "mt_unpack_f16": _unpack(F16),
    "mt_unpack_bf16": _unpack(BF16),
    "mt_pack_f16": _pack(F16),
    "mt_pack_bf16": _pack(BF16),
    "mt_bf16": _bf16,
}

# Of each pointer among the arguments: bytes of one access (0: as wide as an element), and whether
# it is written.
POINTERS: dict[str, dict[int, tuple[int, bool]]] = {
    "mt_mma_f16": {0: (0, True), 1: (0, False), 2: (0, False)},
    "mt_mma_bf16": {0: (0, True), 1: (0, False), 2: (0, False)},
    "mt_ldmatrix_x4": {0: (0, True), 1: (16, False)},
    "mt_ldmatrix_x4_trans": {0: (0, True), 1: (16, False)},
    "mt_cp_async_16": {0: (16, True), 1: (0, False)},
    "mt_either": {1: (0, False), 2: (0, False)},
    "mt_load_16": {0: (0, True), 1: (16, False)},
    "mt_store_16": {0: (16, True), 1: (0, False)},
    "mt_load_8": {0: (0, True), 1: (8, False)},
    "mt_store_8": {0: (8, True), 1: (0, False)},
    "mt_unpack_f16": {0: (0, True)},
    "mt_unpack_bf16": {0: (0, True)},
}


def known(name: str) -> Callable[..., Any] | None:
    """The function of a name, if there is one; it takes the scope first."""
    return FUNCTIONS.get(name)
