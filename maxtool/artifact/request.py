"""The request for one compilation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from maxtool.artifact.input_types import EntrySpec
from maxtool.artifact.user_module import ModuleReference
from maxtool.dtype import DType

DTYPES = (DType.float32, DType.float16, DType.bfloat16)


class Wanted(Protocol):
    """Request for any artifact, whatever its source; see :class:`Request`."""

    @property
    def output(self) -> Path:
        """The folder to make."""

    @property
    def target(self) -> str:
        """Return the target."""

    @property
    def ptx(self) -> bool:
        """Return whether PTX is added."""

    @property
    def check(self) -> bool:
        """Return whether outputs are compared."""

    @property
    def standalone(self) -> bool:
        """Return whether TVM's library is added."""

    @property
    def force(self) -> bool:
        """Return whether an artifact may be replaced."""


Against: TypeAlias = Literal["graph", "transformers"]


@dataclass(frozen=True)
class Request:
    """One compilation.

    Attributes:
        source: A Hugging Face folder, a safetensors file or a GGUF file.
        output: The folder to make.
        recipe: Name or path of the recipe; found from the source when not given.
        target: What to compile for: ``cpu`` or ``cuda`` for what is here, ``cpu:NAME`` or
            ``cuda:sm_XX,...`` for another machine.
        devices: How many of them run it together, each with a part of the weights.
        ptx: Whether an artifact for GPUs holds PTX too, for GPUs that are newer.
        dtype: Element type of the matrices. When not given: that of the source if all its matrices
            have one of the three that kernels read, else float32; for GPUs float16 if they are
            quantized.
        context: Positions to make room for; when not given those the model was trained for, or
            those that its embeddings are cut to, but no more than ``build.USUAL_CONTEXT``.
        pooling: How an encoder makes one vector of a text; what the source says when not given.
        normalize: Whether that vector is scaled to length 1; what the source says when None.
        check: Whether the outputs are compared.
        against: What they are compared with: ``graph``, the graphs in float64, or
            ``transformers``, the original model.
        standalone: Whether TVM's runtime library is put into the folder.
        force: Whether an existing artifact may be replaced.
        ignore: Configuration keys to pass over.
        name: What the model is called in the manifest; its own name when not given.
    """

    source: Path
    output: Path
    recipe: str | None = None
    target: str = "cpu"
    devices: int = 1
    ptx: bool = False
    dtype: DType | None = None
    context: int | None = None
    pooling: str | None = None
    normalize: bool | None = None
    check: bool = False
    against: Against = "graph"
    standalone: bool = False
    force: bool = False
    ignore: frozenset[str] = frozenset()
    name: str | None = None


@dataclass(frozen=True)
class ModuleRequest:
    """One compilation of a user's module.

    Attributes:
        module: Where the module is defined. That file is executed.
        weights: The checkpoint with the values of its weights; None for a module without weights.
        output: The folder to make.
        entries: Its functions, with the types of their inputs.
        prefix: What the names of its tensors in the checkpoint begin with.
        target: As in :class:`Request`.
        ptx: As in :class:`Request`.
        dtype: Element type of the matrices; when not given, what the module declares.
        check: Whether the outputs are compared with those of the graph in float64.
        standalone: As in :class:`Request`.
        force: As in :class:`Request`.
        name: What the model is called in the manifest; the name of the class when not given.
    """

    module: ModuleReference
    weights: Path | None
    output: Path
    entries: tuple[EntrySpec, ...]
    prefix: str = ""
    target: str = "cpu"
    ptx: bool = False
    dtype: DType | None = None
    check: bool = False
    standalone: bool = False
    force: bool = False
    name: str | None = None
