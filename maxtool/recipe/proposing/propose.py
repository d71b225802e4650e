"""Proposing a recipe for a checkpoint that none recognises: the nearest one, and what differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from maxtool.architectures import DecoderConfig
from maxtool.errors import ConfigurationError, UnknownArchitecture
from maxtool.recipe.brackets import NOT_RULES
from maxtool.recipe.keys import Keys, short
from maxtool.recipe.load import check_model, dialect, files_of, load_recipe, recipe_of, whole_tables
from maxtool.recipe.match_checkpoint import plan
from maxtool.recipe.name_patterns import Pattern, renamed
from maxtool.recipe.plan import shown
from maxtool.recipe.problems import Table
from maxtool.recipe.proposing.alike_keys import (
    by_value,
    by_words,
    is_one_way,
    other_spellings,
    spellings,
    with_key,
)
from maxtool.recipe.proposing.alike_names import Guess, aliases, folded, guesses
from maxtool.recipe.proposing.proposal import Proposal
from maxtool.recipe.read_config import Misread, misread
from maxtool.recipe.recipe_files import RECIPE_SUFFIX, recipe_names
from maxtool.recipe.rule import Rules
from maxtool.recipe.schema import (
    DIALECTS,
    KINDS,
    SCHEMA_VERSION,
    Dialect,
    Field,
    Recipe,
)
from maxtool.recipe.text_part import OTHERWISE, values_of
from maxtool.recipe.unsupported_kinds import lacking
from maxtool.weights import Checkpoint, TensorInfo

# Recipes that are looked at closely, of all that there are: fewer where there are more tensors than
# so many in all; and names at most, numbers folded.
CLOSELY, AT_LEAST, TENSORS, MAX_NAMES = 64, 4, 200_000, 200
# What a guessed name counts beside one that is known, and a key that is not understood.
GUESSED, UNREAD = 0.5, 0.5
# Fields that every model says: a recipe's own values are not taken for them.
SIZES = ("n_layers", "hidden_size", "n_heads")


@dataclass(frozen=True)
class _Model:
    """A checkpoint that no recipe recognises.

    Attributes:
        checkpoint: It.
        own: Its dialect.
        keys: Its configuration.
        kind: What it calls its architecture.
        recipes: All that know the dialect, and whose table is there.
        spelled: The keys of each field in all of them.
        identity: Tables by which a recipe recognises it, and says what it is.
    """

    checkpoint: Checkpoint
    own: Dialect
    keys: Keys
    kind: str
    recipes: Sequence[Recipe]
    spelled: Mapping[str, Set[str]]
    identity: Mapping[str, Any]


@dataclass(frozen=True)
class _Candidate:
    """A recipe that may be near.

    Attributes:
        recipe: It.
        guessed: What its tensors seem to be called.
        unread: What it does not understand of the configuration.
    """

    recipe: Recipe
    guessed: Sequence[Guess]
    unread: Misread


def propose(checkpoint: Checkpoint) -> Proposal:
    """Propose a recipe for a checkpoint, by its headers.

    Raises:
        UnknownArchitecture: If the checkpoint is no model, does not say of what kind it is, is of
            a kind that no recipe can describe, or has so many different tensors that it is of none.
        ConfigurationError: If its configuration is missing.
    """
    model = _model(checkpoint)
    closely = min(CLOSELY, max(AT_LEAST, TENSORS // max(1, len(checkpoint.tensors))))
    made = sorted(
        (_proposal(model, candidate) for candidate in _nearest(model)[:closely]),
        key=lambda one: one.rank,
    )
    made[:AT_LEAST] = [_switched(model, one) for one in made[:AT_LEAST]]
    best, *others = sorted(made, key=lambda one: one.rank)
    alike = [one for one in others if one.distance == best.distance]
    told = {one.base: _otherwise(best, one) for one in alike}
    return replace(best, alike={base: values for base, values in told.items() if values})


def _model(checkpoint: Checkpoint) -> _Model:
    """Facts on a checkpoint that hold whichever recipe is looked at."""
    check_model(checkpoint)
    own, keys = dialect(checkpoint), Keys.of(checkpoint)
    kind = keys.get(KINDS[own])
    if not isinstance(kind, str) or not kind.strip():
        hint = f"a recipe is chosen by that key: add {KINDS[own]}"
        what = "the checkpoint does not say what kind of model it is"
        file = checkpoint.config_file or checkpoint.path
        raise UnknownArchitecture(what, file=file, hint=hint)
    if why := lacking(kind) or OTHERWISE.get(kind):
        what = f"no recipe can be proposed for a {kind!r}: {why}"
        hint = "that takes code, which a recipe cannot say"
        raise UnknownArchitecture(what, file=checkpoint.config_file or checkpoint.path, hint=hint)
    loaded = map(load_recipe, recipe_names())
    recipes = [recipe for recipe in loaded if recipe.knows(own) and _has_section(keys, recipe)]
    spelled = spellings(recipes, own)
    return _Model(checkpoint, own, keys, kind, recipes, spelled, _identity(own, keys, kind))


def _has_section(keys: Keys, recipe: Recipe) -> bool:
    """Return whether the table that a recipe reads is there, if it reads one alone."""
    return not recipe.section or any(key.startswith(f"{recipe.section}.") for key in keys.values)


def _nearest(model: _Model) -> list[_Candidate]:
    """All recipes, the nearest first; of those as near, that with most variants."""
    some, other = _some_of_each(model.checkpoint), aliases(model.recipes, model.own)
    variants = Counter(file for recipe in model.recipes for file in files_of(recipe))
    found = []
    for recipe in model.recipes:
        names = _names(recipe, model.own, some)
        guessed = guesses(recipe, model.own, names, other)
        unread = misread(recipe, model.checkpoint)
        nearness = _nearness(recipe, model.own, names, guessed)
        nearness -= UNREAD * (len(unread.unknown) + len(unread.problems))
        found.append((-nearness, -variants[recipe.file], _Candidate(recipe, guessed, unread)))
    return [candidate for *_, candidate in sorted(found, key=lambda one: one[:2])]


def _some_of_each(checkpoint: Checkpoint) -> list[str]:
    """A name of each kind that tensors have, numbers apart."""
    some: dict[str, str] = {}
    for name in checkpoint.tensors:
        some.setdefault(folded(name), name)
        if len(some) > MAX_NAMES:
            what = f"the tensors have more than {MAX_NAMES} names, layers not counted"
            hint = "a recipe is for models whose layers are alike"
            raise UnknownArchitecture(what, file=checkpoint.path, hint=hint)
    return [*some.values()]


def _names(recipe: Recipe, own: Dialect, some: Sequence[str]) -> list[str]:
    """The names of tensors as a recipe spells them, folded, each once; without those it drops."""
    rules = recipe.rules[own]
    aside = (*rules.drop, *recipe.aside[own].tensors)
    spelled = renamed(rules.rename, dict.fromkeys(some))
    left = (name for name in spelled if all(pattern.match(name) is None for pattern in aside))
    return [*dict.fromkeys(folded(name) for name in left)]


def _nearness(
    recipe: Recipe, own: Dialect, names: Sequence[str], guessed: Sequence[Guess]
) -> float:
    """Count the names that a recipe knows, or seems to."""
    known = {folded(source.text) for rule in recipe.rules[own].rules for source in rule.sources}
    return len(known.intersection(names)) + GUESSED * len(guessed)


def _otherwise(best: Proposal, other: Proposal) -> dict[str, Any]:
    """The fields that another proposal reads otherwise, with its values.

    It is what headers do not tell of the model.
    """
    usual = {item.name: item.default for item in fields(DecoderConfig)}
    ours, theirs = usual | dict(best.values), usual | dict(other.values)
    return {
        name: theirs.get(name)
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    }


def _proposal(model: _Model, candidate: _Candidate) -> Proposal:
    """The proposal that extends one recipe."""
    base, own = candidate.recipe, model.own
    whole = whole_tables(base.name)
    found = {one.known: one.found for one in candidate.guessed}
    rules = {
        target: _with_names(rule, found)
        for target, rule in whole["weights"][own].items()
        if target not in NOT_RULES and _with_names(rule, found) != rule
    }
    keys = _keys(model, candidate, found)
    known = whole["config"]
    config = {
        name: with_key(known[name], own, key)
        for name, key in keys.items()
        if isinstance(known[name], dict) and is_one_way(known[name].get(own))
    }
    tables = {
        **model.identity,
        "extends": base.name,
        "config": config,
        "weights": {**{one: False for one in DIALECTS if one != own}, own: rules},
    }
    own_keys = {name: keys[name] for name in config}
    return _looked_at(model, Proposal(base.name, model.kind, tables, candidate.guessed, own_keys))


def _keys(model: _Model, candidate: _Candidate, found: Mapping[str, str]) -> dict[str, str]:
    """The fields of a recipe that are kept under other keys, as far as that can be told."""
    base, own, unknown = candidate.recipe, model.own, candidate.unread.unknown
    keys = other_spellings(base, model.spelled, own, unknown)
    absent = [name for name in base.fields if name not in keys and _is_absent(model, base, name)]
    left = [key for key in unknown if key not in keys.values()]
    keys |= by_words(base, own, absent, left)
    sizes = _implied(model, base, found)
    wanted = {name: sizes[name] for name in absent if name in sizes and name not in keys}
    left = [key for key in left if key not in keys.values()]
    return keys | by_value(wanted, values_of(base, model.keys).values, left)


def _identity(own: Dialect, keys: Keys, kind: str) -> dict[str, Any]:
    """Tables by which a recipe recognises a model, and says what it is."""
    name = re.sub(r"[^a-z0-9_]+", "_", kind.lower()).strip("_")[:60] or "model"
    name = f"{name}_proposed" if name in recipe_names() else name
    named = {KINDS[own]: kind}
    listed = keys.get("architectures") if own == "hf" else None
    is_listed = isinstance(listed, list) and all(isinstance(one, str) for one in listed)
    return {
        "schema": SCHEMA_VERSION,
        "name": name,
        "match": {own: {key: [kind] for key, kind in named.items()}},
        "constants": {own: {**({"architectures": listed} if is_listed else {}), **named}},
    }


def _with_names(rule: Any, found: Mapping[str, str]) -> Any:  # noqa: ANN401 - TOML
    """A rule with other names for the tensors that it is made from."""
    if isinstance(rule, str):
        return found.get(rule, rule)
    if isinstance(rule, list):
        return [_with_names(way, found) for way in rule]
    if isinstance(rule, dict) and "from" in rule:
        return {**rule, "from": _with_names(rule["from"], found)}
    return rule


def _implied(model: _Model, base: Recipe, found: Mapping[str, str]) -> dict[str, int]:
    """Sizes that shapes of tensors tell of, by the fields that they are."""
    rules = base.rules[model.own]
    tensors = renamed(rules.rename, model.checkpoint.tensors)
    names = {
        rule.target.text: found.get(rule.sources[0].text, rule.sources[0].text)
        for rule in rules.rules
        if len(rule.sources) == 1 and not rule.steps
    }
    sizes: dict[str, int] = {}
    if (shape := _shape(tensors, names.get("embed.weight"))) is not None:
        sizes |= {"vocab_size": shape[0], "hidden_size": shape[1]}
    if (shape := _shape(tensors, names.get("layers.{layer}.mlp.up.weight"))) is not None:
        sizes["intermediate_size"] = shape[0]
    if (shape := _shape(tensors, names.get("layers.{layer}.mlp.router.weight"))) is not None:
        sizes["n_experts"] = shape[0]
    if (shape := _shape(tensors, _each_expert(rules, found))) is not None:
        sizes["expert_size"] = shape[0]
    patterns = [Pattern(name) for name in names.values() if "{layer}" in name]
    matches = (next(filter(None, (p.match(name) for p in patterns)), None) for name in tensors)
    layers = [match["layer"] for match in matches if match is not None]
    return sizes | ({"n_layers": max(layers) + 1} if layers else {})


def _each_expert(rules: Rules, found: Mapping[str, str]) -> str | None:
    """The name of the matrices up of single experts, if they are kept one by one."""
    stacks = (rule for rule in rules.rules if rule.over and len(rule.sources) == 1)
    up = (rule for rule in stacks if rule.target.text == "layers.{layer}.mlp.up.weight")
    return next((found.get(name, name) for name in (rule.sources[0].text for rule in up)), None)


def _shape(tensors: Mapping[str, TensorInfo], name: str | None) -> tuple[int, ...] | None:
    """The shape of a matrix of a name, the first where it is in several layers."""
    if name is None:
        return None
    pattern = Pattern(name)
    shapes = (one.shape for key, one in tensors.items() if pattern.match(key) is not None)
    shape = next(shapes, ())
    return shape if len(shape) == 2 else None


def _is_absent(model: _Model, base: Recipe, name: str) -> bool:
    """Return whether a field is there, and none of its keys is in the checkpoint."""
    item = base.fields.get(name)
    keys = model.keys.within(base.section)
    ways = () if item is None else item.spellings.get(model.own, ())
    return bool(ways) and not any(keys.get(key) is not None for way in ways for key in way.keys)


def _switched(model: _Model, made: Proposal) -> Proposal:
    """A proposal with flags that no key says otherwise where that leaves less open.

    No further tensor may be unused with them.
    """
    base = load_recipe(made.base)
    for name, item in base.fields.items():
        if made.open and item.type == "bool" and _is_absent(model, base, name):
            config = {**made.tables["config"], name: not made.values.get(name)}
            tried = _looked_at(model, replace(made, tables={**made.tables, "config": config}))
            if tried.distance < made.distance and tried.idle <= made.idle:
                made = tried
    return made


def _looked_at(model: _Model, made: Proposal) -> Proposal:
    """A proposal with what is open: the checkpoint matched with its recipe.

    Where the configuration does not fit, tensors are looked at all the same, as if it did.
    """
    said: list[str] = []
    try:
        recipe = _recipe(made, made.tables)
        found = misread(recipe, model.checkpoint)
        said += (f"{key} = {short(model.keys.get(key))} is not explained" for key in found.unknown)
        said += found.problems
        unsaid = [name for name in SIZES if name not in found.failed]
        said += (f"no key says {name}" for name in unsaid if _is_absent(model, recipe, name))
        assumed = {name: _assumed(recipe.fields[name]) for name in found.failed}
        known = {name: value for name, value in assumed.items() if value is not None}
        config = {**made.tables["config"], **known}
        recipe = _recipe(made, {**made.tables, "config": config})
        planned = plan(recipe, model.checkpoint, ignore=frozenset(model.keys.values))
    except ConfigurationError as error:
        further = [line for line in error.problems or [error.what] if line not in said]
        return replace(made, open=[*said, *further], parameters=0, values={})
    said += shown(planned.misfits())
    return replace(made, open=said, parameters=len(planned.parameters), values=planned.config)


def _recipe(made: Proposal, tables: Table) -> Recipe:
    return recipe_of(tables, Path(f"{made.name}{RECIPE_SUFFIX}"))


def _assumed(item: Field) -> bool | int | float | str | None:
    """A value that a field has in other models; None if there is none such."""
    usual = next((one for one in (item.default, *item.allowed) if one and one.op == "value"), None)
    value = usual.operands[0] if usual is not None else None
    return value if isinstance(value, bool | int | float | str) else None
