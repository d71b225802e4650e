"""Rules for what ``--force`` may replace: a folder known to hold a checkpoint, nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from maxtool.conversion.hf_files import CONFIG, GENERATION, PROCESSORS
from maxtool.errors import InputError
from maxtool.recipe import dense_modules
from maxtool.recipe import sentence_transformers as sentences
from maxtool.recipe.sentence_modules import MODULES, modules_of
from maxtool.tokenizer.huggingface import ADDITIONAL, CARRIED
from maxtool.weights.jsonfile import read_object

# Tensors, whole or in shards, with the index of these.
TENSORS = re.compile(
    r"model(-\d{5}-of-\d{5})?\.safetensors|pytorch_model(-\d{5}-of-\d{5})?\.bin"
    r"|(model\.safetensors|pytorch_model\.bin)\.index\.json"
)
CHECKSUMS = "SHA256SUMS"
TEMPLATE = ".jinja"
# What a folder of a module has; weights where it is a layer.
OF_MODULES = frozenset({CONFIG, *dense_modules.WEIGHTS})
BESIDE = frozenset({CHECKSUMS, CONFIG, GENERATION, *CARRIED, *PROCESSORS, *sentences.BESIDE})


def strangers(folder: Path) -> list[str]:
    """The names of entries that belong to no checkpoint, sorted; all if there is no tensor."""
    names = sorted(entry.name for entry in folder.iterdir())
    if not any(TENSORS.fullmatch(name) for name in names):
        return names
    modules = _modules(folder)
    return [name for name in names if not _known(folder / name, modules)]


def strange_names(names: Iterable[str]) -> list[str]:
    """The names of objects below a folder that belong to no checkpoint, as of :func:`strangers`.

    A folder in it may hold a module, where there is a list of modules.
    """
    known = sorted(names)
    if not any(TENSORS.fullmatch(name) for name in known):
        return known
    modules = MODULES in known
    return [name for name in known if not _is_known_object(name, has_modules=modules)]


def _is_known_object(name: str, *, has_modules: bool) -> bool:
    folder, slash, file = name.partition("/")
    if folder == ADDITIONAL and slash:
        return file.endswith(TEMPLATE)
    if slash:
        return has_modules and file in OF_MODULES and bool(folder)
    return name in BESIDE or TENSORS.fullmatch(name) is not None


def _known(entry: Path, modules: Mapping[str, str]) -> bool:
    if entry.is_dir() and not entry.is_symlink():
        if entry.name == ADDITIONAL:
            return all(one.is_file() and one.suffix == TEMPLATE for one in entry.iterdir())
        return entry.name in modules and _is_module(entry, modules[entry.name])
    return entry.name in BESIDE or TENSORS.fullmatch(entry.name) is not None


def _modules(folder: Path) -> dict[str, str]:
    """The sub-folders that a ``modules.json`` names, with the kind of module each has."""
    try:
        return {module.path: module.kind for module in modules_of(folder)}
    except (InputError, OSError):
        return {}


def _is_module(folder: Path, kind: str) -> bool:
    """Return whether a folder only has a module of sentence-transformers: a configuration.

    With it are weights where it is a layer.
    """
    names = {entry.name for entry in folder.iterdir() if entry.is_file()}
    others = {entry.name for entry in folder.iterdir()} - names
    known = OF_MODULES if kind == dense_modules.KIND else {CONFIG}
    try:
        configured = CONFIG in names and bool(read_object(folder / CONFIG))
        return not others and names <= known and (configured or not names)
    except InputError:
        return False
