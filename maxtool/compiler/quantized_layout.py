"""Places of the bits of a packed quantized weight: a table, for packing and for kernels.

A record holds the blocks of 16 output features (columns) for the same stretch of terms. Its bytes
are those of the GGUF blocks in another order: of the quants, 4 neighbouring bytes of all columns
follow each other, so that a vector of 64 bytes is 16 columns by 4 terms; and each byte of integer
scales, and each float16, is there for the 16 columns side by side.

They come in the order in which a kernel for one row reads them, or the CPU would not fetch ahead:
what all units share, unit after unit its quants and integer scales, then float16 scales. A unit is
a stretch of terms that share bytes of quants.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from maxtool.quantization import QuantizationEncoding

# Output features of a record, and neighbouring bytes of quants of each that lie together: an int32
# lane of a vector register is 4 terms of a column.
COLUMNS = 16
LANE = 4
VECTOR = COLUMNS * LANE

# Terms of a lane of quants, and of a unit at least.
GROUP = 4
LEAST_UNIT = 32

# Fields of which each unit has a part.
INTEGER_SCALES = ("scales", "minima")


@dataclass(frozen=True, slots=True)
class Plane:
    """Some bits of each quant of a block.

    ``run`` bytes hold the lowest ``bits`` of as many terms, then the next ones of the following
    terms, and so on: see ``maxtool.quantization.block.unpack``.
    """

    field: str
    bits: int
    run: int

    @property
    def period(self) -> int:
        """Terms that share ``run`` bytes."""
        return self.run * 8 // self.bits

    def vector(self, group: int) -> int:
        """The vector, counted from the plane's first, that holds a group of 4 terms."""
        period, run = self.period // GROUP, self.run // LANE
        return group // period * run + group % run

    def shift(self, group: int) -> int:
        """The bit of each byte at which the group's bits begin."""
        return self.bits * (group % (self.period // GROUP) // (self.run // LANE))


@dataclass(frozen=True, slots=True)
class Field:
    """One part of a record: ``count`` items of each column.

    ``lane`` items of a column are neighbours, then come those of the next column.
    """

    name: str
    dtype: str  # of NumPy, little endian
    count: int
    lane: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes of an item."""
        return int(self.dtype[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of a record."""
        return COLUMNS * self.count * self.itemsize

    @property
    def lanes(self) -> int:
        """Pieces, of ``lane`` items of each column."""
        return self.count // self.lane

    @property
    def size(self) -> int:
        """Bytes of a piece."""
        return COLUMNS * self.lane * self.itemsize


@dataclass(frozen=True)
class RecordLayout:
    """The record of an encoding, and how an element follows from it.

    An element is ``d * scale * (quant - zero) - minimum``; ``scale`` is an integer, or 1 for the
    encodings of 32 elements. ``minimum`` is ``dmin`` times an integer, or ``-m``. MXFP4 has an
    exponent ``e`` in place of ``d``.

    Attributes:
        encoding: What it is the record of.
        planes: Bits of the quants, the lowest first.
        zero: Subtracted from quants.
        terms: Terms that share a scale.
        fields: Parts of the record, in order.
        values: What ``quant - zero`` is for each code, where quants are looked up.
        signed: Whether a quant is stored less ``zero``, as int8.
    """

    encoding: QuantizationEncoding
    planes: tuple[Plane, ...]
    zero: int
    terms: int
    fields: tuple[Field, ...]
    values: tuple[int, ...] | None = None
    signed: bool = False

    @property
    def span(self) -> int:
        """Terms of a record."""
        return self.encoding.elements_per_block

    @property
    def nbytes(self) -> int:
        """Bytes of a record."""
        return sum(field.nbytes for field in self.fields)

    @property
    def largest(self) -> int:
        """The largest quant."""
        if self.values is not None:
            return max(self.values) + self.zero
        return (1 << sum(plane.bits for plane in self.planes)) - 1

    @property
    def is_quickly_unpacked(self) -> bool:
        """Return whether quants lie in whole bytes or halves, which takes two operations.

        Codes take more, as they are looked up.
        """
        return len(self.planes) == 1 and self.planes[0].bits >= 4 and self.values is None

    @property
    def unit(self) -> int:
        """Terms of a unit."""
        return max(LEAST_UNIT, self.planes[0].period)

    @property
    def units(self) -> int:
        """Units of a record."""
        return self.span // self.unit

    @property
    def parts(self) -> int:
        """Scales of a unit."""
        return self.unit // self.terms

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Groups of 4 terms of a unit, those that share bytes after each other."""
        plane, groups = self.planes[0], range(self.unit // GROUP)
        whole = LEAST_UNIT // GROUP
        return tuple(sorted(groups, key=lambda group: (plane.vector(group) % whole, group)))

    def is_shared(self, plane: Plane) -> bool:
        """Return whether bytes of a plane are of several units."""
        return plane.period > self.unit

    @cached_property
    def starts(self) -> dict[str, tuple[int, ...]]:
        """The first byte of each piece of a field, in a record."""
        starts: dict[str, list[int]] = {field.name: [] for field in self.fields}
        at = 0
        for name in self._sequence():
            starts[name].append(at)
            at += self.field(name).size
        order = {name: self._pieces(name) for name in starts}
        return {
            name: tuple(at for _, at in sorted(zip(order[name], starts[name], strict=True)))
            for name in starts
        }

    @property
    def stride(self) -> int:
        """Bytes of a unit: from a piece of one unit to that of the next."""
        return sum(self.field(name).size for name in self._of_unit())

    def field(self, name: str) -> Field:
        """Return the field of that name."""
        return next(field for field in self.fields if field.name == name)

    def _sequence(self) -> list[str]:
        """The names of the fields of all pieces of a record, in order."""
        shared = [plane.field for plane in self.planes if self.is_shared(plane)]
        first = [name for name in shared for _ in range(self.field(name).lanes)]
        units = self._of_unit() * self.units
        last = [field.name for field in self.fields if field.name not in {*first, *units}]
        return [*first, *units, *last]

    def _of_unit(self) -> list[str]:
        """The names of the fields of all pieces of a unit."""
        scales = [field for field in self.fields if field.name in INTEGER_SCALES]
        each = [field.name for field in scales for _ in range(field.count // self.units)]
        return [name for name, _ in self._vectors()] + each

    def _vectors(self) -> list[tuple[str, int]]:
        """Vectors of quants of the first unit, by field and number, in order of their use."""
        own = [plane for plane in self.planes if not self.is_shared(plane)]
        uses = [(plane.field, plane.vector(group)) for group in self.order for plane in own]
        return list(dict.fromkeys(uses))

    def _pieces(self, name: str) -> list[int]:
        """The numbers of a field's pieces in the order in which they are in a record."""
        first = [vector for field, vector in self._vectors() if field == name]
        if not first:
            return list(range(self.field(name).lanes))
        return [unit * len(first) + vector for unit in range(self.units) for vector in first]

    def has(self, name: str) -> bool:
        """Return whether there is a field of that name."""
        return any(field.name == name for field in self.fields)

    def dtype(self, name: str) -> str:
        """Element type of a field, in full."""
        return {"u1": "uint8", "i1": "int8", "<f2": "float16"}[self.field(name).dtype]


def _quants(name: str, count: int) -> Field:
    return Field(name, "u1", count, LANE)


E = QuantizationEncoding
D, M, D_MIN = Field("d", "<f2", 1), Field("m", "<f2", 1), Field("dmin", "<f2", 1)
NIBBLES = Plane("qs", 4, 16)
# A bit of each of 32 terms, as ``quantized_packing`` arranges it: bit g of byte t is term 4 g + t.
FIFTH_BITS = Plane("qh", 1, 4)
LEGACY_QS, LEGACY_QH = _quants("qs", 16), _quants("qh", 4)

# ``kvalues_iq4nl`` of ggml-common.h, and twice the 16 values of E2M1.
UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
TWICE_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

_LAYOUTS = (
    RecordLayout(E.Q4_0, (NIBBLES,), 8, 32, (LEGACY_QS, D)),
    RecordLayout(E.Q4_1, (NIBBLES,), 0, 32, (LEGACY_QS, D, M)),
    RecordLayout(E.Q5_0, (NIBBLES, FIFTH_BITS), 16, 32, (LEGACY_QS, LEGACY_QH, D)),
    RecordLayout(E.Q5_1, (NIBBLES, FIFTH_BITS), 0, 32, (LEGACY_QS, LEGACY_QH, D, M)),
    RecordLayout(E.Q8_0, (Plane("qs", 8, 32),), 128, 32, (_quants("qs", 32), D), signed=True),
    RecordLayout(
        E.Q2_K,
        (Plane("qs", 2, 32),),
        *(0, 16),
        (_quants("qs", 64), Field("scales", "u1", 16), D, D_MIN),
    ),
    RecordLayout(
        E.Q3_K,
        (Plane("qs", 2, 32), Plane("hmask", 1, 32)),
        *(4, 16),
        (_quants("qs", 64), _quants("hmask", 32), Field("scales", "i1", 16), D),
    ),
    RecordLayout(
        E.Q4_K,
        (Plane("qs", 4, 32),),
        *(0, 32),
        (_quants("qs", 128), Field("scales", "u1", 8), Field("minima", "u1", 8), D, D_MIN),
    ),
    RecordLayout(
        E.Q5_K,
        (Plane("qs", 4, 32), Plane("qh", 1, 32)),
        *(0, 32),
        (
            *(_quants("qs", 128), _quants("qh", 32)),
            *(Field("scales", "u1", 8), Field("minima", "u1", 8), D, D_MIN),
        ),
    ),
    RecordLayout(
        E.Q6_K,
        (Plane("ql", 4, 64), Plane("qh", 2, 32)),
        *(32, 16),
        (_quants("ql", 128), _quants("qh", 64), Field("scales", "i1", 16), D),
    ),
    RecordLayout(E.IQ4_NL, (NIBBLES,), 127, 32, (LEGACY_QS, D), UNEVEN),
    RecordLayout(
        E.IQ4_XS, (NIBBLES,), 127, 32, (_quants("qs", 128), Field("scales", "i1", 8), D), UNEVEN
    ),
    RecordLayout(E.MXFP4, (NIBBLES,), 12, 32, (LEGACY_QS, Field("e", "u1", 1)), TWICE_E2M1),
)

LAYOUTS = {layout.encoding: layout for layout in _LAYOUTS}


def layout_of(encoding: QuantizationEncoding) -> RecordLayout:
    """Return the layout of an encoding; ValueError if kernels do not read it packed."""
    layout = LAYOUTS.get(encoding)
    if layout is None:
        known = ", ".join(known.name for known in LAYOUTS)
        raise ValueError(f"{encoding.name} weights are not packed; {known} are")
    return layout
