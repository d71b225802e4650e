"""Outputs of ``maxtool compile``: the weights of a compiled model, through its manifest.

The loader that is put into every artifact reads and checks the manifest here too. Matrices that lie
in blocks of rows, as their kernels read them, are shown as the matrices they are, quantized ones as
their blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import MalformedFile
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.weights.formats.file_index import FileIndex
from maxtool.weights.packed_blocks import read_blocks
from maxtool.weights.source_file import SourceFile, stamp
from maxtool.weights.tensor_info import TensorInfo

if TYPE_CHECKING:
    from maxtool.runtime.loader.manifest import Manifest
    from maxtool.runtime.loader.specs import WeightSpec

FILE = "manifest.json"
KIND = "maxtool.artifact"
BEGINNING = re.compile(rb'"schema"\s*:\s*"maxtool\.artifact/')
START = 4096  # bytes in which a manifest says what it is
# Parts of a manifest that are shown otherwise, or are of use to the loader alone.
BULKY = {"weights", "files", "entries", "state", "tables", "kernels", "manifest_sha256"}


@dataclass(frozen=True, slots=True)
class PackedTensor(TensorInfo):
    """A matrix whose rows lie in blocks; name, type and shape are the matrix's.

    Attributes:
        layout: The shape in the file, ``[..., blocks, columns, rows of a block]``: the last block
            is filled up with zeros. Of a quantized one, ``[..., blocks, records, bytes]``.
    """

    layout: tuple[int, ...] = field(kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes in the file, those that fill up the last block included."""
        return int(np.prod(self.layout, dtype=object)) * self.stored_dtype.itemsize


def begins_as_manifest(path: Path) -> bool:
    """Return whether a file begins as the manifest of a compiled model, whole or not."""
    try:
        with path.open("rb") as stream:
            return BEGINNING.search(stream.read(START)) is not None
    except OSError:
        return False


def is_manifest(path: Path) -> bool:
    """Return whether a file is the manifest of a compiled model, of whatever version."""
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    return isinstance(schema, str) and schema.partition("/")[0] == KIND


def read(file: SourceFile) -> FileIndex:
    """Read and check a manifest; weights of several devices get the number of theirs in front."""
    from maxtool.runtime.loader import Manifest, RunError

    try:
        manifest = Manifest(file.path.parent)
    except RunError as error:
        what, problems = error.what, error.problems
        raise MalformedFile(what, file=error.file, hint=error.hint, problems=problems) from None
    beside = {file: stamp(file) for file in manifest.weights_files}
    metadata = {key: value for key, value in manifest.root.items() if key not in BULKY}
    return FileIndex(tuple(_tensors(manifest)), metadata, beside=beside)


def _tensors(manifest: Manifest) -> Iterator[TensorInfo]:
    for rank, file in enumerate(manifest.weights_files):
        device = f"{rank}." if manifest.devices > 1 else ""
        for spec in manifest.weights:
            yield _tensor(f"{device}{spec.name}", spec, file)


def _tensor(name: str, spec: WeightSpec, file: Path) -> TensorInfo:
    dtype, layout = DType(spec.dtype), spec.sizes({})
    if spec.encoding is not None:
        encoding = QuantizationEncoding[spec.encoding]
        blocks = partial(read_blocks, encoding, spec.logical, layout, spec.offset)
        place = (file, spec.offset, blocks)
        return PackedTensor(name, DType.float32, spec.logical, encoding, *place, layout=layout)
    if spec.unpacked is None:
        return TensorInfo(name, dtype, spec.logical, None, file, spec.offset)
    unpack = partial(_unpacked, dtype, spec.logical, layout, spec.offset)
    return PackedTensor(name, dtype, spec.logical, None, file, spec.offset, unpack, layout=layout)


def _unpacked(
    dtype: DType, shape: tuple[int, ...], layout: tuple[int, ...], offset: int, file: SourceFile
) -> NDArray[Any]:
    """The matrix, or one after the other those of all experts.

    A block holds some rows side by side, of each as many terms as one more dimension says.
    """
    nbytes = int(np.prod(layout)) * dtype.size_in_bytes
    *outer, blocks, steps, rows, terms = layout if len(layout) > len(shape) + 1 else (*layout, 1)
    stored = file.array(offset, nbytes).view(dtype.to_numpy())
    by_row = stored.reshape(*outer, blocks, steps, rows, terms).swapaxes(-2, -3)
    whole = by_row.reshape(*outer, blocks * rows, steps * terms)
    return np.ascontiguousarray(whole[..., : shape[-2], : shape[-1]])
