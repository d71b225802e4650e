"""What is asked of a compilation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from maxtool.dtype import DType

DTYPES = (DType.float32, DType.float16, DType.bfloat16)


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
        check: Whether the outputs are compared with the float64 reference.
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
    standalone: bool = False
    force: bool = False
    ignore: frozenset[str] = frozenset()
    name: str | None = None
