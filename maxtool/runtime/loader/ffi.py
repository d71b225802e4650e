"""TVM's package of foreign functions, without the frameworks and the parts that are not needed."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

# Imported by tvm_ffi wherever they are installed, to convert their tensors and streams: none comes
# here, PyTorch alone takes longer to import than a model to load, and tvm_ffi does without them.
FRAMEWORKS = {"torch", "cuda.bindings"}
PACKAGE = "tvm_ffi"
BUSY = "_maxtool_is_completing"  # a name in the package while all of it is imported
_LOCK = threading.RLock()
LIBRARY = {"darwin": "libtvm_ffi.dylib"}.get(sys.platform, "libtvm_ffi.so")
# The modules of tvm_ffi that calls on a CPU need, in the order in which the package imports them,
# and what it has of them by name.
PARTS: dict[str, tuple[str, ...]] = {
    "core": ("Function", "Object"),
    "registry": ("get_global_func", "register_global_func", "register_object"),
    "_dtype": ("dtype",),
    "_convert": ("convert",),
    "error": ("register_error",),
    "_tensor": ("Shape", "Tensor", "device", "from_dlpack"),
    "container": ("Array",),
    "module": ("Module", "load_module"),
}


class _NotInstalled:
    """Finder for which some packages are not installed, in one thread.

    What is imported already is not looked for, and stays what it is.
    """

    def __init__(self, packages: Collection[str]) -> None:
        self._packages, self._thread = packages, threading.get_ident()

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name in self._packages and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)


@contextmanager
def without(packages: Collection[str]) -> Iterator[None]:
    """Import as if some packages were not installed, but for those that are imported already."""
    finder: Any = _NotInstalled(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Begun(ModuleType):
    """Package of which only parts were imported, until something else is asked of it."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Import all of the package, as it imports itself, and look there."""
        with _LOCK:  # it asks itself for names while it is imported, in this thread
            if type(self) is _Begun and BUSY not in vars(self):
                _complete(self)
        if name not in vars(self):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return vars(self)[name]


def _complete(package: ModuleType) -> None:
    """Import all of a package of which parts were imported."""
    spec: Any = package.__spec__
    vars(package)[BUSY] = True
    try:
        with without(FRAMEWORKS):
            spec.loader.exec_module(package)
        package.__class__ = ModuleType
    finally:
        del vars(package)[BUSY]


def import_ffi() -> Any:  # noqa: ANN401 - a module
    """The package ``tvm_ffi``, or the parts of it that a CPU needs; the rest comes when used.

    The whole package takes as long to import as NumPy.

    Raises:
        ImportError: If there is none.
    """
    with _LOCK, without(FRAMEWORKS):
        if (imported := sys.modules.get(PACKAGE)) is not None:
            return imported
        spec = find_spec(PACKAGE)
        if spec is not None and spec.origin is not None:
            library = Path(spec.origin).parent / "lib" / LIBRARY
            if library.is_file():
                return _begin(spec, library)
        return import_module(PACKAGE)  # which finds its library itself


def _begin(spec: ModuleSpec, library: Path) -> ModuleType:
    """Import the parts of the package alone."""
    package = sys.modules[PACKAGE] = module_from_spec(spec)
    try:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        for part, names in PARTS.items():
            module = import_module(f"{PACKAGE}.{part}")
            vars(package).update({name: getattr(module, name) for name in names})
    except (ImportError, OSError, AttributeError):  # another release has it in other parts
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        return import_module(PACKAGE)
    package.__class__ = _Begun
    return package
