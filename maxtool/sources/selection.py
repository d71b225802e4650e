"""Selection of the files of a place that are needed for a model."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from maxtool.conversion.hf_files import CONFIG, GENERATION, PROCESSORS
from maxtool.errors import InputError, MissingFile
from maxtool.recipe import dense_modules, sentence_transformers
from maxtool.recipe.pair_template import HF_NAME
from maxtool.recipe.sentence_modules import MODULES, listed_modules
from maxtool.sources.origin import Listed, Origin
from maxtool.tokenizer.huggingface import ADDITIONAL, CARRIED
from maxtool.urls import redacted
from maxtool.weights import locate, lora
from maxtool.weights.formats import ACCEPTED
from maxtool.weights.names import did_you_mean, listed

GGUF, INDEX, ONNX = ".gguf", ".json", ".onnx"
# What is read beside safetensors, PyTorch and ONNX files.
BESIDE = (
    *(CONFIG, GENERATION, *CARRIED, *PROCESSORS[:2], lora.CONFIG),
    *sentence_transformers.BESIDE,
    f"{ADDITIONAL}/{HF_NAME}.jinja",
)
# Names that the file which stands for a model usually has, where nothing lists what is there.
MAIN = (
    *("model.safetensors.index.json", "model.safetensors", lora.TENSORS),
    *("pytorch_model.bin.index.json", "pytorch_model.bin", "model.onnx"),
)


class Selection(NamedTuple):
    """The file that stands for a model, and what is brought with it whatever is in it."""

    main: str
    beside: tuple[str, ...] = ()
    is_named: bool = False  # by the user, or a GGUF file: it is opened instead of its folder


def select(origin: Origin) -> Selection:
    """Select what the user asked for.

    ``MissingFile`` if it is not there, holds no weights, or leaves a choice.
    """
    files, asked = origin.listing, origin.asked
    if asked in files:
        return Selection(asked, _beside(files, asked), is_named=True)
    prefix = f"{asked}/" if asked else ""
    inside = [name.removeprefix(prefix) for name in files if name.startswith(prefix)]
    if asked and not inside:
        what = f"there is no {asked}"
        raise MissingFile(what, file=origin.name, hint=did_you_mean(asked, files))
    main = prefix + _only([name for name in inside if "/" not in name], inside, origin, prefix)
    return Selection(main, _beside(files, main), is_named=main.endswith(GGUF))


def weights_of(main: str, copy: Path) -> list[str]:
    """All files with weights, from the one that stands for them, which ``copy`` is."""
    folder, name = posixpath.split(main)
    names = locate.named_shards(copy) if name.endswith(INDEX) else locate.named_parts(name)
    return [posixpath.join(folder, name) for name in names]


def _only(top: Collection[str], inside: Collection[str], origin: Origin, prefix: str) -> str:
    """The one file that stands for the model; GGUF files are looked for in sub-folders too."""
    _, standing = locate.standing_for(top)
    if not standing or standing[0].endswith(GGUF):
        standing = sorted({locate.named_parts(name)[0] for name in inside if name.endswith(GGUF)})
    if len(standing) == 1:
        return standing[0]
    if not standing:
        raise MissingFile("no weights are there", file=origin.name, hint=f"accepted: {ACCEPTED}")
    raise _several(origin, [prefix + name for name in standing])


def _several(origin: Origin, names: Iterable[str]) -> MissingFile:
    """The question which of several files is meant, with their sizes."""
    sizes = {name: sum(_sizes(origin.listing, name)) for name in names}
    problems = [f"{name}  {size:,} bytes" for name, size in sizes.items()]
    first = next(iter(sizes)).removeprefix(f"{origin.asked}/" if origin.asked else "")
    hint = f"name the one that is meant, such as {redacted(origin.name).rstrip('/')}/{first}"
    what = "several models are there"
    return MissingFile(what, file=origin.name, problems=problems, hint=hint)


def _sizes(files: Mapping[str, Listed], name: str) -> list[int]:
    """The bytes of a file, or of each part of it."""
    folder, last = posixpath.split(name)
    parts = [posixpath.join(folder, part) for part in locate.named_parts(last)]
    return [files[part].size for part in parts if part in files]


def _beside(files: Mapping[str, Listed], main: str) -> tuple[str, ...]:
    """Files that are read beside a file: nothing beside GGUF, which holds all of it."""
    folder, name = posixpath.split(main)
    if name.endswith(GGUF):
        return ()
    wanted = {posixpath.join(folder, one) for one in BESIDE}
    templates = posixpath.join(folder, ADDITIONAL, "")
    wanted |= {one for one in files if one.startswith(templates) and one.endswith(".jinja")}
    if name.endswith(ONNX):  # data outside of the file, by the names that exporters give it
        wanted |= {one for one in files if one.startswith(main)}
    return tuple(one for one in files if one in wanted - {main})


def of_modules(
    origin: Origin, main: str, brought: Mapping[str, Path]
) -> tuple[list[str], list[str]]:
    """Files of the modules that stand beside a model: configurations, and those with weights.

    ``brought`` has the copies of what is beside ``main``. What is not there is left out.
    """
    folder = posixpath.dirname(main)
    copy = brought.get(posixpath.join(folder, MODULES))
    try:
        modules = [] if copy is None else listed_modules(copy)
    except InputError:  # which is said where a recipe needs them
        modules = []
    inside = [module for module in modules if module.path]
    places = {module: posixpath.join(folder, module.path) for module in inside}
    configs = [posixpath.join(place, CONFIG) for place in places.values()]
    weights = [
        [posixpath.join(place, name) for name in dense_modules.WEIGHTS]
        for module, place in places.items()
        if module.kind == dense_modules.KIND
    ]
    origin.look_for([*configs, *(name for names in weights for name in names)])
    there = [name for name in configs if name in origin.listing]
    held = (next((name for name in names if name in origin.listing), None) for names in weights)
    return there, [name for name in held if name is not None]


def check_listed(origin: Origin, names: Iterable[str]) -> None:
    """Check that what an index names is there; ``MissingFile`` names all that is not."""
    absent = [name for name in names if name not in origin.listing]
    if absent:
        what = "files that belong to the model are missing"
        raise MissingFile(what, file=origin.name, problems=listed(absent))
