"""Result of a format's reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maxtool.weights.source_file import Stamp
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
