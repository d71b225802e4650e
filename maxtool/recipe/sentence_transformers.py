"""Files of the sentence-transformers package beside a ``config.json``: how texts become vectors.

``modules.json`` lists the modules that follow each other: ``Transformer``, ``Pooling`` (its folder
has a ``config.json`` with a flag for each mode), layers (``Dense``), and ``Normalize``.
``sentence_bert_config.json`` says to how many tokens texts are cut,
``config_sentence_transformers.json`` what may be put before them. Recipes see this as keys below
``sentence_transformers``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxtool.recipe import dense_modules, logit_scores
from maxtool.recipe.sentence_lengths import KEY as LENGTH
from maxtool.recipe.sentence_lengths import length_of
from maxtool.recipe.sentence_modules import MODULES, MOST, modules_of
from maxtool.weights.jsonfile import read_object

TABLE = "sentence_transformers"
SETTINGS, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
# What of those two files matters besides where texts are cut: what is done to them before.
TOLD = ("do_lower_case", "default_prompt_name", "activation_fn")
# The package's own files beside a config.json.
BESIDE = (MODULES, SETTINGS, PROMPTS)
# The flags of a pooling module, by our names for the modes.
MODES = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
    "weighted_mean": "pooling_mode_weightedmean_tokens",
    "last": "pooling_mode_lasttoken",
}
NEWER = {
    "lasttoken": "last",
    "weightedmean": "weighted_mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
}


def read(folder: Path) -> dict[str, Any]:
    """The keys, dotted; none where there is no ``modules.json``."""
    if not (folder / MODULES).is_file():
        return {}
    modules = modules_of(folder)
    kinds = [kind for kind, _ in itertools.groupby(module.kind for module in modules)]
    keys: dict[str, Any] = {"modules": " ".join(kinds), "normalize": "Normalize" in kinds}
    for kind, path in modules:
        if kind == "Pooling":
            keys["pooling"] = _pooling(folder / path / "config.json")
    keys |= dense_modules.read(folder, modules)
    keys |= logit_scores.read(folder, modules)
    settings = _optional(folder / SETTINGS) | _optional(folder / PROMPTS)
    length = length_of(settings, templated=logit_scores.KIND in kinds)
    keys |= {name: settings[name] for name in TOLD if settings.get(name) is not None}
    keys |= {} if length is None else {LENGTH: length}
    return {f"{TABLE}.{name}": value for name, value in keys.items()}


def prompts(folder: Path) -> dict[str, str]:
    """The texts that may be put before each text, by name; none without a ``modules.json``.

    None either where the vector of a text is to be made without the tokens of what is before it.
    """
    if not (folder / MODULES).is_file() or _leaves_out_prompts(folder):
        return {}
    named = _optional(folder / PROMPTS).get("prompts")
    listed = named.items() if isinstance(named, dict) else ()
    return {name: text for name, text in listed if isinstance(text, str)}


def _leaves_out_prompts(folder: Path) -> bool:
    pools = modules_of(folder, "Pooling")
    read = [_optional(folder / module.path / "config.json") for module in pools]
    return any(config.get("include_prompt") is False for config in read)


def files(keys: Mapping[str, Any], width: int) -> dict[str, bytes]:
    """The files that say what ``keys`` (without their table's name) say, by paths in the folder.

    ``width`` is the number of elements of a vector.
    """
    mode = keys.get("pooling")
    if logit_scores.TRUE in keys:
        return logit_scores.files(keys)
    if mode is None:
        return {}
    length = keys.get(LENGTH)
    layers = dense_modules.configs(keys, width)
    kinds = ["Transformer", "Pooling", *(dense_modules.KIND for _ in layers)]
    kinds += ["Normalize"] if keys.get("normalize") else []
    paths = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds[1:], 1))]
    flags = {flag: name == mode for name, flag in MODES.items()}
    configs = [{"word_embedding_dimension": width, **flags}, *layers]
    made: dict[str, object] = {
        MODULES: [
            {"idx": i, "name": str(i), "path": path, "type": f"{TABLE}.models.{kind}"}
            for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
        ],
        **{f"{path}/config.json": each for path, each in zip(paths[1:], configs, strict=False)},
        **({} if length is None else {SETTINGS: {LENGTH: length}}),
    }
    return {name: (json.dumps(content, indent=2) + "\n").encode() for name, content in made.items()}


def carried(folder: Path) -> list[str]:
    """The paths of the package's files that are there, to be copied as they are."""
    if not (folder / MODULES).is_file():
        return []
    names = [*BESIDE, *(f"{path}/config.json" for path in folders(folder))]
    return [name for name in names if (folder / name).is_file()]


def folders(folder: Path) -> list[str]:
    """The sub-folders that modules are kept in; none where there is no ``modules.json``."""
    return [module.path for module in modules_of(folder) if module.path]


def _pooling(file: Path) -> str:
    """The mode, as newer versions name it or as flags say it; several are joined by a plus."""
    config = read_object(file, most=MOST)
    if isinstance(name := config.get("pooling_mode"), str):
        return NEWER.get(name, name)
    modes = [name for name, flag in MODES.items() if config.get(flag) is True]
    return "+".join(modes) or "none"


def _optional(file: Path) -> dict[str, object]:
    return read_object(file, most=MOST) if file.is_file() else {}
