"""``weights.bin``: every weight as its kernels read it, each at a multiple of 64 bytes.

The file is mapped: what kernels take addresses to be multiples of holds for offsets too.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from maxtool.artifact import devices
from maxtool.artifact.contents import Contents
from maxtool.compiler.storage import WeightStorage
from maxtool.files.huge_pages import HUGE_PAGE, pieces
from maxtool.graph import DerivedWeight, FoldedWeight, Shard
from maxtool.nn.weight_binding import elements
from maxtool.runtime.loader.specs import ALIGNMENT, COLUMNS

FILE, PARTS = "weights.bin", "weights.{}.bin"
# From how many times the size of their blocks on the user is told of packed matrices, and of
# tables that make the weights as many times as large; a small model's are no matter.
NOTICEABLE = 1.05
SMALL = 1 << 20
Array = np.ndarray[Any, Any]


def files(count: int) -> list[str]:
    """The file of the weights, or that of each of several devices."""
    return [FILE] if count == 1 else [PARTS.format(rank) for rank in range(count)]


@dataclass(frozen=True, slots=True)
class PlacedWeight:
    """A weight and its offset in the file, in bytes."""

    storage: WeightStorage
    offset: int

    @property
    def manifest(self) -> dict[str, object]:
        """Return the weight's entry in the manifest."""
        return {
            "name": self.storage.name,
            "dtype": self.storage.held_dtype.value,
            "shape": list(self.storage.stored_shape),
            "offset": self.offset,
            "nbytes": self.storage.nbytes,
            **({"unpacked": list(self.storage.shape)} if self.storage.is_packed else {}),
            **({"encoding": encoding.name} if (encoding := self.storage.encoding) else {}),
        }


def total_bytes(contents: Contents) -> int:
    """The size of the weights, in all files."""
    return place(contents.storage.values())[1] * contents.devices


def type_bytes(contents: Contents) -> dict[str, int]:
    """The bytes of the matrices of each type or encoding, in all files, the most first.

    What a formula gives is no matrix of the model.
    """
    computed = computed_weights(contents)
    totals: Counter[str] = Counter()
    for name, storage in contents.storage.items():
        if len(storage.shape) > 1 and name not in computed:
            totals[storage.type_name] += storage.nbytes * contents.devices
    return dict(totals.most_common())


def packing_note(contents: Contents) -> Iterator[str]:
    """Yield a line if quantized matrices take noticeably more room than their blocks in a file."""
    quantized = [each for each in contents.storage.values() if each.encoding is not None]
    blocks = sum(prod(each.held_shape) for each in quantized)
    packed = sum(each.nbytes for each in quantized)
    if packed > NOTICEABLE * blocks:
        more = f"{packed / blocks - 1:.0%} more room than in a file"
        why = f"rows come in groups of {COLUMNS}, and scales of 6 bits in bytes"
        yield f"quantized matrices take {more}: {why}"


def tables_note(contents: Contents) -> Iterator[str]:
    """Yield a line if tables by position, which no file holds, take noticeably much room."""
    by_formula = {
        name
        for graph in contents.graphs
        for name in graph.weight_values
        if _is_by_formula(graph.weight(name))
    }
    sizes = {name: each.nbytes for name, each in contents.storage.items()}
    tables = sum(sizes[name] for name in by_formula)
    others = sum(sizes.values()) - tables
    if tables > max(SMALL, (NOTICEABLE - 1) * others):
        beside = f"{tables / SMALL:.1f} MiB beside {others / SMALL:.1f} MiB of weights"
        yield f"tables by position take {beside}: --context N makes room for fewer"


def _is_by_formula(weight: object) -> bool:
    return isinstance(weight, DerivedWeight) and not isinstance(weight, FoldedWeight | Shard)


def place(storage: Iterable[WeightStorage]) -> tuple[list[PlacedWeight], int]:
    """The offsets of weights in the order given, and the size of the file in bytes."""
    placed = []
    end = 0
    for weight in storage:
        placed.append(PlacedWeight(weight, end))
        end += weight.nbytes
        end += -end % ALIGNMENT
    return placed, end


def computed_weights(contents: Contents) -> dict[str, Callable[[], Array]]:
    """The functions that give the weights that no file holds, by name."""
    return {
        name: _computing(weight, contents)
        for graph in contents.graphs
        for name in graph.weight_values
        for weight in [graph.weight(name)]
        if isinstance(weight, DerivedWeight) and not isinstance(weight, Shard)
    }


def _computing(weight: DerivedWeight, contents: Contents) -> Callable[[], Array]:
    """The function that gives a weight by a formula, or of weights that files hold."""
    if not isinstance(weight, FoldedWeight):
        return weight.to_numpy
    return partial(weight.computed, lambda name: elements(contents.read(name)))


def write_all(contents: Contents, folder: Path, progress: Callable[[int], None]) -> dict[str, str]:
    """Write the weights of each device; returns the SHA-256 of each file."""
    computed = computed_weights(contents)
    split = devices.parts(contents.graphs)
    placed, _ = place(contents.storage.values())

    def write_part(rank: int, name: str) -> str:
        def read(name: str) -> Array:
            if name in computed:
                return computed[name]()
            whole = contents.storage[name].as_stored(contents.read(name))
            return devices.cut(whole, split.get(name), rank).data

        return write(folder / name, placed, read, progress)

    return {name: write_part(rank, name) for rank, name in enumerate(files(contents.devices))}


def write(
    path: Path,
    placed: Iterable[PlacedWeight],
    read: Callable[[str], Array],
    progress: Callable[[int], None],
) -> str:
    """Write the file, a weight at a time; returns its SHA-256 in hexadecimal."""
    digest, position = hashlib.sha256(), 0
    with path.open("wb", buffering=HUGE_PAGE) as stream:
        for placed_weight in placed:
            stored = placed_weight.storage.store(read(placed_weight.storage.name))
            data = stored.reshape(-1).view(np.uint8).data
            padding = memoryview(bytes(-len(data) % ALIGNMENT))
            for part in (data, padding):
                for piece in pieces(part, position):
                    stream.write(piece)
                digest.update(part)
                position += len(part)
            progress(len(data) + len(padding))
        stream.flush()
        os.fsync(stream.fileno())  # while code is still being generated
    return digest.hexdigest()
