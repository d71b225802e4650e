"""Rotary settings from a GGUF file: keys below ``rope.``, and tensors of divisors."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.parity.decoder.rope import Rope
from maxtool.parity.decoder.scaling import (
    Divided,
    Linear,
    LongRope,
    Scaling,
    Unscaled,
    Yarn,
    longrope_attention,
    yarn_attention,
)
from maxtool.parity.raw_config import Reader
from maxtool.weights.checkpoint import Checkpoint

DIVISORS, LONG, SHORT = (
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)


def read_rope(read: Reader, checkpoint: Checkpoint, head_dim: int) -> Rope:
    """The rotary settings of a file.

    Args:
        read: Its metadata, below the architecture.
        checkpoint: Whose tensors may divide the frequencies.
        head_dim: Features of a head, all of which rotate where no key says otherwise.
    """
    dim = read.integer("rope.dimension_count", head_dim)
    return Rope(dim, read.number("rope.freq_base", 10000.0), _scaling(read, checkpoint, dim))


def _scaling(read: Reader, checkpoint: Checkpoint, dim: int) -> Scaling:
    planes = (dim + 1) // 2
    if LONG in checkpoint.tensors or SHORT in checkpoint.tensors:
        return _longrope(read, checkpoint, planes)
    if DIVISORS in checkpoint.tensors:
        return Divided(_divisors(read, checkpoint, DIVISORS, planes))
    read.only("rope.scaling.type", "none", "linear", "yarn")
    kind = read.get("rope.scaling.type")
    if kind == "yarn":
        return _yarn(read)
    # Older files keep the factor alone.
    factor = (
        read.number("rope.scaling.factor")
        if kind == "linear"
        else read.number("rope.scale_linear", 1.0)
    )
    return Unscaled() if factor == 1 else Linear(factor)


def _yarn(read: Reader) -> Scaling:
    factor = read.number("rope.scaling.factor")
    return Yarn(
        factor,
        read.integer("rope.scaling.original_context_length"),
        read.optional_number("rope.scaling.yarn_attn_factor") or yarn_attention(factor),
        read.number("rope.scaling.yarn_beta_fast", 32.0),
        read.number("rope.scaling.yarn_beta_slow", 1.0),
    )


def _longrope(read: Reader, checkpoint: Checkpoint, planes: int) -> Scaling:
    context = read.integer("context_length")
    original = read.integer("rope.scaling.original_context_length", context)
    stated = read.optional_number("rope.scaling.attn_factor")
    return LongRope(
        _divisors(read, checkpoint, SHORT, planes),
        _divisors(read, checkpoint, LONG, planes),
        original,
        stated or longrope_attention(context / original, original),
    )


def _divisors(read: Reader, checkpoint: Checkpoint, name: str, planes: int) -> tuple[float, ...]:
    """The numbers of a tensor; none stand in for a tensor that is reported as wrong."""
    found = checkpoint.tensors.get(name)
    if found is None or tuple(found.shape) != (planes,):
        shape = "is missing" if found is None else f"has shape {list(found.shape)}"
        read.problems.append(f"{name} {shape}, not [{planes}]")
        return ()
    return tuple(checkpoint.read(name).astype(DType.float32).data.tolist())
