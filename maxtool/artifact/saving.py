"""Artifacts of what was compiled in this process: ``compiled.save(FOLDER)``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

from maxtool.artifact import machine_code, replaceable, weights
from maxtool.artifact.build import SPARE_BYTES, target_of
from maxtool.artifact.check import PassedCheck
from maxtool.artifact.contents import Contents
from maxtool.artifact.module_build import FORWARD_SYMBOL, function_identity, matrix_dtype
from maxtool.artifact.module_check import check_functions
from maxtool.artifact.pure_graphs import pure_function
from maxtool.artifact.writing import make
from maxtool.files import check_output, check_space
from maxtool.nn.saving import CompiledFunction, register
from maxtool.weights.weight_data import WeightData


@dataclass(frozen=True)
class SaveRequest:
    """Request to save a compiled function; attributes as in :class:`maxtool.artifact.Request`."""

    output: Path
    target: str
    check: bool
    standalone: bool
    force: bool
    ptx: bool = False


@dataclass(frozen=True, eq=False)
class SaveBuild:
    """A compiled function as it will be written.

    Attributes:
        request: Where, and how.
        function: The function.
    """

    request: SaveRequest
    function: CompiledFunction

    @cached_property
    def contents(self) -> Contents:
        """The contents of the artifact.

        Raises:
            ModelMismatch: If the graph is not a function of arrays alone.
        """
        graph, names = self.function.graph, (self.function.inputs, self.function.outputs)
        functions = (pure_function("forward", FORWARD_SYMBOL, graph, *names),)
        identity = function_identity(self.function.name, self.function.name)
        return Contents(
            functions, target_of(self.request), self._read, identity, matrix_dtype(functions)
        )

    def _read(self, name: str) -> WeightData:
        return WeightData.from_numpy(self.function.weight(name), name)

    def compare(self, folder: Path) -> PassedCheck:
        """Compare with the graph in float64.

        Raises:
            ParityFailed: If outputs are not those of the graph.
        """
        return check_functions(self.contents, folder)

    def check_unchanged(self) -> None:
        """Do nothing: the weights are in memory."""


def save(
    function: CompiledFunction,
    folder: str | PathLike[str],
    *,
    force: bool,
    check: bool,
    standalone: bool,
) -> None:
    """Write a compiled function as an artifact; arguments and errors as of `nn.saving.save`."""
    output, graph = Path(folder), function.graph
    on_gpu = any(value.device.is_gpu() for value in (*graph.inputs, *graph.outputs))
    build = SaveBuild(
        SaveRequest(output, "cuda" if on_gpu else "cpu", check, standalone, force), function
    )
    check_output(output, force=force)
    replaceable.check(output)
    machine_code.require_tools(build.contents.target)
    check_space(output, weights.total_bytes(build.contents) + SPARE_BYTES)
    make(build)


register(save)
