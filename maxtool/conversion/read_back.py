"""Reading back of an output: every byte of its tensors against the source, converted once more.

The library that the format's users have opens every file too: safetensors', gguf-py or NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from maxtool.conversion.layout import TensorFile
from maxtool.conversion.request import Target
from maxtool.conversion.verification import HINT, verify_safetensors
from maxtool.dtype import TABLE
from maxtool.errors import ChangedFile, InputError, VerificationFailed
from maxtool.weights import TensorSpec
from maxtool.weights.formats import read
from maxtool.weights.formats.payload import Chunked, Payload, Placed, WriteAt
from maxtool.weights.names import listed
from maxtool.weights.source_file import open_source
from maxtool.weights.tensor_info import TensorInfo


def read_back(
    path: Path, file: TensorFile, payloads: Iterable[Payload], target: Target, output: Path
) -> None:
    """Compare a written file with what it was to be; ``VerificationFailed`` if it is another.

    Args:
        path: Where it was written.
        file: What it was to be.
        payloads: Its tensors in order, made anew.
        target: Its format.
        output: What errors name.
    """
    specs = [spec for spec, _ in file.tensors]
    try:
        _, index, _ = read(path)
        OPENED[target](path, specs, output)
        infos = {info.name: info for info in index.tensors}
        for spec, payload in zip(specs, payloads, strict=True):
            info = infos.get(spec.name)
            if info is None or not _is(info, spec) or not _equal(info, payload):
                raise VerificationFailed(
                    "a tensor was read back as another", file=output, tensor=spec.name, hint=HINT
                )
    except (InputError, OSError, ValueError, KeyError, BadZipFile) as error:
        if isinstance(error, ChangedFile) and error.file != str(path):
            raise  # it is the source, which is read a second time
        what = f"the output cannot be read back: {error}"
        raise VerificationFailed(what, file=output, hint=HINT) from None


def _is(info: TensorInfo, spec: TensorSpec) -> bool:
    return (info.dtype, info.shape, info.encoding) == (spec.dtype, spec.shape, spec.encoding)


def _equal(info: TensorInfo, payload: Payload) -> bool:
    """Return whether the bytes in the file are those of the payload, and as many."""
    position, same = 0, True
    with open_source(info.file) as file:

        def compare(offset: int, expected: memoryview) -> None:
            nonlocal same
            stored = file.array(info.offset + offset, len(expected))
            same = same and np.array_equal(stored, expected)

        for count in _compared(payload, compare):
            position += count
            if not same:
                return False
    return position == info.nbytes


def _compared(payload: Payload, compare: WriteAt) -> Iterator[int]:
    """Have a payload compared, where it would be written; yields the bytes of each piece."""
    if isinstance(payload, Placed):
        yield from (part(compare) for part in payload.parts)
        return
    position = 0
    for chunk in payload.chunks if isinstance(payload, Chunked) else [payload]:
        data = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data
        compare(position, data)
        position += len(data)
        yield len(data)


def _open_gguf(path: Path, specs: list[TensorSpec], output: Path) -> None:
    """Open a GGUF file with gguf-py, which must list the same types, shapes and sizes."""
    import gguf

    listing = {
        tensor.name: (tensor.tensor_type.value, tensor.shape.tolist()[::-1], tensor.n_bytes)
        for tensor in gguf.GGUFReader(path).tensors
    }
    expected = {spec.name: (_code(spec), list(spec.shape), spec.nbytes) for spec in specs}
    _compare("gguf-py", listing, expected, output)


def _code(spec: TensorSpec) -> int | None:
    return spec.encoding.gguf_id if spec.encoding else TABLE[spec.dtype].gguf


def _open_npz(path: Path, specs: list[TensorSpec], output: Path) -> None:
    """Open an .npz file with NumPy, which must list the same types and shapes."""
    with np.load(path, allow_pickle=False) as arrays:
        listing = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    expected = {spec.name: (spec.stored_dtype, spec.shape) for spec in specs}
    _compare("NumPy", listing, expected, output)


def _compare(
    library: str, listing: Mapping[str, object], expected: Mapping[str, object], output: Path
) -> None:
    names = sorted(expected.keys() | listing.keys())
    wrong = [name for name in names if listing.get(name) != expected.get(name)]
    if wrong:
        what = f"{library} reads other tensors than were to be written"
        raise VerificationFailed(what, file=output, problems=listed(wrong), hint=HINT)


OPENED: Mapping[Target, Callable[[Path, list[TensorSpec], Path], None]] = {
    "gguf": _open_gguf,
    "npz": _open_npz,
    "hf": verify_safetensors,
    "safetensors": verify_safetensors,
}
