"""docs/recipes.md has every word of the language, and no word that was dropped."""

from __future__ import annotations

import re
from pathlib import Path

from maxtool.recipe import brackets, parse, parse_fields, parse_rules
from maxtool.recipe.codecs import CODECS
from maxtool.recipe.expressions import FORMULAS
from maxtool.recipe.fieldtypes import TYPES
from maxtool.recipe.old_words import REPLACEMENTS
from maxtool.recipe.operations import OPERATIONS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "recipes.md").read_text()
USABLE = {name: row for name, row in OPERATIONS.items() if row.recipe}
WORDS = {
    *parse.SECTIONS,
    *parse.ASIDE_KEYS,
    *parse.COMPUTED_KEYS,
    *parse_fields.FIELD_KEYS,
    *parse_fields.SPELLING_KEYS,
    *parse_fields.SOURCE_KINDS,
    *parse_rules.RULE_KEYS,
    *brackets.NOT_RULES,
    *(param for row in USABLE.values() for param in row.params),
    *(parse.MATCH_REQUIRES, "extends", "field"),
    *TYPES,
    *FORMULAS,
    *CODECS,
    *USABLE,
}


def test_every_word_is_explained() -> None:
    code = " ".join(re.findall(r"`[^`]+`|```.*?```", PAGE, re.DOTALL))
    assert not {word for word in WORDS if not re.search(rf"\b{word}\b", code)}


def test_words_that_were_dropped_are_not_words() -> None:
    assert REPLACEMENTS.keys() & (WORDS - CODECS.keys()) == {"from"}  # of rules, not of keys
