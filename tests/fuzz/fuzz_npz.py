"""NumPy: an array, an archive of arrays, or an archive made of the input's arrays."""

from __future__ import annotations

import io
import zipfile

import numpy as np
from harness import NEXT, Target, put, read_checkpoint, run


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(compress: bool, **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def archive(arrays: list[bytes], method: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as result:
        for number, array in enumerate(arrays):
            result.writestr(f"{number}.npy", array)
    return stream.getvalue()


def seeds() -> list[bytes]:
    arrays = [np.arange(4.0), np.asfortranarray(np.ones((2, 3), ">i2")), np.array(["text"])]
    several = NEXT.join([*map(npy, arrays), b""])
    return [*map(npy, arrays), npz(False, a=arrays[0]), npz(True, a=arrays[1]), several]


def read(data: bytes) -> None:
    if NEXT not in data:
        read_checkpoint(put(("x.npz" if data[:1] == b"P" else "x.npy",), data))
        return
    *arrays, method = data.split(NEXT)
    content = archive(arrays, zipfile.ZIP_DEFLATED if method else zipfile.ZIP_STORED)
    read_checkpoint(put(("x.npz",), content))


TARGET = Target(seeds, read, [b"'descr': '<f4'", b"'fortran_order': True", b"PK\1\2", b"PK\6\6"])

if __name__ == "__main__":
    run(TARGET)
