"""Inputs that a check gives to the functions of an artifact, drawn with a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from maxtool.architectures import Limit
from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.dtype import DType

Array: TypeAlias = np.ndarray[Any, Any]

MASK, POSITION = "attention_mask", "position"
TOKENS = "seq"
"""The dimension of a text's tokens."""
USUAL = (0, 9)
"""The whole numbers that an input has whose limits nothing says."""


def draw(contents: Contents, function: NamedGraph, length: int) -> dict[str, Array]:
    """Draw values for the inputs of a function, from all that are allowed.

    Masks leave one text whole and pad the others; a position is 0.
    """
    types, random = function.input_types, np.random.default_rng(0)
    # Several texts where they are padded.
    texts = [length, length - length // 3, 1] if MASK in types else [length]
    sizes = _sizes(contents, function, len(texts), length)
    inputs = {}
    for name, kind in types.items():
        shape = [dim.size(sizes) for dim in kind.shape]
        limit = (0, 0) if name == POSITION else contents.limits.get(name, USUAL)
        inputs[name] = values(kind.dtype, shape, limit, random)
    if MASK in inputs:
        inputs[MASK] = (np.arange(length) < np.array(texts)[:, None]).astype(np.int64)
    return inputs


def _sizes(contents: Contents, function: NamedGraph, batch: int, length: int) -> dict[str, int]:
    """A size for each symbolic dimension: of texts those asked for, of others all different."""
    names = {
        name for kind in function.input_types.values() for dim in kind.shape for name in dim.names()
    }
    sizes = {}
    for number, name in enumerate(sorted(names), start=2):
        limit = contents.limits.get(name)
        most = limit if isinstance(limit, int) else number
        sizes[name] = max(min(number, most), function.least.get(name, 1))
    texts = {"batch": batch, TOKENS: length} if TOKENS in contents.limits else {}
    return sizes | texts


def values(dtype: DType, shape: Sequence[int], limit: Limit, random: np.random.Generator) -> Array:
    """Draw an array: floats of a normal distribution, others between their limits."""
    if dtype is DType.float8_e8m0fnu:  # powers of two alone
        return np.exp2(random.integers(-2, 3, shape)).astype(dtype.to_numpy())
    if dtype.is_float():
        return random.standard_normal(shape, np.float32).astype(dtype.to_numpy())
    low, high = (0, 1) if dtype is DType.bool else limit if isinstance(limit, tuple) else USUAL
    return random.integers(low, high + 1, shape).astype(dtype.to_numpy())
