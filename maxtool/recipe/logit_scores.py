"""Scores that a language model's logits are, of which sentence-transformers has a module.

A ``LogitScore`` module's ``config.json`` names the token whose logit counts, and perhaps one whose
logit is taken off. Recipes see these as keys below ``sentence_transformers``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maxtool.errors import MalformedFile
from maxtool.recipe.sentence_modules import MODULES, MOST, SentenceModule
from maxtool.weights.jsonfile import read_object

KIND, CONFIG = "LogitScore", "config.json"
TRUE, FALSE = "true_token_id", "false_token_id"
CLASSES = {
    "": "sentence_transformers.base.modules.transformer.Transformer",
    f"1_{KIND}": f"sentence_transformers.cross_encoder.modules.logit_score.{KIND}",
}
"""The classes of the modules that are written, by their folders."""
PROMPTS, ACTIVATION = "config_sentence_transformers.json", "activation_fn"
INPUT, USUAL_INPUT = "module_input_name", "causal_logits"


def read(folder: Path, modules: Sequence[SentenceModule]) -> dict[str, Any]:
    """The keys of such a module among some; none where there is none of these."""
    found = [folder / module.path / CONFIG for module in modules if module.kind == KIND]
    if len(found) != 1:  # the list of modules is refused where there are several
        return {}
    config = read_object(found[0], most=MOST)
    if config.get(TRUE) is None:
        raise MalformedFile(f"a {KIND} module without {TRUE}", file=found[0])
    told = {name: config[name] for name in (TRUE, FALSE) if config.get(name) is not None}
    return {**told, "score_input_name": config.get(INPUT, USUAL_INPUT)}


def files(keys: Mapping[str, Any]) -> dict[str, bytes]:
    """The files that say what keys say of such scores, by paths in the folder."""
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate(CLASSES.items())
    ]
    scores = {TRUE: keys[TRUE], FALSE: keys.get(FALSE), INPUT: USUAL_INPUT}
    told: dict[str, object] = {"model_type": "CrossEncoder", "prompts": {}}
    told["default_prompt_name"] = None
    made: dict[str, object] = {
        MODULES: listed,
        f"{[*CLASSES][-1]}/{CONFIG}": scores,
        PROMPTS: told | ({ACTIVATION: keys[ACTIVATION]} if keys.get(ACTIVATION) else {}),
    }
    return {name: (json.dumps(content, indent=2) + "\n").encode() for name, content in made.items()}
