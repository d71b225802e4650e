"""Result of a format's reader, and what readers check of payloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maxtool.weights.cursor import Cursor
from maxtool.weights.source_file import Stamp, cut_off
from maxtool.weights.tensor_info import TensorInfo


@dataclass(frozen=True, slots=True)
class FileIndex:
    """The header of one file.

    Attributes:
        tensors: In the order of their payloads, or of their descriptions where payloads are shared.
        metadata: Key/values as Python or NumPy values.
        notes: What is odd about the file but no error, to be shown to the user.
        beside: Other files that hold its payloads, as they were when they were looked at.
    """

    tensors: tuple[TensorInfo, ...]
    metadata: Mapping[str, object]
    notes: tuple[str, ...] = ()
    beside: Mapping[Path, Stamp] = field(default_factory=dict)


def check_inside(tensors: Iterable[TensorInfo], end: int, cursor: Cursor) -> None:
    """Check that payloads, of which the last ends at ``end``, lie inside the cursor's file."""
    if end > cursor.end:
        first = next(tensor for tensor in tensors if tensor.offset + tensor.nbytes > cursor.end)
        left = max(cursor.end - first.offset, 0)
        what = f"the payload needs {first.nbytes} bytes and {left} are left"
        offset = min(first.offset, cursor.end)
        cursor.fail(what, offset=offset, tensor=first.name, hint=cut_off(end - cursor.end))
