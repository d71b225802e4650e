"""Calls of a decoder that a check makes one after the other, which share a state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from maxtool.runtime.loader.image_entries import PIXELS
from maxtool.runtime.loader.recorded_checks import RecordedCall
from maxtool.runtime.loader.specs import LOOK, SOURCE_LENGTH

Array: TypeAlias = np.ndarray[Any, Any]

CACHED = ("prefill", "decode")
"""Functions that are called in turn."""
ILLUSTRATED = 6
"""Tokens of a text around an image."""
MOST_ROWS = 24
"""Rows of the last call, which goes on with all texts: enough for the kernels of many rows."""


def in_turn_calls(ids: Array, decoded: int) -> list[RecordedCall]:
    """``prefill``, and then ``decode`` for the last tokens, one at a time."""
    length = ids.shape[1]
    starts = [0, *range(max((length + 1) // 2, length - decoded), length)]
    return [
        RecordedCall(
            CACHED[start > 0],
            {"input_ids": ids[:, start:stop], **_position(start)},
        )
        for start, stop in pairwise([*starts, length])
    ]


def illustrated_calls(ids: Array, pixels: Array, count: int, slots: int) -> list[RecordedCall]:
    """The beginning of a text, an image of ``count`` tokens behind it, and the rest of the text.

    ``ids`` are ``[1, tokens]``; the last token comes by itself. Of several slots it is the last.
    """
    few = ids.shape[1] // 3
    parts = (("prefill", ids[:, :few]), ("prefill", ids[:, few:-1]), ("decode", ids[:, -1:]))
    slot = {"slot": np.array([slots - 1], np.int32)} if slots > 1 else {}
    calls, at = [], 0
    for entry, some in parts:
        calls.append(RecordedCall(entry, {"input_ids": some, **_position(at), **slot}))
        at += some.shape[1]
        if len(calls) == 1:
            calls.append(RecordedCall(LOOK, {PIXELS: pixels, **_position(at), **slot}))
            at += count
    return calls


def _position(at: int) -> dict[str, Array]:
    return {"position": np.array([at], np.int32)}


def slotted_calls(calls: Sequence[RecordedCall], slots: int) -> Iterator[RecordedCall]:
    """The same calls for the text of the last slot, beside a shorter text in the first.

    That one begins when the other is there, and goes on in every other call, in which the slots
    stand in turn. All other slots are idle until the last call, where each begins a text.
    """
    (prefill, *decodes), last = calls, slots - 1
    ids = prefill.inputs["input_ids"]
    shorter = max(1, ids.shape[1] // 3)
    yield _call(prefill.entry, [(last, ids[0], 0)])
    yield _call(prefill.entry, [(0, ids[0, ::-1][:shorter], 0)])
    for number, call in enumerate(decodes):
        token, at = call.inputs["input_ids"][0], int(call.inputs["position"][0])
        rows = [(last, token, at)]
        if number % 2 == 0:
            rows.insert(number // 2 % 2, (0, token, shorter))
            shorter += 1
        if number == len(decodes) - 1:
            rows += [(slot, token, 0) for slot in range(1, min(last, MOST_ROWS))]
        yield _call(call.entry, rows)


def _call(entry: str, rows: Sequence[tuple[int, Array, int]]) -> RecordedCall:
    """A call that reads as many tokens of each text, from a position on, into its slot."""
    slots, ids, starts = zip(*rows, strict=True)
    inputs = {"position": np.array(starts, np.int32), "slot": np.array(slots, np.int32)}
    return RecordedCall(entry, {"input_ids": np.stack(ids), **inputs})


def behind_source(calls: Sequence[RecordedCall], encode: RecordedCall) -> Iterator[RecordedCall]:
    """The same calls behind that of an encoder; where it reads tokens, each is told how many."""
    yield encode
    ids = encode.inputs.get("input_ids")
    length = {} if ids is None else {SOURCE_LENGTH: np.array([ids.shape[1]], np.int32)}
    yield from (RecordedCall(call.entry, {**call.inputs, **length}) for call in calls)
