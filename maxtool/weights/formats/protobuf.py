"""The wire format of protobuf, read in place: where fields lie, not what is in them.

Layout: protobuf's "Encoding" document. Payloads are never copied, so a message of gigabytes costs
what its fields cost, and these are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from maxtool.weights.source_file import SourceFile, cut_off

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
MAX_VARINT_BYTES = 10
# What is read of a file at a time, and what a field takes of it before its payload, at most.
WINDOW_BYTES, FIELD_BYTES = 1 << 13, 2 * MAX_VARINT_BYTES
# All fields of a file together. A model of 20000 nodes and 5000 tensors has half a million.
MAX_FIELDS = 1 << 20
# What beginning to read a message takes, counted in fields.
MESSAGE_COST = 2
# Bytes of runs that are passed over as a whole, counted as a field.
PASSED_BYTES = 64


class Span(NamedTuple):
    """Range of a field's bytes in the file."""

    start: int
    end: int


class FieldSpec(NamedTuple):
    """Schema of a field: its name, how often it may occur, and its wire types."""

    name: str
    most: int = 1
    kinds: tuple[int, ...] = (BYTES,)


class MessageFields:
    """The fields of the messages in a file."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.left = MAX_FIELDS
        self._window = b""
        self._base = self._until = 0  # where it begins, and up to where fields can be read in it

    def spend(self, fields: int, offset: int) -> None:
        """Count work that is not reading as that many fields."""
        self.left -= fields
        if self.left < 0:
            self.file.fail(f"more than {MAX_FIELDS} fields, or as much work", offset)

    def fields(
        self, span: Span, runs: Mapping[int, re.Pattern[bytes]] | None = None
    ) -> Iterator[tuple[int, int, int, int]]:
        """Every field of a message: number, kind, and value or start, and end.

        Args:
            span: Of the message.
            runs: By the byte that fields begin with, a pattern of several whole ones one after the
                other, which are passed over.
        """
        position, end = span
        self.spend(MESSAGE_COST, position)
        while position < end:
            at = position
            self.left -= 1
            if self.left < 0:
                self.spend(0, at)
            if not self._base <= at < self._until:
                self._move(at)
            data, base = self._window, self._base
            tag = data[at - base]
            if runs and tag in runs:
                within = min(end, self._until) - base
                if run := runs[tag].match(data, at - base, within):
                    position = base + run.end()
                    self.left -= (position - at) // PASSED_BYTES
                    continue
            position += 1
            if tag > 0x7F:
                tag, position = self._varint(at, end)
            wire_type = tag & 7
            if tag < 8:
                self.file.fail("not a protobuf message: a field has the number 0", at)
            if wire_type > BYTES or wire_type == FIXED64:
                position = self._pass_fixed(wire_type, at, position, end)
                yield tag >> 3, wire_type, position - _FIXED[wire_type], position
                continue
            if position < end and data[position - base] < 0x80:  # as in all but long payloads
                value = data[position - base]
                position += 1
            else:
                value, position = self._varint(position, end)
            if wire_type == VARINT:
                yield tag >> 3, wire_type, value, position
                continue
            start, position = position, position + value
            if position > end:
                hint = cut_off(position - end) if end == len(data) else None
                self.file.fail(
                    f"a field of {value} bytes where {end - start} are left", at, hint=hint
                )
            yield tag >> 3, wire_type, start, position

    def _pass_fixed(self, wire_type: int, at: int, position: int, end: int) -> int:
        size = _FIXED.get(wire_type)
        if size is None:
            self.file.fail(f"not a protobuf message: a field of kind {wire_type}", at)
        if position + size > end:
            self.file.fail(f"a field of {size} bytes where {end - position} are left", at)
        return position + size

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        """A number of 64 bits in groups of seven, and where it ends."""
        if not self._base <= position < self._until:
            self._move(position)
        start = position - self._base
        raw = self._window[start : min(start + MAX_VARINT_BYTES, end - self._base)]
        length = next((index for index, byte in enumerate(raw, 1) if byte < 0x80), 0)
        if not length:
            what = "a number is cut short, or takes more than"
            self.file.fail(f"{what} {MAX_VARINT_BYTES} bytes", position)
        value = sum((byte & 0x7F) << (7 * index) for index, byte in enumerate(raw[:length]))
        return value & ((1 << 64) - 1), position + length

    def _move(self, position: int) -> None:
        """Read what comes from ``position`` on."""
        rest = self.file.size - position
        self._window = self.file.read(position, min(WINDOW_BYTES, rest))
        whole = len(self._window) == rest
        self._base = position
        self._until = position + len(self._window) - (0 if whole else FIELD_BYTES)

    def collect(
        self,
        span: Span,
        known: Mapping[int, FieldSpec],
        what: str,
        runs: Mapping[int, re.Pattern[bytes]] | None = None,
    ) -> dict[str, list[tuple[int, int, int]]]:
        """The known fields of a message by name, each with its kind, and value or start, and end.

        Fields that are not known are passed over, as protobuf demands; ``runs`` are those of
        :meth:`fields`.
        """
        fields_by_name: dict[str, list[tuple[int, int, int]]] = {}
        for number, wire_type, start, end in self.fields(span, runs):
            spec = known.get(number)
            if spec is None:
                continue
            self.check(spec, wire_type, what, start if wire_type == BYTES else span.start)
            values = fields_by_name.setdefault(spec.name, [])
            if len(values) >= spec.most:
                often = "twice" if spec.most == 1 else f"more than {spec.most} times"
                self.file.fail(f"{what} has the field {spec.name} {often}", span.start)
            values.append((wire_type, start, end))
        return fields_by_name

    def check(self, spec: FieldSpec, wire_type: int, what: str, offset: int) -> None:
        """Refuse a field of the wrong kind."""
        if wire_type not in spec.kinds:
            self.file.fail(f"{what} has the field {spec.name} as the kind {wire_type}", offset)

    def text(self, span: Span, what: str, most: int) -> str:
        """The text of a field, of at most ``most`` bytes."""
        if span.end - span.start > most:
            self.file.fail(f"{what} has {span.end - span.start} bytes; at most {most}", span.start)
        try:
            return self.file.read(span.start, span.end - span.start).decode()
        except UnicodeDecodeError:
            self.file.fail(f"{what} is not UTF-8", span.start)

    def numbers(self, span: Span) -> Iterator[int]:
        """Packed numbers."""
        position = span.start
        while position < span.end:
            value, position = self._varint(position, span.end)
            yield value
