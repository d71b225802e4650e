"""Facts for the manifest of a model that makes vectors: what may be put before each text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from maxtool.architectures.entry import Entry
from maxtool.errors import ConfigurationError
from maxtool.recipe import Plan, sentence_transformers
from maxtool.recipe.pair_template import pair_template
from maxtool.runtime.loader.specs import EMBED
from maxtool.tokenizer import Tokenizer


def embedding_facts(
    planned: Plan, entries: Iterable[Entry], tokenizer: Tokenizer | None
) -> Mapping[str, Any]:
    """The facts ``prompts``, texts by name, and ``pair_template``, where a checkpoint has them.

    Raises:
        ConfigurationError: If it names one as the usual that it does not have.
    """
    if all(entry.name != EMBED for entry in entries):
        return {}
    template = pair_template(planned, tokenizer)
    pairs = {} if template is None else {"pair_template": template.manifest}
    if planned.dialect != "hf":
        return pairs
    prompts = sentence_transformers.prompts(planned.checkpoint.folder)
    usual = planned.config.get("default_prompt")
    if usual is not None and usual not in prompts:
        what = f"the prompt {usual!r:.80} that is put before each text is none of the prompts"
        file = planned.checkpoint.folder / sentence_transformers.PROMPTS
        raise ConfigurationError(what, file=file, problems=[*prompts])
    return {**pairs, "prompts": prompts} if prompts else pairs
