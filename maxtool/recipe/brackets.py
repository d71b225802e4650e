"""Rules that differ in a word or two, written once: ``attn.[q,k,v].[weight,bias]``.

Each choice in brackets stands for as many rules as it has words. The same choice in the rule's
sources stands for the same word, and as its ``part``, or behind the dot of a field of several
numbers, for the word's place, counted from 0.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

CHOICE = re.compile(r"\[([^\[\]]*)\]")
MAX_RULES = 64  # of one line
# Sections of [weights.*] that are not rules.
NOT_RULES = frozenset({"drop", "past_layers", "refuse", "rename"})


def written_out(data: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's tables with every choice in ``[weights.*]`` written out; else ValueError."""
    weights = data.get("weights")
    if not isinstance(weights, dict):
        return dict(data)
    return {**data, "weights": {dialect: _rules(table) for dialect, table in weights.items()}}


def _rules(table: Any) -> Any:  # noqa: ANN401 - whatever TOML holds
    if not isinstance(table, dict):
        return table
    rules: dict[str, Any] = {}
    for target, rule in table.items():
        for name, made in _each(target, rule) if target not in NOT_RULES else [(target, rule)]:
            if name in rules:
                raise ValueError(f"{name!r} is there twice: {target!r} stands for it too")
            rules[name] = made
    return rules


def _each(target: str, rule: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    choices = list(dict.fromkeys(CHOICE.findall(target)))
    words = [choice.split(",") for choice in choices]
    made = list(itertools.islice(itertools.product(*map(enumerate, words)), MAX_RULES + 1))
    if len(made) > MAX_RULES:
        raise ValueError(f"{target!r} stands for more than {MAX_RULES} rules")
    for picked in made:
        chosen = dict(zip(choices, picked, strict=True))
        yield _put(target, chosen), _chosen(rule, chosen)


def _chosen(rule: Any, chosen: Mapping[str, tuple[int, str]]) -> Any:  # noqa: ANN401
    """A rule with each choice as it was made; its operations have none."""
    if isinstance(rule, str):
        return _put(rule, chosen)
    if isinstance(rule, list):
        return [_chosen(way, chosen) for way in rule]
    if not isinstance(rule, dict):
        return rule
    places = {f"[{choice}]": index for choice, (index, _) in chosen.items()}
    made = dict(rule)
    for key in ("from", "tie", "ops"):
        if key in rule:
            made[key] = _chosen(rule[key], chosen)
    if isinstance(rule.get("factors"), list):
        made["factors"] = [_by_place(name, places) for name in rule["factors"]]
    if isinstance(rule.get("part"), str):
        made["part"] = places.get(rule["part"], rule["part"])
    return made


def _by_place(name: Any, places: Mapping[str, int]) -> Any:  # noqa: ANN401 - whatever TOML holds
    """A field's name, with the word's place where a choice stands for it."""
    field, dot, index = name.partition(".") if isinstance(name, str) else (name, "", "")
    return f"{field}.{places[index]}" if dot and index in places else name


def _put(text: str, chosen: Mapping[str, tuple[int, str]]) -> str:
    return CHOICE.sub(lambda found: chosen.get(found[1], (0, found[0]))[1], text)
