"""Schedules by rule, for the functions that come from tensor expressions: a thread per element.

The kernels a model spends its time in are written by hand and pass through untouched.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

from maxtool.compiler.schedule import apart, with_schedules

THREADS = 256
BLOCK_INDEX, THREAD_INDEX = "blockIdx.x", "threadIdx.x"
REDUCTION = str(tirx.IterVar.CommReduce)


def schedule_all(module: Any) -> Any:  # noqa: ANN401 - tvm ships no types
    """``module`` with every PrimFunc that has no schedule yet bound to blocks and threads."""
    return with_schedules(module, _schedule)


def _schedule(function: Any) -> Any:  # noqa: ANN401
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    results = [block for block in blocks if not schedule.get_consumers(block)]
    for block in blocks:
        if schedule.get_consumers(block) and not _reduces(schedule, block):
            schedule.compute_inline(block)
    for block in results:
        _spread(schedule, block)
    lowered = _in_registers(schedule.mod)["main"]
    return lowered.with_body(_launched(lowered.body)).with_attr("tirx.is_scheduled", True)


def _reduces(schedule: Any, block: Any) -> bool:  # noqa: ANN401
    return any(
        str(iter_variable.iter_type) == REDUCTION for iter_variable in schedule.get(block).iter_vars
    )


def _spread(schedule: Any, block: Any) -> None:  # noqa: ANN401
    """Spread the elements of a result over threads; each adds up in its registers what it needs."""
    if _reduces(schedule, block):
        block = schedule.cache_write(block, 0, "local")
    loops = schedule.get_loops(block) or [schedule.add_unit_loop(block)]
    added = list(schedule.get_producers(block))
    for sums in added:
        schedule.set_scope(sums, 0, "local")
        schedule.compute_at(sums, loops[-1])
    outer, inner = apart(schedule, loops)  # a thread runs through those outside
    fused = schedule.fuse(*inner) if len(inner) > 1 else inner[0]
    group, thread = schedule.split(fused, [None, THREADS])
    schedule.reorder(group, thread, *outer)
    schedule.bind(group, BLOCK_INDEX)
    schedule.bind(thread, THREAD_INDEX)
    for sums in added:
        # Nothing is added up where there are no terms: that is 0, not what a register held.
        schedule.decompose_reduction(sums, schedule.get_loops(sums)[2 + len(outer)])


def _in_registers(module: Any) -> Any:  # noqa: ANN401
    """Launches instead of loops, and of each array in registers only what one thread uses."""
    blocks = s_tir.transform
    passes = (
        blocks.LowerInitBlock,
        blocks.PlanAndUpdateBufferAllocationLocation,
        blocks.ConvertBlocksToOpaque,
        blocks.CompactBufferAllocation,
        blocks.LowerOpaqueBlock,
    )
    return tvm.transform.Sequential([make() for make in passes])(module)


def _launched(body: Any) -> Any:  # noqa: ANN401
    """The launches of a function, each with at least one block: CUDA takes none for an error."""
    if isinstance(body, tirx.SeqStmt):
        return tirx.SeqStmt([_launched(statement) for statement in body.seq])
    blocks, extent, threads = body, body.value, body.body
    if isinstance(extent, tirx.IntImm) and int(extent) > 0:
        return body
    inside = tirx.IfThenElse(blocks.node.var < extent, threads.body, None)
    least = tirx.max(extent, tirx.const(1, str(extent.ty.dtype)))
    within = tirx.AttrStmt(threads.node, threads.attr_key, threads.value, inside)
    return tirx.AttrStmt(blocks.node, blocks.attr_key, least, within)
