"""TVM's package of foreign functions, without the frameworks that it would bring along."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

# Imported by tvm_ffi wherever they are installed, to convert their tensors and streams: none comes
# here, PyTorch alone takes longer to import than a model to load, and tvm_ffi does without them.
FRAMEWORKS = {"torch", "cuda.bindings"}


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


def import_ffi() -> Any:  # noqa: ANN401 - a module
    """The package ``tvm_ffi``; ``ImportError`` where there is none."""
    with without(FRAMEWORKS):
        import tvm_ffi
    return tvm_ffi
