"""The machine code of an artifact that a GPU runs, and how TVM gets it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .cuda_driver import Gpu
from .errors import BadInput, MachineLacks
from .manifest import Manifest

Capability = tuple[int, int]

CUBIN = re.compile(r"sm_(\d+)(\d)\.cubin")
PTX = re.compile(r"compute_(\d+)(\d)\.ptx")
# Parts of systems on a chip: cubins of other GPUs of their generation do not run on them (CUDA C++
# Programming Guide, "Binary Compatibility").
ALONE = {(5, 3), (6, 2), (7, 2), (8, 7), (11, 0)}
CALLBACK = "tvm_callback_cuda_compile"  # what TVM's runtime calls with the source of the kernels


def choose_code(manifest: Manifest, gpu: Gpu) -> Path:
    """The file with the code for a GPU.

    That is machine code of its own architecture, else of the newest that is older and of the same
    generation, else PTX that the driver translates.
    """
    chosen = _newest(manifest, gpu)
    needed = manifest.target.get("shared_memory")
    if isinstance(needed, int) and gpu.shared_memory < needed:
        raise MachineLacks(
            f"{gpu} gives a block {gpu.shared_memory >> 10} KiB of shared memory, and the model "
            f"was compiled for GPUs that give it {needed >> 10}",
            hint=_name_it(gpu.capability),
        )
    return chosen


def _newest(manifest: Manifest, gpu: Gpu) -> Path:
    cubins, ptx = _files(manifest, CUBIN), _files(manifest, PTX)
    if not cubins and not ptx:
        raise BadInput("'files' lists no machine code (sm_XX.cubin)", file=manifest.path)
    if fitting := [one for one in cubins if _runs(one, gpu.capability)]:
        return cubins[max(fitting)]
    if older := [version for version in ptx if version <= gpu.capability]:
        return ptx[max(older)]
    held = [*(f"sm_{x}{y}" for x, y in sorted(cubins)), *(f"PTX {x}.{y}" for x, y in sorted(ptx))]
    what = f"the model has code for {', '.join(held)}; {gpu} runs none of it"
    if gpu.capability < min([*cubins, *ptx]):
        raise MachineLacks(what, hint="the GPU is older than all of them")
    raise MachineLacks(what, hint=f"{_name_it(gpu.capability)}, or with --ptx")


def _files(manifest: Manifest, name: re.Pattern[str]) -> dict[Capability, Path]:
    """The recorded files of the folder that have such a name, by compute capability."""
    beside = [path for path in manifest.files if path.parent == manifest.folder]
    matches = ((name.fullmatch(path.name), path) for path in beside)
    return {(int(match[1]), int(match[2])): path for match, path in matches if match}


def _runs(cubin: Capability, gpu: Capability) -> bool:
    """Return whether a GPU runs machine code: that of older GPUs of its generation too."""
    same_generation = cubin[0] == gpu[0] and cubin[1] <= gpu[1]
    return cubin == gpu or (same_generation and not {cubin, gpu} & ALONE)


def _name_it(gpu: Capability) -> str:
    return f"compile it with --target cuda:sm_{gpu[0]}{gpu[1]}"


@contextmanager
def given_code(path: Path) -> Iterator[None]:
    """Hand TVM's runtime this code while a library is loaded, so that it compiles none.

    The runtime has one such function for the process, and asks it while a library is loaded: so it
    is in place for that time alone, and for this thread alone. Every loader of the process takes
    the same lock.
    """
    import tvm_ffi

    code, thread = path.read_bytes() + b"\0", threading.get_ident()  # PTX ends with a zero
    lock = vars(tvm_ffi).setdefault("maxtool_given_code", threading.Lock())
    with lock:
        before = tvm_ffi.get_global_func(CALLBACK, allow_missing=True)

        def give(source: str) -> bytes:
            if threading.get_ident() == thread:
                return code
            if before is None:
                raise RuntimeError(f"there is no {CALLBACK}")
            return bytes(before(source))

        tvm_ffi.register_global_func(CALLBACK, give, override=True)
        try:
            yield
        finally:
            if before is None:
                tvm_ffi.registry.remove_global_func(CALLBACK)
            else:
                tvm_ffi.register_global_func(CALLBACK, before, override=True)
