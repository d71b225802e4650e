"""Products of tiles of quantized numbers by AMX: registers of 16 rows of 64 bytes.

Intel's manual, volume 1, chapter 18, has the form of the configuration. Sums are written to memory
as they are scaled: terms that share a scale are as many as one instruction multiplies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.operands import LookUp, Operands
from maxtool.compiler.quantized_layout import COLUMNS, GROUP, VECTOR, RecordLayout

ROWS = 16
# By the groups of 4 terms that share a scale: the registers of activations and of weights.
FACTORS = {8: (1, 2), 4: (3, 4)}
SUMS = 0  # the register of the sums

# Where numbers begin in memory.
Place: TypeAlias = tuple[b.Buffer, b.Indices]
# Sums int32 [16, 16], activations int8 [16, 4 * depth], weights int8 [depth, 16, 4], depth: writes
# the products of each row and each column.
MultiplyTile: TypeAlias = Callable[[b.Buffer, Place, Place, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TileDot(Operands):
    """A way to multiply 16 rows by 16 columns of all terms that share a scale.

    Attributes:
        multiply: Writes the sums of products.
        configure: Says what tiles look like, before the first of a task.
        release: Undoes that, after the last.
    """

    multiply: MultiplyTile
    configure: Callable[[], None]
    release: Callable[[], None]

    @property
    def neighbours(self) -> int:
        """Groups of a column that lie side by side in a panel: rows of a tile have one of each."""
        return 1

    def of(self, layout: RecordLayout) -> Self:
        """The same for weights of a layout, of which a tile holds what shares a scale."""
        return replace(self, depth=layout.terms // GROUP)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Emit statements that multiply so."""
        self.configure()
        yield
        self.release()


def amx(look_up: LookUp) -> TileDot:
    """Return ``tdpbssd``, which multiplies signed bytes."""
    return TileDot(
        COLUMNS,
        look_up,
        signed=True,
        centred=True,
        rows=ROWS,
        multiply=_multiply,
        configure=_configure,
        release=lambda: _instruction("tilerelease"),
    )


def _multiply(sums: b.Buffer, activations: Place, weights: Place, depth: int) -> None:
    rows, columns = FACTORS[depth]
    _instruction("tilezero", _register(SUMS))
    _move("tileloadd64", rows, activations, depth * GROUP)
    _move("tileloadd64", columns, weights, VECTOR)
    _instruction("tdpbssd", _register(SUMS), _register(rows), _register(columns))
    _move("tilestored64", SUMS, (sums, (0, 0)), VECTOR)


def _configure() -> None:
    """Give all registers their sizes: bytes of a row at byte 16 on, rows at byte 48 on."""
    sizes = {SUMS: (ROWS, VECTOR)}
    for depth, (rows, columns) in FACTORS.items():
        sizes |= {rows: (ROWS, depth * GROUP), columns: (depth, VECTOR)}
    data = bytearray(64)
    data[0] = 1  # the only palette there is
    for register, (rows, stride) in sizes.items():
        data[16 + 2 * register] = stride
        data[48 + register] = rows
    words = b.scratch((8,), "int64")
    for at in range(8):
        word = int.from_bytes(data[8 * at : 8 * at + 8], "little", signed=True)
        b.store(words, tirx.const(word, "int64"), (at,))
    _instruction("ldtilecfg", T.address_of(words[0]))


def _move(name: str, register: int, place: Place, stride: int) -> None:
    """Move a tile from or to memory, where its rows are so many bytes apart."""
    buffer, index = place
    address = T.address_of(buffer[tuple(index)])
    _instruction(name, _register(register), address, tirx.const(stride, "int64"))


def _register(number: int) -> b.Expr:
    return tirx.const(number, "int8")


def _instruction(name: str, *operands: b.Expr) -> None:
    T.evaluate(T.call_llvm_intrin("void", f"llvm.x86.{name}", *operands))
