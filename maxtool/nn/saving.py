"""Saving what was compiled in this process: what writes artifacts registers itself here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import Any, Protocol

import numpy as np

from maxtool.graph import Graph

# The module that registers a writer when it is imported, which happens when something is saved and
# none is registered.
PROVIDER = "maxtool.artifact.saving"


@dataclass(frozen=True, slots=True, eq=False)
class CompiledFunction:
    """A compiled graph with names, and its weights.

    Attributes:
        name: What the model is called.
        graph: The graph.
        inputs: A name for each input.
        outputs: A name for each output.
        weight: The elements of a weight by name, as they were when the graph was compiled.
    """

    name: str
    graph: Graph
    inputs: Sequence[str]
    outputs: Sequence[str]
    weight: Callable[[str], np.ndarray[Any, Any]]


class Writer(Protocol):
    """A function that writes artifacts."""

    def __call__(
        self,
        function: CompiledFunction,
        folder: str | PathLike[str],
        *,
        force: bool,
        check: bool,
        standalone: bool,
    ) -> None:
        """Write a compiled function; arguments and errors as of :func:`save`."""


_registered: list[Writer] = []


def register(writer: Writer) -> None:
    """Let compiled functions be saved by ``writer``."""
    _registered.append(writer)


def save(
    function: CompiledFunction,
    folder: str | PathLike[str],
    *,
    force: bool = False,
    check: bool = False,
    standalone: bool = False,
) -> None:
    """Write a compiled function as an artifact, the folder that ``maxtool compile`` makes.

    Args:
        function: The function; its entry is ``forward``.
        folder: The folder to make.
        force: Whether an existing artifact is replaced.
        check: Whether its outputs are compared with the graph in float64 first.
        standalone: Whether TVM's runtime library is put into the folder.

    Raises:
        OutputExists: If something is there already.
        ModelMismatch: If the graph is not a function of arrays alone: if it writes buffers in
            place, runs on several devices, or needs sizes that nothing checks.
        ParityFailed: If the outputs are not those of the graph.
        MachineLacks: If the disk has no room, or the machine no linker.
    """
    if not _registered:
        import_module(PROVIDER)
    _registered[-1](function, folder, force=force, check=check, standalone=standalone)
