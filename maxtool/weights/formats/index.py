"""What a format's reader returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from maxtool.weights.spec import TensorInfo


@dataclass(frozen=True, slots=True)
class FileIndex:
    """The header of one file.

    Attributes:
        tensors: In the order of their payloads.
        metadata: Key/values as Python or NumPy values.
    """

    tensors: tuple[TensorInfo, ...]
    metadata: Mapping[str, object]
