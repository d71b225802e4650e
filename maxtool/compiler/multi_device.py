"""Modules with kernels of several targets: each kind has its own schedules and passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx import compilation_pipeline

# Pass it as ``tvm.compile(module, target, tir_pipeline=NAME)``.
NAME = "maxtool_mixed"

# What TVM calls the kinds.
KINDS = {"llvm": "cpu", "cuda": "cuda"}


def register(pipelines: Mapping[str, str]) -> str:
    """Make a pipeline that lowers each PrimFunc by that of its kind of target known; its name."""
    known = compilation_pipeline.get_tir_pipeline
    made = {target_kind: known(name)[0] for target_kind, name in pipelines.items()}
    lower = tvm.transform.module_pass(lambda module, _: treated(module, made), 0, NAME)
    host = compilation_pipeline.finalize_host_passes
    _, _, device = known(pipelines["cuda"])
    compilation_pipeline.register_tir_pipeline(NAME, lambda: (lower, host, device))
    return NAME


def treated(module: Any, treatments: Mapping[str, Callable[[Any], Any]]) -> Any:  # noqa: ANN401
    """``module`` with its PrimFuncs treated, those of each kind of target by themselves."""
    whole = {
        name: function
        for name, function in module.functions.items()
        if kind_of(function) not in treatments
    }
    for target_kind, treat in treatments.items():
        functions = module.functions.items()
        chosen = {name: each for name, each in functions if kind_of(each) == target_kind}
        whole |= dict(treat(tvm.IRModule(chosen, attrs=module.attrs)).functions)
    return tvm.IRModule(whole, attrs=module.attrs, global_infos=module.global_infos)


def kind_of(function: Any) -> str:  # noqa: ANN401 - tvm ships no types
    """The kind of target that a PrimFunc is for; empty where it does not say, or is none."""
    if not isinstance(function, tirx.PrimFunc) or not function.attrs:
        return ""
    target = function.attrs.get("target")
    return "" if target is None else KINDS.get(str(target.kind), "")
