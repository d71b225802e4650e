"""The request for one compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from maxtool.artifact.input_types import EntrySpec
from maxtool.artifact.user_module import ModuleReference
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.scheme import Scheme

DTYPES = (DType.float32, DType.float16, DType.bfloat16)


Against: TypeAlias = Literal["graph", "transformers", "onnxruntime"]
CacheType: TypeAlias = DType | QuantizationEncoding


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every compilation."""

    # ``cpu`` or ``cuda`` of this machine, ``cpu:NAME`` or ``cuda:sm_XX,...`` of another.
    target: str = "cpu"
    ptx: bool = False  # whether an artifact for GPUs holds PTX too, for newer ones
    check: bool = False  # whether the outputs are compared
    standalone: bool = False  # whether TVM's runtime library is put into the folder
    force: bool = False  # whether an existing artifact may be replaced
    name: str | None = None  # in the manifest; if None the model's own, or that of its class


@dataclass(frozen=True)
class Request(Options):
    """One compilation."""

    source: Path  # a Hugging Face folder, a safetensors file or a GGUF file
    output: Path  # the folder to make
    recipe: str | None = None  # name or path; found from the source if None
    devices: int = 1  # that run it together, each with a part of the weights
    # Of the matrices. If None that of the source if all its matrices have one of the three that
    # kernels read, else float32; quantized ones stay so, and for GPUs become float16.
    dtype: DType | None = None
    # How matrices are quantized; as in the source if None. Only for CPUs.
    quantize: Scheme | None = None
    # Of keys and values in the cache; on CPUs also Q8_0. If None float16, or float32 where matrices
    # are float32 or the CPU does not convert; on GPUs that of the matrices.
    kv_dtype: CacheType | None = None
    # Positions to make room for. If None those the model was trained for, or those that its
    # embeddings are cut to, but no more than ``build.USUAL_CONTEXT``.
    context: int | None = None
    batch: int = 1  # texts that a decoder continues side by side, each of its own length
    pooling: str | None = None  # how an encoder makes one vector of a text; its own way if None
    normalize: bool | None = None  # whether that vector is scaled to length 1; likewise
    # Pixels of a side of the images; if None what the source's preprocessing makes.
    image_size: int | None = None
    # What outputs are compared with: the graphs in float64, or the original model.
    against: Against = "graph"
    ignore: frozenset[str] = frozenset()  # keys of the configuration to pass over
    # What is known of where the source was brought from, for the manifest: its name, and more.
    origin: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ModuleRequest(Options):
    """One compilation of a user's module."""

    module: ModuleReference  # its file is executed
    weights: Path | None  # the checkpoint with their values, if the module has any
    output: Path  # the folder to make
    entries: tuple[EntrySpec, ...]
    prefix: str = ""  # of the names of its tensors in the checkpoint
    dtype: DType | None = None  # of the matrices; if None what the module declares
    origin: Mapping[str, object] = field(default_factory=dict)  # of the weights


@dataclass(frozen=True)
class OnnxRequest(Options):
    """One compilation of an ONNX model."""

    source: Path  # the file
    output: Path  # the folder to make
    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)  # of inputs
    fixed: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # inputs that are constants
    against: Against = "graph"  # what outputs are compared with: the graph, or the model itself
    origin: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class SaveRequest(Options):
    """Request to save what was compiled in this process."""

    output: Path


Wanted: TypeAlias = Request | ModuleRequest | OnnxRequest | SaveRequest
