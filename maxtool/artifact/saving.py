"""Artifacts of what was compiled in this process: ``compiled.save(FOLDER)``."""

from __future__ import annotations

from pathlib import Path

from maxtool.artifact.contents import Contents, used_target
from maxtool.artifact.module_build import FORWARD_SYMBOL, function_identity, matrix_dtype
from maxtool.artifact.planned import Planned, check_place, target_of
from maxtool.artifact.pure_graphs import pure_function
from maxtool.artifact.request import SaveRequest
from maxtool.artifact.writing import make
from maxtool.nn.saving import CompiledFunction


def save(
    function: CompiledFunction, output: Path, *, force: bool, check: bool, standalone: bool
) -> None:
    """Write a compiled function as an artifact; options are those of a request."""
    graph = function.graph
    on_gpu = any(value.device.is_gpu() for value in (*graph.inputs, *graph.outputs))
    target = "cuda" if on_gpu else "cpu"
    request = SaveRequest(output, target=target, force=force, check=check, standalone=standalone)
    check_place(request)
    build = planned(function, request)
    build.check_machine()
    make(build)


def planned(function: CompiledFunction, request: SaveRequest) -> Planned:
    """A compiled function as it will be written."""
    names = (function.inputs, function.outputs)
    functions = (pure_function("forward", FORWARD_SYMBOL, function.graph, *names),)
    identity = function_identity(function.name, function.name)
    dtype = matrix_dtype(functions, function.encodings)
    contents = Contents(
        functions,
        used_target(target_of(request), function.encodings),
        function.weight,
        identity,
        dtype,
        function.encodings,
    )
    return Planned(request, contents, checkpoint=None, notes=[])
