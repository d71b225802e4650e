"""TVM's runtime, and compiled code in its virtual machine."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import MachineLacks, NotVerified, last_line
from .ffi import import_ffi
from .host import CPU, THREADS
from .manifest import Manifest
from .processor import Processor

RUNTIME = {"darwin": "libtvm_runtime.dylib"}.get(sys.platform, "libtvm_runtime.so")
CUDA_RUNTIME = "libtvm_runtime_cuda.so"
# What each library of the runtime registers: loaded twice, it would abort the process.
MARKS = {RUNTIME: THREADS, CUDA_RUNTIME: "device_api.cuda"}


def open_module(
    manifest: Manifest, processor: Processor, *, verified: bool
) -> tuple[Any, Any]:  # tvm_ffi has no types
    """Load TVM's runtime and the compiled code: the virtual machine, and the code's library."""
    try:
        tvm_ffi = import_ffi()
    except ImportError:
        wanted = f"apache-tvm-ffi=={manifest.root.get('tvm_ffi', '')}".removesuffix("==")
        raise MachineLacks("tvm_ffi is not installed", hint=f"pip install {wanted}") from None
    folder = Path(tvm_ffi.__file__).parents[1]
    check_release("apache-tvm-ffi", folder, manifest.root.get("tvm_ffi"))
    # The runtime registers types that only the compiler package describes.
    tvm_ffi.registry._SKIP_UNKNOWN_OBJECTS = True
    names = [RUNTIME] if processor.vm[0] == CPU else [RUNTIME, CUDA_RUNTIME]
    libraries = [find_runtime(manifest, name, verified=verified) for name in names]
    try:
        for library, name in zip(libraries, names, strict=True):
            if tvm_ffi.get_global_func(MARKS[name], allow_missing=True) is None:
                ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        with processor.loading():
            module = load_library(manifest.module)
        machine = module.get_function("vm_load_executable", query_imports=True)()
        machine.get_function("vm_initialization")(*processor.vm)
    except (OSError, RuntimeError, AttributeError, TypeError, ValueError) as error:
        used = " and ".join(map(str, libraries))
        what = f"the code cannot be loaded with {used}: {last_line(error)}"
        raise MachineLacks(what, file=manifest.module) from None
    return machine, module


def load_library(path: Path) -> Any:  # noqa: ANN401
    """Load compiled code: a copy of it in memory, which nobody changes, and nobody else has.

    From a file the system would map it: a page that is cut off later cannot be run, not even when
    the library is unloaded. And it takes a library it has loaded from the same path for the same
    one, whatever the file holds by now: code of a model that was replaced would run with the new
    weights, and the host's part of code for GPUs, which remembers where its kernels are, with those
    of the model loaded first. The copy goes with the last reference to it; tvm_ffi would keep it
    for as long as the process runs.
    """
    with suppress(OSError, RuntimeError, AttributeError), _in_memory(path) as copy:
        return _loaded(copy, path.name)
    with suppress(OSError):
        return _loaded(path, path.name)
    return _open_library(path)  # there is nowhere to put a link


def _loaded(file: Path, name: str) -> Any:  # noqa: ANN401
    """Load a library through a link of a name that no other had."""
    with tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        link = Path(folder, name)
        link.symlink_to(file)
        return _open_library(link)


def _open_library(path: Path) -> Any:  # noqa: ANN401
    import tvm_ffi

    return tvm_ffi.load_module(str(path), keep_module_alive=False)


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
            what = f"{name} is not listed in the manifest"
            raise NotVerified(what, file=own, hint="--no-verify loads it anyway")
        return own
    for folder in sys.path:
        library = Path(folder or ".") / "tvm" / "lib" / name
        if library.is_file():
            check_release("apache-tvm", Path(folder or "."), manifest.root.get("tvm"))
            return library.resolve()
    wanted = manifest.root.get("tvm")
    raise MachineLacks(
        f"there is no TVM runtime here ({name})",
        hint=f"pip install apache-tvm=={wanted}, or compile the model with --standalone, which "
        "puts it into the folder",
    )


def check_release(package: str, folder: Path, compiled_with: object) -> None:
    """Refuse a runtime of another release: neither calls nor files are the same between them."""
    installed = _release(package, folder)
    if installed and str(compiled_with).split(".")[:2] != installed.split(".")[:2]:
        what = f"the model was compiled with {package} {compiled_with!s:.40}"
        hint = f"pip install {package}=={compiled_with!s:.40}, or compile the model again"
        raise MachineLacks(f"{what}; {installed} is installed", hint=hint)


def _release(package: str, folder: Path) -> str | None:
    """The installed release of a package in a folder; None if nothing says.

    It is in the name of the folder that installers put beside a package. Python's own way, which
    also finds others, takes as long to import as a small model to load.
    """
    start, end = f"{package.replace('-', '_')}-", ".dist-info"
    names = os.listdir(folder)  # noqa: PTH208
    found = [name for name in names if name.startswith(start) and name.endswith(end)]
    if len(found) == 1:
        return found[0][len(start) : -len(end)]
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
