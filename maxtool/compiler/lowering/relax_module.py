"""A Relax module under construction: its kernels, each built once, and its names."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tvm import relax

from maxtool.compiler.kernels.kernel_table import build
from maxtool.compiler.kernels.requests import Request
from maxtool.compiler.placement import Placement
from maxtool.compiler.targets import Target


class RelaxModule:
    """A Relax module, as the functions that are added to it know it."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.builder = relax.BlockBuilder()
        self._kernels: dict[tuple[Request, Target], Any] = {}
        self._names: Counter[str] = Counter()

    def kernel(self, request: Request, target: Target) -> Any:  # noqa: ANN401
        """Return the global name of a kernel for a target, built when it is first asked for."""
        key = (request, target)
        if key not in self._kernels:
            function = build(request, target)
            hint = str(function.attrs["global_symbol"])
            own = function.without_attr("global_symbol").with_attrs(self.attributes(target))
            self._kernels[key] = self.builder.add_func(own, self.unique(hint))
        return self._kernels[key]

    def attributes(self, target: Target) -> dict[str, Any]:
        """Return the attributes of a kernel: its target, where not all have the same."""
        return {} if self.placement.is_single else {"target": target.tvm}

    def unique(self, hint: str) -> str:
        """``hint``, or with a number after it if something has that name already."""
        self._names[hint] += 1
        return hint if self._names[hint] == 1 else f"{hint}_{self._names[hint]}"
