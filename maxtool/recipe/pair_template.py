"""Templates by which a query and a document become the text that a model scores.

sentence-transformers has a chat template with messages of the roles ``query`` and ``document`` and,
before them, of ``system`` with the instruction; llama.cpp a text with ``{query}`` and
``{document}``, whose instruction is written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from maxtool.errors import ConfigurationError, MachineLacks
from maxtool.recipe import sentence_transformers
from maxtool.recipe.plan import Plan
from maxtool.recipe.sentence_lengths import CALLS, NOT_OF_TEMPLATES, TEMPLATE, table_of
from maxtool.recipe.sentence_modules import MODULES, MOST
from maxtool.runtime.loader.chat import ChatTemplate
from maxtool.runtime.loader.errors import RunError
from maxtool.tokenizer import Tokenizer
from maxtool.weights.jsonfile import read_object

HF_NAME, GGUF_NAME, USUAL = "reranker", "rerank", "default"
"""Names of the templates: where files of either kind have them, and that of conversations."""
QUERY, DOCUMENT = "{query}", "{document}"
# An instruction that a text for llama.cpp has written out, and that may be another.
INSTRUCTED = re.compile(r"(?<=<Instruct>: )[^\n{}]+(?=\n<Query>: \{query\})")
# What begins something in Jinja, also with the place that follows a part.
OPENING = re.compile(r"\{(?=[{%#]|\Z)")


@dataclass(frozen=True)
class PairTemplate:
    """A chat template for a query and a document.

    Attributes:
        text: Jinja, of the dialect that transformers has.
        variables: What it is given besides the messages.
        reply: Whether the beginning of a reply follows.
    """

    text: str
    variables: Mapping[str, object] = field(default_factory=dict)
    reply: bool = False

    @property
    def manifest(self) -> dict[str, object]:
        """The template as a manifest has it."""
        return {"text": self.text, "variables": dict(self.variables), "reply": self.reply}


def pair_template(planned: Plan, tokenizer: Tokenizer | None) -> PairTemplate | None:
    """The template of a model that scores texts; None where pairs are put to it as they are."""
    if planned.config.get("scored_by") is None or tokenizer is None:
        return None
    if planned.dialect == "gguf":
        text = tokenizer.chat_templates.get(GGUF_NAME)
        return None if text is None else PairTemplate(jinja_of(text))
    if not (planned.checkpoint.folder / MODULES).is_file():
        return None
    return _chosen(planned, tokenizer.chat_templates)


def _chosen(planned: Plan, templates: Mapping[str, str]) -> PairTemplate | None:
    """The template that the settings name, else one for rerankers, else that of conversations."""
    file = planned.checkpoint.folder / sentence_transformers.SETTINGS
    settings = read_object(file, most=MOST) if file.is_file() else {}
    forms = table_of(settings, "modality_config")
    message = forms.get("message")
    if forms and not isinstance(message, dict):
        return None
    if isinstance(message, dict) and message.get("format") == "structured":
        what = "messages whose contents are lists (format 'structured') are not supported"
        raise ConfigurationError(what, file=file)
    table = table_of(table_of(settings, CALLS), TEMPLATE)
    options = {key: value for key, value in table.items() if key not in NOT_OF_TEMPLATES}
    named = options.pop(TEMPLATE, None)
    reply = options.pop("add_generation_prompt", False) is True
    text = templates.get(HF_NAME, templates.get(USUAL)) if named is None else templates.get(named)
    if text is None and isinstance(named, str) and "{" in named:
        text = named
    if text is None and named is not None:
        known = ", ".join(templates) or "there are none"
        what = f"there is no chat template {named!r:.80}, which pairs are put to the model by"
        raise ConfigurationError(what, file=file, hint=f"chat templates: {known}")
    return None if text is None else PairTemplate(text, options, reply)


def jinja_of(text: str) -> str:
    """The Jinja of a text with ``{query}`` and ``{document}``, whose instruction may be another."""
    found = INSTRUCTED.search(text)
    start, end = (0, 0) if found is None else found.span()
    usual = json.dumps(text[start:end], ensure_ascii=False)
    instruction = _content("system", f" | default({usual})") if found else ""
    return f"{_literal(text[:start])}{instruction}{_literal(text[end:])}\n"


def _literal(text: str) -> str:
    """A part of the text without an instruction, its places filled from the messages."""
    parts = re.split(r"\{(query|document)\}", text)
    plain = [OPENING.sub('{{ "{" }}', part) for part in parts[::2]]
    filled = [*map(_content, parts[1::2]), ""]
    return "".join(f"{one}{other}" for one, other in zip(plain, filled, strict=True))


def _content(role: str, otherwise: str = "") -> str:
    chosen = f'messages | selectattr("role", "equalto", "{role}") | map(attribute="content")'
    return f"{{{{ {chosen} | first{otherwise} }}}}"


def places_of(template: PairTemplate, tokenizer: Tokenizer, instruction: str | None) -> str:
    """The text for llama.cpp that a template makes, with ``{query}`` and ``{document}``.

    Raises:
        ConfigurationError: If the template fails.
    """
    said = [] if not instruction else [{"role": "system", "content": instruction}]
    said += [{"role": "query", "content": QUERY}, {"role": "document", "content": DOCUMENT}]
    given = {**tokenizer.special_tokens, **template.variables}
    try:
        return ChatTemplate(template.text, None, given).render(said, reply=template.reply)
    except RunError as error:
        kind = MachineLacks if error.exit_code == MachineLacks.exit_code else ConfigurationError
        what = f"the template for a query and a document cannot be written: {error.what}"
        raise kind(what, hint=error.hint) from None
