"""8-bit floats with scales, as published models store them, seen as the float weights they mean.

A tensor ``NAME`` of 8-bit floats has its scale in ``NAME_scale_inv`` or ``NAME_scale``; in spite of
the first name, the weight is their product, computed in float32, and in compressed-tensors rounded
to the type of the scale. A scale is one number for all, one
for each row, or one for each block of ``weight_block_size``, 128x128 in DeepSeek-V3 and its like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.casting import CHUNK_ELEMENTS, cast, widen
from maxtool.dtype import DType
from maxtool.errors import MalformedFile, MissingWeight
from maxtool.parallel import in_parts
from maxtool.weights.composite import CompositeTensor, View
from maxtool.weights.names import first_of
from maxtool.weights.tensor_info import TensorInfo

Shape = tuple[int, ...]
# Elements along the last two dimensions that share a scale, where scales are of blocks.
Block = tuple[int, int]

SCALES = ("_scale_inv", "_scale")
# Scales of activations beside a weight, which say nothing of the weight.
ACTIVATION_SCALES = ("input_scale", "activation_scale")
VALUE_TYPES = frozenset(
    {DType.float8_e4m3fn, DType.float8_e4m3fnuz, DType.float8_e5m2, DType.float8_e5m2fnuz}
)
SCALE_TYPES = frozenset({DType.float32, DType.bfloat16, DType.float16, DType.float8_e8m0fnu})
BLOCK = (128, 128)


@dataclass(frozen=True, slots=True)
class ScaledTensor(CompositeTensor):
    """8-bit floats and their scale as one float tensor; file and offset are the values'.

    Attributes:
        values: The 8-bit floats.
        scale: Their scale; ``None`` if it is missing, and then there is no reading them.
        runs: How many elements along each dimension share a scale.
    """

    values: TensorInfo = field(kw_only=True)
    scale: TensorInfo | None = field(kw_only=True)
    runs: Shape = field(kw_only=True, default=())

    @property
    def parts(self) -> tuple[TensorInfo, ...]:
        """The values and the scale."""
        return (self.values, *([self.scale] if self.scale else []))

    @property
    def type_name(self) -> str:
        """The type that is stored."""
        return self.values.type_name

    def read(self, view: View) -> NDArray[Any]:
        """The products."""
        if self.scale is None:
            what = f"{self.values.dtype.name} values without their scale {self.name}{SCALES[0]}"
            raise MissingWeight(what, file=self.file, tensor=self.name)
        products = _products(view(self.values), view(self.scale), self.runs)
        return cast(products, self.dtype)[0] if self.dtype is not DType.float32 else products


def scheme(content: object) -> Block | None:
    """Parse a ``quantization_config``; ``None`` if it is not of 8-bit floats."""
    if not isinstance(content, dict):
        return None
    known = _SCHEMES.get(str(content.get("quant_method")))
    return known(content) if known else None


def paired(
    tensors: Mapping[str, TensorInfo], declared: Block | None, *, rounded: bool = False
) -> tuple[Mapping[str, TensorInfo], tuple[str, ...]]:
    """Tensors in their order as they are to be seen, and notes: scaled ones as one, scales hidden.

    Args:
        tensors: As the files have them.
        declared: What the configuration says. If it says anything, 8-bit floats without a scale
            cannot be read, and scales must fit; otherwise they are numbers like any others.
        rounded: Whether products are rounded to the type of the scale.
    """
    values = [info for info in tensors.values() if info.dtype in VALUE_TYPES]
    if not values:
        return tensors, ()
    seen = {info.name: _scaled(info, tensors, declared or BLOCK) for info in values}
    problems = [problem for problem in seen.values() if isinstance(problem, str)]
    if problems and declared:
        what = "scales do not fit their tensors"
        raise MalformedFile(what, file=values[0].file, problems=problems)
    pairs = {name: pair for name, pair in seen.items() if isinstance(pair, ScaledTensor)}
    scaled = {name: pair for name, pair in pairs.items() if pair.scale or declared}
    if rounded:
        scaled = {name: _rounded(pair) for name, pair in scaled.items()}
    hidden = {pair.scale.name for pair in scaled.values() if pair.scale}
    hidden |= {name for one in scaled for name in _beside(one)}
    visible = {n: scaled.get(n, info) for n, info in tensors.items() if n not in hidden}
    return visible, tuple(_notes(scaled))


def _notes(scaled: Mapping[str, ScaledTensor]) -> list[str]:
    missing = [name for name, pair in scaled.items() if pair.scale is None]
    count = len(scaled) - len(missing)
    types = " and ".join(dict.fromkeys(p.dtype.value for p in scaled.values() if p.scale))
    notes = [f"{count} tensors of 8-bit floats are read as {types}, times their scales"]
    return notes[: count > 0] + ([f"{first_of(missing, 1)} lack their scales"] if missing else [])


def _beside(name: str) -> list[str]:
    """Names that the scale of the activations for the weight ``name`` may have."""
    module = name.rpartition(".")[0]
    return [f"{module}.{scale}" if module else scale for scale in ACTIVATION_SCALES]


def _scaled(
    values: TensorInfo, tensors: Mapping[str, TensorInfo], block: Block
) -> ScaledTensor | str:
    """The values with their scale, or what is wrong with it."""
    names = [f"{values.name}{suffix}" for suffix in SCALES]
    infos = [tensors[name] for name in names if name in tensors]
    if len(infos) > 1:
        return f"{values.name}: has two scales, {' and '.join(names)}"
    if not infos:
        return _seen(values, None, ())
    (scale,) = infos
    if scale.dtype not in SCALE_TYPES or scale.encoding is not None:
        return f"{scale.name}: is {scale.type_name}"
    runs = _runs(values.shape, scale.shape, block)
    if runs is None:
        of = f"for {list(values.shape)} in blocks of {list(block)}"
        return f"{scale.name}: has the shape {list(scale.shape)}, {of}"
    return _seen(values, scale, runs)


def _seen(values: TensorInfo, scale: TensorInfo | None, runs: Shape) -> ScaledTensor:
    return ScaledTensor(
        values.name,
        DType.float32 if scale else values.dtype,
        values.shape,
        file=values.file,
        offset=values.offset,
        values=values,
        scale=scale,
        runs=runs,
    )


def _rounded(pair: ScaledTensor) -> ScaledTensor:
    """The same as products of the scale's type."""
    if pair.scale is None or pair.scale.dtype is DType.float8_e8m0fnu:
        return pair
    return replace(pair, dtype=pair.scale.dtype)


