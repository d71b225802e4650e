"""Parts of the host that stand in for GPUs.

TVM takes ``cpu:1`` for another memory than ``cpu:0``: it copies between them, and kernels that are
compiled with their checks refuse what lies elsewhere than their first operand. So everything but
the code of the kernels is what it is with GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

COUNT = 2


@contextmanager
def standing_in(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend inside this block that the machine has ``COUNT`` GPUs."""
    import tvm

    from maxtool import driver
    from maxtool.compiler import compiling_executor, device_memory, program, targets
    from maxtool.graph import device
    from maxtool.graph.ops.operation_cache import REPEATING

    compile_module = program.compile_module

    def checked(module: Any, target: Any, **_options: Any) -> Any:
        return compile_module(module, target, asserts=True)

    for holder in (device, driver):
        patch.setattr(holder, "accelerator_count", lambda: COUNT)
    patch.setitem(device_memory.OF_KIND, "gpu", lambda number: tvm.cpu(number + 1))
    patch.setitem(targets.OF_DEVICE, "gpu", targets.cpu_target)
    patch.setattr(program, "compile_module", checked)
    for forgetting in (compiling_executor.executor.cache_clear, REPEATING.clear):
        forgetting()  # its programs are not for a machine that has no GPU
    yield
    for forgetting in (compiling_executor.executor.cache_clear, REPEATING.clear):
        forgetting()


@pytest.fixture
def accelerators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with two GPUs."""
    with standing_in(monkeypatch):
        yield
