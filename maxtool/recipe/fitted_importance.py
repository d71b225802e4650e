"""The importance of a file for the tensors of a model: what fits, and what is said of the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping

from maxtool.errors import ModelMismatch
from maxtool.quantization.block import Float32
from maxtool.quantization.mixes import Role
from maxtool.quantization.scheme import role_of
from maxtool.recipe.layer_ranges import folded
from maxtool.recipe.step import Shape
from maxtool.weights.importance_file import ImportanceFile
from maxtool.weights.names import first_of


def fitted(
    file: ImportanceFile, shapes: Mapping[str, Shape]
) -> tuple[dict[str, Float32], list[str]]:
    """The importance of matrices, ``[matrices, row]`` by name; and notes on those without it.

    An embedding, which is looked up rather than multiplied with, may have importance of any size,
    which is passed over then, as llama-quantize does.

    Raises:
        ModelMismatch: If sizes do not fit, with all of them, or if no name is the same.
    """
    known = {name: file.columns[name] for name in shapes if name in file.columns}
    sizes = {name: (math.prod(shapes[name][:-2]), shapes[name][-1]) for name in known}
    wrong = [name for name, columns in known.items() if columns.size != math.prod(sizes[name])]
    problems = [
        f"{name} has {math.prod(sizes[name])} columns, and importance for {known[name].size}"
        for name in wrong
        if role_of(name) is not Role.EMBEDDING
    ]
    if problems or (shapes and not known):
        problems = problems or ["no matrix has a name that is in the file"]
        what = "the importance matrix is of another model"
        raise ModelMismatch(what, file=file.file, problems=folded(problems))
    result = {name: known[name].reshape(sizes[name]) for name in known if name not in wrong}
    without = _without(file, [name for name in shapes if name not in result])
    return result, without + _all_zero([n for n, c in result.items() if not c.any(axis=1).all()])


def _without(file: ImportanceFile, names: list[str]) -> list[str]:
    if not names:
        return []
    count = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
    why = f"{file.file.name} has none that fits"
    return [f"{count} quantized without importance, as {why}: {first_of(names, 1)}"]


def _all_zero(names: list[str]) -> list[str]:
    """A warning of matrices whose columns all count for nothing, so that any values would do."""
    if not names:
        return []
    count = "1 tensor has" if len(names) == 1 else f"{len(names)} tensors have"
    why = "importance of 0 in every column of a matrix, so its values are lost"
    return [f"{count} {why}: {first_of(names, 1)}"]
