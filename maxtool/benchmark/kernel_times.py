"""Times of the kernels of a model, taken by TVM's virtual machine as it calls them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from maxtool.runtime.loader.errors import DoesNotFit
from maxtool.runtime.loader.execution import Execution
from maxtool.runtime.loader.model import Model
from maxtool.runtime.loader.processor import Compiled
from maxtool.runtime.loader.specs import SEPARATE, WeightSpec

# What the virtual machine does itself: shapes, memory, tuples.
OWN = re.compile(r"vm\.|shape_func\d*$")
INDICES = ("int32", "int64")
LAYER = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass
class KernelTime:
    """A kernel with the same weights of all layers, and the seconds of each of its calls."""

    kernel: str
    weights: str  # their names, with a star for the number of a layer
    bytes: int = 0  # of those weights, in all calls
    seconds: list[float] = field(default_factory=list)

    @property
    def whole(self) -> float:
        """Seconds of all calls, as if each took the median: others interrupt some of them."""
        return median(self.seconds) * len(self.seconds)

    @property
    def as_json(self) -> dict[str, object]:
        """The kernel as an answer of the process."""
        names = {"kernel": self.kernel, "weights": self.weights}
        return {**names, "calls": len(self.seconds), "seconds": self.whole, "bytes": self.bytes}


class KernelTimes:
    """The time of each kernel from now on, all of which are called one by one."""

    def __init__(self, model: Model) -> None:
        execution = model._execution
        if not isinstance(execution, Execution):
            raise DoesNotFit("the kernels of a model for several devices cannot be timed")
        compiled = execution._compiled = _one_by_one(execution._compiled, model)
        specs = zip(compiled.weights, model.manifest.weights, strict=True)
        self._weights = {int(tensor.data_ptr()): spec for tensor, spec in specs}
        self._times: dict[tuple[str, str], KernelTime] = {}
        # The calls that have begun, of which only the last may be that of a kernel.
        self._called: list[tuple[KernelTime, int, float] | None] = []
        compiled.machine.get_function("set_instrument")(self._note)

    @property
    def listed(self) -> list[dict[str, object]]:
        """All kernels that ran, the one that took most time first."""
        times = [one for one in self._times.values() if one.seconds]
        return [one.as_json for one in sorted(times, key=lambda one: -one.whole)]

    def _note(self, *call: Any) -> int:  # noqa: ANN401 - a function, its name, ...
        """Note a call: the virtual machine tells of it before it and after it."""
        now = time.perf_counter()
        _, name, is_before, _, *arguments = call
        if is_before:
            self._begin(name, arguments)
        else:
            self._end(now)
        return 0  # which lets the call happen

    def _begin(self, name: str, arguments: Sequence[Any]) -> None:
        """Note the beginning of a call: whatever calls it is not a kernel."""
        if self._called:
            self._called[-1] = None
        if OWN.match(name):
            self._called.append(None)
            return
        tensors = [one for one in arguments if hasattr(one, "data_ptr")]
        weights = list(filter(None, map(self._weight, tensors)))
        names = ", ".join(dict.fromkeys(LAYER.sub("*", spec.name) for spec in weights))
        entered = self._times.setdefault((name, names), KernelTime(name, names))
        # Numbers may say which rows, or whose weights, are read: then it is not all of them.
        is_whole = not any(self._is_of_numbers(tensor) for tensor in tensors)
        size = sum(spec.nbytes() for spec in weights) if is_whole else 0
        self._called.append((entered, size, time.perf_counter()))

    def _end(self, now: float) -> None:
        """Note the end of a call."""
        if (ended := self._called.pop()) is not None:
            entered, size, began = ended
            entered.seconds.append(now - began)
            entered.bytes += size

    def _weight(self, tensor: Any) -> WeightSpec | None:  # noqa: ANN401
        """The weight that a tensor is, if it is one."""
        return self._weights.get(int(tensor.data_ptr()))

    def _is_of_numbers(self, tensor: Any) -> bool:  # noqa: ANN401
        """Return whether a tensor holds numbers of rows or experts, rather than weights."""
        return str(tensor.dtype) in INDICES and self._weight(tensor) is None


def _one_by_one(compiled: Compiled, model: Model) -> Compiled:
    """Code that calls each kernel by itself, in entries that run several at once too."""
    entries = model.manifest.entries
    separate = {name: entry.function + SEPARATE for name, entry in entries.items()}
    functions = {
        name: function
        for name, symbol in separate.items()
        if (function := _found(compiled.machine, symbol)) is not None
    }
    return replace(compiled, functions={**compiled.functions, **functions})


def _found(machine: Any, symbol: str) -> Any:  # noqa: ANN401 - tvm ships no types
    """A function of the virtual machine, None if it has none of that name."""
    try:
        return machine.get_function(symbol)
    except (AttributeError, RuntimeError):
        return None