def _runs(shape: Shape, scale: Shape, block: Block) -> Shape | None:
    """Return how many elements of each dimension share a scale; ``None`` if shapes misfit."""
    if math.prod(scale) == 1:
        return shape
    if len(shape) > 1 and scale == shape[:1]:
        return (1, *shape[1:])
    if len(scale) != len(shape):
        return None
    edges = (1,) * (len(shape) - 2) + block[-len(shape) :]
    runs = []
    for size, count, edge in zip(shape, scale, edges, strict=True):
        fitting = [run for run in (1, size, edge) if count == -(-size // max(run, 1))]
        if not fitting:
            return None
        runs.append(fitting[0])
    return tuple(runs)


# --- reading -------------------------------------------------------------------------------------


def _products(values: NDArray[Any], scale: NDArray[Any], runs: Shape) -> NDArray[np.float32]:
    """``values * scale`` in float32, each scale repeated over its block, rows by rows."""
    product = np.empty(values.shape, np.float32)
    if not values.size:
        return product
    row = values.shape[-1] if values.ndim else 1
    rows, out = values.reshape(-1, row), product.reshape(-1, row)
    table = scale.astype(np.float32).reshape(-1, -(-row // (runs[-1] if runs else 1)))
    where = _rows_of_scales(values.shape[:-1], runs[:-1])

    def work(part: slice) -> None:
        with np.errstate(all="ignore"):
            widen(rows[part], out[part])
            factors = table[where[part]]
            if factors.shape[1] > 1:
                factors = factors.repeat(runs[-1], axis=1)[:, :row]
            out[part] *= factors

    in_parts(len(rows), max(1, CHUNK_ELEMENTS // row), work, threads=1)
    return product


def _rows_of_scales(shape: Shape, runs: Shape) -> NDArray[np.intp]:
    """Return, for each row of a tensor, the row of its scales."""
    where = np.zeros(1, np.intp)
    for size, run in zip(shape, runs, strict=True):
        blocks = np.arange(size) // run
        where = (where[:, None] * -(-size // run) + blocks).reshape(-1)
    return where


# --- what configurations say ---------------------------------------------------------------------


def _fp8(content: Mapping[str, Any]) -> Block | None:
    """Transformers' own, DeepSeek's, AutoFP8's and FBGEMM's form."""
    return _with_block(content.get("weight_block_size"))


def _compressed(content: Mapping[str, Any]) -> Block | None:
    """compressed-tensors: any number of groups of layers, all with weights of 8-bit floats."""
    sparsity, groups = content.get("sparsity_config") or {}, content.get("config_groups")
    if content.get("format") not in ("float-quantized", "naive-quantized"):
        return None
    if not isinstance(sparsity, dict) or sparsity.get("format", "dense") != "dense":
        return None
    if content.get("kv_cache_scheme") is not None or not isinstance(groups, dict):
        return None
    weights = [_fp8_weights(group) for group in groups.values()]
    blocks = [weight.get("block_structure") for weight in weights if weight is not None]
    if len(blocks) != len(groups) or any(block != blocks[0] for block in blocks):
        return None
    return _with_block(blocks[0]) if blocks else None


def _fp8_weights(group: object) -> Mapping[str, Any] | None:
    """Return a group's settings for weights, if these are 8-bit floats."""
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        return None
    return weights if (weights.get("type"), weights.get("num_bits")) == ("float", 8) else None


def _with_block(block: object) -> Block | None:
    if block is None:
        return BLOCK
    if isinstance(block, list) and len(block) == 2:
        rows, columns = block
        if type(rows) is int and type(columns) is int and rows > 0 and columns > 0:
            return (rows, columns)
    return None


_SCHEMES: Mapping[str, Callable[[Mapping[str, Any]], Block | None]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "compressed-tensors": _compressed,
}
