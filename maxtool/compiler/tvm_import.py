"""Import of TVM without the frameworks that it would bring along."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

from maxtool.runtime.loader.ffi import FRAMEWORKS, without

PACKAGES = {"tvm", "tvm_ffi"}


class _Alone(SourceFileLoader):
    """Loader of a package as if no framework were installed."""

    def exec_module(self, module: ModuleType) -> None:
        with without(FRAMEWORKS):
            super().exec_module(module)


class _Finder:
    """Finder of TVM's packages.

    Both import PyTorch wherever it is installed, which takes three times as long as TVM itself.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in PACKAGES else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Alone(spec.loader.name, spec.loader.path)
        return spec


def import_alone() -> None:
    """Have TVM, wherever it is imported from now on, import no framework."""
    if _Finder not in sys.meta_path:
        usual = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else 0
        sys.meta_path.insert(usual, _Finder)
