"""Files and keys by which a model scores pairs of texts by tokens, of each dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from maxtool.errors import ConfigurationError
from maxtool.recipe import Plan, sentence_transformers
from maxtool.recipe.pair_template import (
    GGUF_NAME,
    HF_NAME,
    USUAL,
    jinja_of,
    pair_template,
    places_of,
)
from maxtool.recipe.score_codecs import TOKENS
from maxtool.tokenizer import Tokenizer
from maxtool.tokenizer.huggingface import ADDITIONAL

TEMPLATE, TEMPLATES = f"tokenizer.chat_template.{GGUF_NAME}", "tokenizer.chat_templates"
LABELS = "classifier.output_labels"
CONVERSATIONS = "chat_template.jinja"
METHOD = {"method": "forward", "method_output_name": "logits"}
# What sentence-transformers is told of the model inside, and of the template.
SETTINGS: Mapping[str, Any] = {
    "transformer_task": "text-generation",
    "modality_config": {"text": METHOD, "message": {**METHOD, "format": "flat"}},
    "module_output_name": "causal_logits",
    "processing_kwargs": {"chat_template": {"chat_template": HF_NAME}},
}


def scores_by_tokens(plan: Plan) -> bool:
    """Return whether a model scores texts by the logits of tokens."""
    return plan.config.get("scored_by") == TOKENS


def gguf_keys(
    plan: Plan, architecture: str, tokenizer: Tokenizer | None, tokens: Mapping[str, object]
) -> dict[str, Any]:
    """The key/values that llama.cpp scores pairs by; none of a model that does not.

    Args:
        plan: The source, a Hugging Face folder.
        architecture: The name before keys of the network.
        tokenizer: That of the model.
        tokens: The key/values of the tokenizer, of which one is written here.
    """
    if not scores_by_tokens(plan):
        return {}
    template = pair_template(plan, tokenizer)
    if tokenizer is None or template is None:
        what = "there is no chat template by which pairs are put to the model"
        raise ConfigurationError(what, file=plan.checkpoint.path)
    folder = plan.checkpoint.folder
    usual = plan.config["default_prompt"]
    instruction = sentence_transformers.prompts(folder).get(usual) if usual else None
    return {
        f"{architecture}.{LABELS}": [_text(tokenizer, i) for i in plan.config["score_tokens"]],
        TEMPLATE: places_of(template, tokenizer, instruction),
        TEMPLATES: tokens.get(TEMPLATES, [GGUF_NAME]),
    }


def _text(tokenizer: Tokenizer, number: int) -> str:
    """A token as the vocabulary has it."""
    known = tokenizer.vocabulary.tokens if tokenizer.vocabulary else ()
    added = {token.id: token.content for token in tokenizer.added}
    text = added.get(number) or (known[number] if number < len(known) else None)
    if text is None:
        raise ConfigurationError(f"the tokenizer has no token {number}, which scores are made by")
    return text


def hf_files(tokenizer: Tokenizer | None) -> tuple[Tokenizer | None, dict[str, bytes]]:
    """The tokenizer without chat templates, and the files that have these, each by itself.

    llama.cpp's template for pairs is there as sentence-transformers has it.
    """
    settings = f"{json.dumps(SETTINGS, indent=2)}\n".encode()
    files = {sentence_transformers.SETTINGS: settings}
    if tokenizer is None:
        return None, files
    templates = dict(tokenizer.chat_templates)
    if (text := templates.pop(GGUF_NAME, None)) is not None:
        templates[HF_NAME] = jinja_of(text)
    paths = {name: f"{ADDITIONAL}/{name}.jinja" for name in templates} | {USUAL: CONVERSATIONS}
    files |= {paths[name]: text.encode() for name, text in templates.items()}
    return replace(tokenizer, chat_templates={}), files
