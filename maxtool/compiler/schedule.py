"""Schedules by rule, for the functions that come from tensor expressions.

The kernels a model spends its time in are written by hand and pass through untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx

# Elements one task computes; fewer cost more to hand out than to compute.
GRAIN = 1 << 10

# Neighbours of a row from which on they have a loop of their own.
NEIGHBOURS = 8

# Terms below which one thread computes all: waking the others costs more.
SERIAL_WORK = 1 << 15


def schedule_all(module: Any) -> Any:  # noqa: ANN401 - tvm ships no types
    """``module`` with every PrimFunc that has no schedule yet spread over the threads."""
    return with_schedules(module, _schedule)


def with_schedules(module: Any, schedule: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """``module`` with what ``schedule`` makes of every PrimFunc that has none yet."""
    changed = {
        name: schedule(function)
        for name, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
        and not (function.attrs and function.attrs.get("tirx.is_scheduled"))
    }
    for name, function in changed.items():
        module[name] = function
    return module


def _schedule(function: Any) -> Any:  # noqa: ANN401
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        _spread(schedule, block)
    return schedule.mod["main"].with_attr("tirx.is_scheduled", True)


def _spread(schedule: Any, block: Any) -> None:  # noqa: ANN401
    """Fuse the loops over results, and hand out chunks of them."""
    kinds = [str(variable.iter_type) for variable in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    if not loops:  # a single element
        return
    spatial = [loop for loop, loop_type in zip(loops, kinds, strict=True) if loop_type == SPATIAL]
    if not spatial or _is_little([schedule.get(loop).extent for loop in loops]):
        return
    outer, inner = apart(schedule, spatial)
    if outer:
        schedule.parallel(_fused(schedule, outer))
        return
    *rows, last = inner
    extent = schedule.get(last).extent
    if rows and isinstance(extent, tirx.IntImm) and int(extent) >= NEIGHBOURS:
        # An index of each row is divided by sizes, and not one of each element.
        chunk, _ = schedule.split(_fused(schedule, rows), [None, -(-GRAIN // int(extent))])
    else:
        chunk, _ = schedule.split(_fused(schedule, inner), [None, GRAIN])
    schedule.parallel(chunk)


def _fused(schedule: Any, loops: Sequence[Any]) -> Any:  # noqa: ANN401
    return schedule.fuse(*loops) if len(loops) > 1 else loops[0]


def apart(schedule: Any, loops: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:  # noqa: ANN401
    """The loops outside of one whose extent is a sum, such as n + 3, and the others.

    Fused with them, their number would be divided by that sum, on which TVM's simplifier fails.
    """
    extents = [schedule.get(loop).extent for loop in loops]
    sums = [i for i, extent in enumerate(extents) if isinstance(extent, tirx.Add | tirx.Sub)]
    first = max(sums, default=0)
    return loops[:first], loops[first:]


def _is_little(extents: Sequence[Any]) -> bool:
    """Return whether the work is known now, and not worth several threads."""
    sizes = [int(extent) for extent in extents if isinstance(extent, tirx.IntImm)]
    return 0 in sizes or (len(sizes) == len(extents) and prod(sizes) < SERIAL_WORK)


SPATIAL = str(tirx.IterVar.DataPar)
