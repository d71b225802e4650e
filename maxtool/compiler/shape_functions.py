"""One form of the functions that compute sizes, so that equal inputs give equal code.

TVM's ``VMShapeLower`` collects the sizes that a call needs into functions which write each to a
slot of its own. It walks a map whose keys are hashed by address, so the order of the stores differs
from process to process; functions that happen to come out equal are kept once, so even their number
does. No store reads what another writes: any order is right. Here they get that of their slots,
equal functions are kept once, and all are named in the order of their first calls.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx
from tvm_ffi import structural_map, structural_walk

# What TVM calls them, and the attribute that it marks them with.
NAME, MARK = "shape_func", "tirx.is_host_func"


def settle_shape_functions() -> Any:  # noqa: ANN401 - tvm ships no types
    """The pass that gives these functions one form; all others stay as they are."""
    return tvm.transform.module_pass(
        lambda module, _: _settled(module), 0, "maxtool.ShapeFunctions"
    )


def _settled(module: Any) -> Any:  # noqa: ANN401
    named = sorted(module.functions.items(), key=lambda item: str(item[0].name_hint))
    computing = {name: function for name, function in named if _computes_sizes(function)}
    callers = {name: function for name, function in named if isinstance(function, relax.Function)}
    others = {name: f for name, f in named if name not in computing and name not in callers}
    builder = relax.BlockBuilder(tvm.IRModule(others))
    kept = {
        name: builder.add_func(_sorted(computing[name]), NAME)
        for function in callers.values()
        for name in _called(function)
        if name in computing
    }
    renaming = (tvm.ir.GlobalVar, lambda name: kept.get(name, name))
    renamed = {name: structural_map(function, renaming) for name, function in callers.items()}
    functions = {**dict(builder.get().functions.items()), **renamed}
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _computes_sizes(function: Any) -> bool:  # noqa: ANN401
    return isinstance(function, tirx.PrimFunc) and MARK in (function.attrs or {})


def _called(function: Any) -> list[Any]:  # noqa: ANN401
    """The functions that one names, in its own order."""
    names: list[Any] = []
    structural_walk(function.body, (tvm.ir.GlobalVar, names.append))
    return names


def _sorted(function: Any) -> Any:  # noqa: ANN401
    """A function with its stores in the order of their slots, if any order is right."""
    if not _is_free(function.body):
        return function
    return function.with_body(tirx.SeqStmt(sorted(function.body.seq, key=_slot)))


def _is_free(body: Any) -> bool:  # noqa: ANN401
    """Return whether a body only stores into slots of one buffer, each once, and reads none."""
    if not isinstance(body, tirx.SeqStmt) or not all(map(_is_store, body.seq)):
        return False
    written = [_slot(store) for store in body.seq]
    alone = len(set(written)) == len(written) and len({store.buffer for store in body.seq}) == 1
    return alone and not any(_reads(store.value, set(written)) for store in body.seq)


def _is_store(statement: Any) -> bool:  # noqa: ANN401
    return isinstance(statement, tirx.BufferStore) and _is_slot(statement.indices)


def _is_slot(indices: Any) -> bool:  # noqa: ANN401
    return len(indices) == 1 and isinstance(indices[0], tirx.IntImm)


def _slot(access: Any) -> int:  # noqa: ANN401
    return int(access.indices[0])


def _reads(value: Any, slots: set[int]) -> bool:  # noqa: ANN401
    """Return whether an expression may read one of these slots, whichever buffer it says."""
    loads: list[Any] = []
    structural_walk(value, (tvm.ir.TensorLoad, loads.append))
    return any(not _is_slot(load.indices) or _slot(load) in slots for load in loads)
