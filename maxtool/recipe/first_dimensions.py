"""First dimensions of 1, which a GGUF file has or leaves out.

To ggml a tensor of ``[1, 1024]`` is one of ``[1024]``: it counts dimensions, fastest first, up to
the last that is not 1 (``ggml_n_dims``). What a converter writes with such a dimension is written
without by the tools that copy files, ``llama-quantize`` among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from maxtool.recipe.plan import Plan
from maxtool.recipe.step import Shape
from maxtool.weights import TensorInfo
from maxtool.weights.formats.gguf import MAX_DIMS


def spellings(sources: tuple[TensorInfo, ...]) -> Iterator[tuple[TensorInfo, ...]]:
    """The tensors with none of these dimensions, with one, and so on."""
    bare = [_without(source.shape) for source in sources]
    for count in range(MAX_DIMS - max(map(len, bare), default=0) + 1):
        ones = (1,) * count
        yield tuple(
            replace(source, shape=ones + shape) for source, shape in zip(sources, bare, strict=True)
        )


def respelled(made: Plan) -> None:
    """Give the plan's checkpoint the shapes with which its parameters were bound."""
    known = made.checkpoint.tensors
    bound = (source for binding in made.parameters.values() for source in binding.sources)
    changed = {each.name: each for each in bound if each.shape != known[each.name].shape}
    if changed:
        made.checkpoint = replace(made.checkpoint, tensors={**known, **changed})
        made.tensors = {name: changed.get(t.name, t) for name, t in made.tensors.items()}


def _without(shape: Shape) -> Shape:
    first = next((index for index, dim in enumerate(shape) if dim != 1), len(shape))
    return shape[first:]
