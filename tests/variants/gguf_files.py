"""GGUF files of a recorded configuration: converted, with other keys, with further tensors."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxtool.conversion import Request, convert, prepare
from maxtool.dtype import DType
from maxtool.errors import MaxtoolError
from maxtool.recipe import Recipe, find_recipe
from maxtool.recipe.naming import title
from maxtool.weights import Checkpoint, TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf
from tests.data.seeded import tensors
from tests.variants.cases import Case, read
from tests.variants.written_files import SIZES

UNTIED = ("gemma", "gemma2", "gemma3_text")
"""Model types whose output matrix llama.cpp's converter leaves out."""
# Frequencies that llama.cpp's first converters wrote, and its later releases pass over.
BUFFERS: Mapping[str, tuple[str, ...]] = {"llama": ("blk.0.attn_rot_embd",)}
# Tensors that say that a model is not supported, and some words of why.
UNSUPPORTED: Mapping[str, Mapping[str, str]] = {
    "bert": {
        "cls.output.weight": "a head that lacks a part",
        "dense_2.weight": "projection of embeddings",
    },
}


def converted(case: Case) -> Iterator[Checkpoint]:
    """The GGUF file of a checkpoint, and llama.cpp's if it differs and says as much."""
    file = _convert(case, case.folder / f"{case.row.family}.gguf")
    yield file
    theirs = case.row.more["gguf"]["keys"]
    ours = {key.partition(".")[2] for key in file.metadata.keys() - theirs.keys()}
    if file.metadata.keys() ^ theirs.keys() and ours <= SIZES:
        keys = {k: file.metadata[k] if k in file.metadata else np.uint32(theirs[k]) for k in theirs}
        yield rewritten(file, keys, case.folder / "theirs.gguf")


def untied(case: Case) -> Iterator[Case]:
    """The GGUF file with an output matrix, where llama.cpp's converter leaves it out."""
    config = case.row.config
    if config["model_type"] not in UNTIED or config.get("tie_word_embeddings", True):
        return
    case.folder.mkdir(exist_ok=True)
    try:
        file = _convert(case, case.folder / "untied.gguf")
    except MaxtoolError:  # GGUF has no key for it
        return
    known = find_recipe(file)
    yield Case(case.row, file, read(known, file, case.row), case.folder, known.name, case.recipe)


def recognised(case: Case, recipe: Recipe) -> Iterator[Case]:
    """A converted file with each choice of the keys that recognise a recipe."""
    told = recipe.match["gguf"].values
    alone = dataclasses.replace(case.row, more={})
    for index, values in enumerate(itertools.product(*told.values())):
        keys = {**case.checkpoint.metadata, **dict(zip(told, values, strict=True))}
        file = rewritten(case.checkpoint, keys, case.folder / f"told{index}.gguf")
        yield Case(alone, file, read(recipe, file, alone), case.folder, recipe.name, recipe.name)


def first_files(case: Case) -> Iterator[Case]:
    """A converted file with buffers that the first releases wrote."""
    if names := BUFFERS.get(case.row.config["model_type"]):
        file = with_tensors(case.checkpoint, names, case.folder / "first.gguf")
        assert case.usual is not None
        usual = read(case.usual.recipe, file, case.row)
        row = dataclasses.replace(case.row, more={})
        yield dataclasses.replace(case, row=row, checkpoint=file, usual=usual, known={})


def with_tensors(file: Checkpoint, names: Sequence[str], output: Path) -> Checkpoint:
    """A GGUF file with further tensors."""
    return rewritten(file, file.metadata, output, names)


def _convert(case: Case, output: Path) -> Checkpoint:
    convert(prepare(Request(case.checkpoint.path, output, name=title(case.row.family))))
    return open_checkpoint(output)


def rewritten(
    file: Checkpoint, keys: Mapping[str, Any], output: Path, names: Sequence[str] = ()
) -> Checkpoint:
    """A GGUF file with other keys, and with further tensors."""
    more = tensors({name: [2] for name in names}, 0.0)
    specs = [TensorSpec(i.name, i.dtype, i.shape, i.encoding) for i in file.tensors.values()]
    specs += [TensorSpec(name, DType.float32, array.shape) for name, array in more.items()]
    data = [file.read(each).data for each in file.tensors]
    gguf.write(output, specs, [*data, *more.values()], dict(keys))
    return open_checkpoint(output)
