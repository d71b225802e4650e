"""TVM's runtime, and compiled code in its virtual machine."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import MachineLacks, NotVerified, last_line
from .host import CPU, THREADS
from .manifest import Manifest

if TYPE_CHECKING:
    from .devices import Processor

RUNTIME = {"darwin": "libtvm_runtime.dylib"}.get(sys.platform, "libtvm_runtime.so")
CUDA_RUNTIME = "libtvm_runtime_cuda.so"
# What each library of the runtime registers: loaded twice, it would abort the process.
MARKS = {RUNTIME: THREADS, CUDA_RUNTIME: "device_api.cuda"}


@dataclass(frozen=True)
class Compiled:
    """Compiled code, ready for calls.

    Attributes:
        machine: TVM's virtual machine.
        functions: The function of each entry.
        weights: The one array of weights that they take.
        lock: Held during calls: concurrent calls of one virtual machine crash the process.
    """

    machine: Any
    functions: Mapping[str, Any]
    weights: Any
    lock: threading.Lock = field(default_factory=threading.Lock)


def open_module(manifest: Manifest, processor: Processor, *, verified: bool) -> Any:  # noqa: ANN401 - tvm_ffi has no types
    """Load TVM's runtime and the compiled code; the virtual machine, ready for calls."""
    try:
        import tvm_ffi
    except ImportError:
        wanted = f"apache-tvm-ffi=={manifest.root.get('tvm_ffi', '')}".removesuffix("==")
        raise MachineLacks(f"tvm_ffi is not installed: pip install {wanted}") from None
    check_release("apache-tvm-ffi", manifest.root.get("tvm_ffi"))
    # The runtime registers types that only the compiler package describes.
    tvm_ffi.registry._SKIP_UNKNOWN_OBJECTS = True
    names = [RUNTIME] if processor.vm[0] == CPU else [RUNTIME, CUDA_RUNTIME]
    libraries = [find_runtime(manifest, name, verified=verified) for name in names]
    try:
        for library, name in zip(libraries, names, strict=True):
            if tvm_ffi.get_global_func(MARKS[name], allow_missing=True) is None:
                ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        with processor.loading():
            module = load_library(manifest.module, own=CUDA_RUNTIME in names)
        machine = module.get_function("vm_load_executable", query_imports=True)()
        machine.get_function("vm_initialization")(*processor.vm)
    except (OSError, RuntimeError, AttributeError, TypeError, ValueError) as error:
        used = " and ".join(map(str, libraries))
        raise MachineLacks(
            f"cannot load {manifest.module} with {used}: {last_line(error)}"
        ) from None
    return machine


def load_library(path: Path, *, own: bool) -> Any:  # noqa: ANN401
    """Load compiled code, through a link of a name that no other library had.

    The system takes a library it has loaded from the same path for the same one, whatever the
    file holds by now: code of a model that was replaced would run with the new weights.

    Args:
        path: The library.
        own: Whether it must share nothing with one loaded from the same file. The host's part of
            code for GPUs remembers where its kernels are: those of the model loaded first, which
            may be for another GPU, or gone.
    """
    import tvm_ffi

    with suppress(OSError), tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        link = Path(folder, path.name)
        with _in_memory(path) if own else nullcontext(path) as file:
            link.symlink_to(file)
            return tvm_ffi.load_module(str(link))
    return tvm_ffi.load_module(str(path))  # there is nowhere to put a link


@contextmanager
def _in_memory(path: Path) -> Iterator[Path]:
    """A copy of a file, in memory: it may be run even where no folder may hold programs."""
    with open(os.memfd_create("maxtool"), "wb") as copy:  # noqa: PTH123 - a descriptor, not a path
        copy.write(path.read_bytes())
        copy.flush()
        yield Path(f"/proc/self/fd/{copy.fileno()}")


def find_runtime(manifest: Manifest, name: str = RUNTIME, *, verified: bool) -> Path:
    """A library of TVM's runtime: the artifact's own, else that of an installed ``tvm`` package."""
    own = manifest.folder / "lib" / name
    if own.is_file():
        if verified and own not in manifest.files:
            raise NotVerified(f"{own} is not listed in the manifest (--no-verify loads it anyway)")
        return own
    for folder in sys.path:
        library = Path(folder or ".") / "tvm" / "lib" / name
        if library.is_file():
            check_release("apache-tvm", manifest.root.get("tvm"))
            return library.resolve()
    wanted = manifest.root.get("tvm")
    raise MachineLacks(
        f"no {name}: pip install apache-tvm=={wanted}, or compile the model with "
        "--standalone, which puts TVM's runtime into its folder"
    )


def check_release(package: str, compiled_with: object) -> None:
    """Refuse a runtime of another release: neither calls nor files are the same between them."""
    try:
        installed = version(package)
    except PackageNotFoundError:
        return
    if str(compiled_with).split(".")[:2] != installed.split(".")[:2]:
        what = f"the model was compiled with {package} {compiled_with!s:.40}"
        raise MachineLacks(f"{what}; {installed} is installed")
