"""Facts for the manifest of a model that makes vectors: what may be put before each text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from maxtool.architectures.entry import Entry
from maxtool.errors import ConfigurationError
from maxtool.recipe import Plan, sentence_transformers
from maxtool.runtime.loader.specs import EMBED


def embedding_facts(planned: Plan, entries: Iterable[Entry]) -> Mapping[str, Any]:
    """The fact ``prompts``, texts by name, where a checkpoint has some.

    Raises:
        ConfigurationError: If it names one as the usual that it does not have.
    """
    if planned.dialect != "hf" or all(entry.name != EMBED for entry in entries):
        return {}
    prompts = sentence_transformers.prompts(planned.checkpoint.folder)
    usual = planned.config.get("default_prompt")
    if usual is not None and usual not in prompts:
        what = f"the prompt {usual!r:.80} that is put before each text is none of the prompts"
        file = planned.checkpoint.folder / sentence_transformers.PROMPTS
        raise ConfigurationError(what, file=file, problems=[*prompts])
    return {"prompts": prompts} if prompts else {}
