"""Language models inside checkpoints of several parts that no recipe has the whole of.

Such a config.json has a table that describes the language model as a whole configuration would,
``model_type`` included, and its tensors lie below a prefix of their own. A recipe that recognises
the table reads that model alone: nothing else of the checkpoint is looked at, and all that is left
out is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from maxtool.errors import UnknownArchitecture
from maxtool.recipe.ignored_keys import NEVER_IGNORED, covered
from maxtool.recipe.keys import Keys, are_flags
from maxtool.recipe.name_patterns import Pattern, Rename, renamed
from maxtool.recipe.schema import KINDS, Match, Recipe, TextPart
from maxtool.recipe.sentence_transformers import TABLE as SENTENCES
from maxtool.recipe.text_defaults import completed
from maxtool.recipe.unsupported_kinds import lacking
from maxtool.weights import Checkpoint
from maxtool.weights.text_tables import TEXT_TABLES

KIND = KINDS["hf"]
# What lies before the names of a whole language model, and of one without its head.
WHOLE = ("language_model", "model.language_model", "language", "llm")
BODY = ("model.language_model", "model.text_model", "model.llm", "language_model", "text_model")
DECODER = "decoder"
EMBEDDING, HEAD, TIED = "embed.weight", "lm_head.weight", "tie_word_embeddings"
# Models of several parts whose language model is not what it is by itself.
WHOLE_PROMPT = "it attends to the whole prompt, and not only to what comes before a token"
OTHERWISE = {
    "jev": "it chooses among options by a head of its own, and writes no text",
    "paligemma": WHOLE_PROMPT,
    "shieldgemma2": "it tells classes of images, and writes no text",
    "spatialvla": WHOLE_PROMPT,
}
# What shows models made of PaliGemma, whatever their kind is: language models, a key beside them.
OF_PALIGEMMA = (("gemma", "gemma2"), "projection_dim")
# Keys beside the table that say the same of models whose kind is new, with what they say then.
BOTH_WAYS: Mapping[str, bool] = {"is_causal": False, "use_bidirectional_attention": True}


def section_of(keys: Keys) -> str | None:
    """The table of a config.json that describes a language model and says of what kind it is."""
    return next((name for name in TEXT_TABLES if keys.get(f"{name}.{KIND}") is not None), None)


def keys_inside(keys: Keys, section: str) -> Keys:
    """The keys of a table, with those beside it that say how tensors are stored."""
    inside = {
        key.removeprefix(f"{section}."): value
        for key, value in keys.values.items()
        if key.startswith(f"{section}.")
    }
    outer = {
        key: value
        for key, value in keys.values.items()
        if covered(key, NEVER_IGNORED["hf"] | {SENTENCES})
    }
    kinds = (str(keys.get(KIND)), str(inside.get(KIND)))
    return Keys("hf", {**completed(inside, *kinds), **outer})


def has_values(match: Match, keys: Keys) -> bool:
    """Return whether keys have the values that recognise a model."""
    said = match.values.items()
    return bool(said) and all(
        keys.get(key, switch=are_flags(values)) in values for key, values in said
    )


def within(recipe: Recipe, checkpoint: Checkpoint) -> Recipe:
    """A recipe as it reads a checkpoint: of one that it does not recognise, a part that it does.

    Raises:
        UnknownArchitecture: If that part is not read by itself, or its tensors are not found.
    """
    if recipe.text_part or checkpoint.format == "gguf" or not is_language_model(recipe):
        return recipe
    keys, match = Keys.of(checkpoint), recipe.match["hf"]
    section = section_of(keys)
    if section is None or has_values(match, keys):
        return recipe
    if not has_values(match, keys_inside(keys, section)):
        return recipe
    part = alone(recipe, keys, section, checkpoint.tensors)
    check_alone(checkpoint, keys, section, [part])
    return part


def is_language_model(recipe: Recipe) -> bool:
    """Return whether a recipe is one of a language model, and of nothing besides."""
    return recipe.architecture == DECODER and not recipe.section


def alone(recipe: Recipe, keys: Keys, section: str, tensors: Iterable[str]) -> Recipe:
    """A recipe of a language model as it reads that one among other parts of a checkpoint.

    Args:
        recipe: That of the language model.
        keys: All of config.json.
        section: The table that describes the language model.
        tensors: The names that the checkpoint has. Where none are below a prefix that is known, no
            other part is told from the language model.
    """
    names, rules = tuple(tensors), recipe.rules["hf"]
    renames = tuple(_prefixes(recipe, names))
    own = frozenset(_own(recipe, renames, names) if renames else names)
    others = [name for name in names if name not in own]
    rules = replace(rules, rename=(*renames, *rules.rename))
    spelled = renamed(rules.rename, dict.fromkeys(own))
    inside = keys_inside(keys, section)
    inside = _tied(inside, keys.get(TIED), has_head=_source(recipe, HEAD) in spelled)
    note = _note(keys, section, others)
    part = TextPart(inside.values, frozenset(others), note, is_found=bool(renames))
    return replace(recipe, section=section, rules={**recipe.rules, "hf": rules}, text_part=part)


def _prefixes(recipe: Recipe, names: tuple[str, ...]) -> Iterator[Rename]:
    """The prefixes below which the tensors of a language model lie, each with its replacement."""
    embedding = _source(recipe, EMBEDDING)
    root, _, rest = embedding.partition(".")
    ways = [(f"{prefix}.*", "*") for prefix in WHOLE]
    if "." in rest:
        ways += [(f"{prefix}.*", f"{root}.*") for prefix in BODY]
    for old, new in ways:
        rename = Rename(Pattern(old), Pattern(new))
        below = (name for name in names if rename.apply(name) != name)
        if any(rename.apply(name) == embedding for name in below):
            yield rename


def _own(recipe: Recipe, renames: tuple[Rename, ...], names: tuple[str, ...]) -> Iterator[str]:
    """The tensors of the language model: all below its prefixes, and a head beside them."""
    head = _source(recipe, HEAD).partition(".")[0]
    for name in names:
        if any(rename.apply(name) != name for rename in renames) or name.partition(".")[0] == head:
            yield name


def _source(recipe: Recipe, parameter: str) -> str:
    """The tensor that makes a parameter; empty where the recipe has none."""
    rules = (rule for rule in recipe.rules["hf"].rules if rule.target.text == parameter)
    return next((source.text for rule in rules for source in rule.sources), "")


def _tied(inside: Keys, outer: object, *, has_head: bool) -> Keys:
    """The keys with what decides on the head where both tables say it, or the outer one alone.

    Transformers 5 looks at the outer one, where there is one, and takes no head that a file has for
    another; older releases look at the inner one. In a file without a head, a tie of either table
    is what was meant.
    """
    own = inside.get(TIED)
    if has_head and outer is False:
        return Keys("hf", {**inside.values, TIED: False})
    if not has_head and own is not True and outer is True:
        return Keys("hf", {**inside.values, TIED: True})
    return inside


def _note(keys: Keys, section: str, others: list[str]) -> str:
    kind = keys.get(f"{section}.{KIND}")
    read = f"of this {keys.get(KIND)} only the language model is read, the {kind} of {section}"
    counts = Counter(map(_part, others))
    parts = [f"{name} ({count} tensors)" for name, count in sorted(counts.items())]
    tables = {key.partition(".")[0] for key in keys.values if "." in key}
    tables -= {section, SENTENCES} | NEVER_IGNORED["hf"]
    left = [*parts, *sorted(name for name in tables if name.endswith("_config"))]
    return f"{read}; left out: {', '.join(left)}" if left else read


def _part(name: str) -> str:
    """The part of the model that a tensor belongs to, by the first of its names that tells."""
    first, *rest = name.split(".")
    return f"{first}.{rest[0]}" if first == "model" and len(rest) > 1 else first


def check_alone(checkpoint: Checkpoint, keys: Keys, section: str, read: Sequence[Recipe]) -> None:
    """Refuse the language model of a checkpoint that is not read by itself.

    Raises:
        UnknownArchitecture: If it is such a one, or none of the recipes has found its tensors.
    """
    if read and (refused := _refusal(keys, section, read, has_tensors=bool(checkpoint.tensors))):
        raise UnknownArchitecture(
            f"no recipe has the whole of a {keys.get(KIND)!r}, and {refused}",
            file=checkpoint.config_file or checkpoint.path,
            hint="that part alone, in files of its own, is read by "
            + ", ".join(recipe.name for recipe in read),
        )


def _refusal(keys: Keys, section: str, read: Iterable[Recipe], *, has_tensors: bool) -> str | None:
    """The reason why the language model of a checkpoint is not read by itself, if there is one."""
    kind = str(keys.get(KIND))
    if why := OTHERWISE.get(kind) or lacking(kind) or _seen_both_ways(keys, section):
        return f"its language model is not read by itself: {why}"
    if not has_tensors or any(each.text_part and each.text_part.is_found for each in read):
        return None
    prefixes = ", ".join(dict.fromkeys((*WHOLE, *BODY)))
    return f"the tensors of its language model are below none of {prefixes}"


def _seen_both_ways(keys: Keys, section: str) -> str | None:
    """Words on attention that sees what follows, if a key beside the table says so."""
    kinds, projected = OF_PALIGEMMA
    if keys.get(f"{section}.{KIND}") in kinds and keys.get(projected) is not None:
        return f"{projected} shows a model made of PaliGemma, and {WHOLE_PROMPT}"
    for key, value in BOTH_WAYS.items():
        if keys.get(key) is value and keys.get(f"{section}.{key}") is None:
            return f"{key} = {value} beside {section} says that it attends to what follows a token"
    return None


def values_of(recipe: Recipe, keys: Keys) -> Keys:
    """The keys that a recipe reads of all of config.json."""
    part = recipe.text_part
    return keys.within(recipe.section) if part is None else Keys("hf", part.keys)


def tensors_of(recipe: Recipe, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that a recipe looks at: all, but for those of parts that are left out."""
    left = recipe.text_part.others if recipe.text_part else frozenset()
    return {name: tensor for name, tensor in tensors.items() if name not in left}
