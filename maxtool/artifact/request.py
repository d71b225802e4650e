"""The request for one compilation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from maxtool.artifact.input_types import EntrySpec
from maxtool.artifact.user_module import ModuleReference
from maxtool.dtype import DType

DTYPES = (DType.float32, DType.float16, DType.bfloat16)


Against: TypeAlias = Literal["graph", "transformers"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every compilation.

    Attributes:
        target: What to compile for: ``cpu`` or ``cuda`` for what is here, ``cpu:NAME`` or
            ``cuda:sm_XX,...`` for another machine.
        ptx: Whether an artifact for GPUs holds PTX too, for GPUs that are newer.
        check: Whether the outputs are compared.
        standalone: Whether TVM's runtime library is put into the folder.
        force: Whether an existing artifact may be replaced.
        name: What the model is called in the manifest; when not given its own name, or that of the
            module's class.
    """

    target: str = "cpu"
    ptx: bool = False
    check: bool = False
    standalone: bool = False
    force: bool = False
    name: str | None = None


@dataclass(frozen=True)
class Request(Options):
    """One compilation.

    Attributes:
        source: A Hugging Face folder, a safetensors file or a GGUF file.
        output: The folder to make.
        recipe: Name or path of the recipe; found from the source when not given.
        devices: How many of the target run it together, each with a part of the weights.
        dtype: Element type of the matrices. When not given: that of the source if all its matrices
            have one of the three that kernels read, else float32; for GPUs float16 if they are
            quantized.
        context: Positions to make room for; when not given those the model was trained for, or
            those that its embeddings are cut to, but no more than ``build.USUAL_CONTEXT``.
        pooling: How an encoder makes one vector of a text; what the source says when not given.
        normalize: Whether that vector is scaled to length 1; what the source says when None.
        against: What the outputs are compared with: ``graph``, the graphs in float64, or
            ``transformers``, the original model.
        ignore: Configuration keys to pass over.
    """

    source: Path
    output: Path
    recipe: str | None = None
    devices: int = 1
    dtype: DType | None = None
    context: int | None = None
    pooling: str | None = None
    normalize: bool | None = None
    against: Against = "graph"
    ignore: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ModuleRequest(Options):
    """One compilation of a user's module.

    Attributes:
        module: Where the module is defined. That file is executed.
        weights: The checkpoint with the values of its weights; None for a module without weights.
        output: The folder to make.
        entries: Its functions, with the types of their inputs.
        prefix: What the names of its tensors in the checkpoint begin with.
        dtype: Element type of the matrices; when not given, what the module declares.
    """

    module: ModuleReference
    weights: Path | None
    output: Path
    entries: tuple[EntrySpec, ...]
    prefix: str = ""
    dtype: DType | None = None


@dataclass(frozen=True)
class SaveRequest(Options):
    """Request to save what was compiled in this process."""

    output: Path


Wanted: TypeAlias = Request | ModuleRequest | SaveRequest
