"""Checks of a recipe as a whole: all it names exists, and every rule has an inverse."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator

from maxtool.recipe import check_types
from maxtool.recipe.codecs import CODECS
from maxtool.recipe.computed import TENSOR_CODECS, may_say
from maxtool.recipe.fieldtypes import NEEDS, TYPES
from maxtool.recipe.operations import OPERATIONS
from maxtool.recipe.rule import Rule, Size
from maxtool.recipe.schema import DIALECTS, Computed, Field, Recipe
from maxtool.recipe.step import Step


def problems(recipe: Recipe) -> list[str]:
    """List all problems of ``recipe``; none when it can be used."""
    return [problem for check in CHECKS for problem in check(recipe)]


def _matches(recipe: Recipe) -> Iterator[str]:
    if not any(match.values for match in recipe.match.values()):
        yield "match: nothing recognises a model; give [match.hf] or [match.gguf]"


def _fields(recipe: Recipe) -> Iterator[str]:
    names = list(recipe.fields)
    for field in recipe.fields.values():
        where = f"config.{field.name}"
        for dialect in filter(recipe.knows, DIALECTS):
            if field.default is None and not field.spellings.get(dialect):
                yield f"{where}: has neither a {dialect} spelling nor a default"
        for other in sorted(_needed(field)):
            if other not in recipe.fields:
                yield f"{where}: needs the unknown field {other!r}"
            elif names.index(other) >= names.index(field.name):
                yield f"{where}: needs {other!r}, which comes later"
        yield from (f"{where}: {problem}" for problem in _literals(field))


def _needed(field: Field) -> set[str]:
    """The fields that must be known before this one is."""
    own = {other for way in field.ways for other in way.operands}
    own |= {other for way in field.ways if way.codec for other in CODECS[way.codec].needs}
    own |= {name for e in (field.default, *field.allowed) if e for name in e.fields()}
    layers = {"n_layers"} if field.type == "flags" else set()
    return own | layers


def _literals(field: Field) -> Iterator[str]:
    """Values that the field itself gives and cannot have."""
    given = [field.default, *(way.default for way in field.ways if not way.codec)]
    for expression in given:
        if expression is not None and expression.op == "value" and field.type in TYPES:
            value = expression.operands[0]
            if value is not None and TYPES[field.type](value) is None:
                yield f"{value!r} is not {NEEDS[field.type]}"


def _computed(recipe: Recipe) -> Iterator[str]:
    for dialect, tensors in recipe.computed.items():
        for tensor in tensors:
            named = {*tensor.when, *([tensor.field] if tensor.field else [])}
            for name in sorted(named - set(recipe.fields)):
                yield f"computed.{dialect}.{tensor.tensor!r}: {name!r} is not a field of [config]"
            yield from _too_late(recipe, tensor)


def _too_late(recipe: Recipe, tensor: Computed) -> Iterator[str]:
    """Fields that a tensor is read with, and that come after those it may say."""
    names = list(recipe.fields)
    said = [names.index(name) for name in may_say(tensor) if name in names]
    for name in TENSOR_CODECS[tensor.codec].needs if tensor.codec in TENSOR_CODECS else ():
        if name not in names[: min(said, default=0)]:
            yield f"computed: {tensor.tensor!r} needs the field {name!r} before those it says"


def _targets(recipe: Recipe) -> Iterator[str]:
    targets = {d: {rule.target.text for rule in recipe.rules[d].rules} for d in DIALECTS}
    for dialect, other in (("hf", "gguf"), ("gguf", "hf")):
        for target in sorted(targets[other] - targets[dialect]) if targets[dialect] else ():  # type: ignore[index]
            yield f"weights.{dialect}: no rule for {target!r}, which {other} has"
    if not any(targets.values()):
        yield "weights: there is no rule"


def _rules(recipe: Recipe) -> Iterator[str]:
    for dialect in DIALECTS:
        known = {rule.target.text for rule in recipe.rules[dialect].rules}
        for rule in recipe.rules[dialect].rules:
            where = f"weights.{dialect}.{rule.target.text!r}"
            tie = _tie(rule, recipe, known)
            for problem in (*_names(rule), *_sizes(rule, recipe), *tie, *_shape(rule)):
                yield f"{where}: {problem}"


def _past_layers(recipe: Recipe) -> Iterator[str]:
    for dialect in DIALECTS:
        for pattern in itertools.chain(*recipe.rules[dialect].past_layers.values()):
            where = f"weights.{dialect}.past_layers: {pattern.text!r}"
            if pattern.indices != {"layer"}:
                yield f"{where} needs the index {{layer}}, and no other"
            if "n_layers" not in recipe.fields:
                yield f"{where} needs the field n_layers"


def _names(rule: Rule) -> Iterator[str]:
    own = rule.target.indices | ({rule.over} if rule.over else set())
    for source in rule.sources:
        if source.wild or rule.target.wild:
            yield "'*' may only stand in drop, past_layers and refuse"
        for index in sorted(source.indices - own):
            yield f"{source.text!r} has the unknown index {{{index}}}"
        for index in sorted(own - source.indices):
            yield f"{source.text!r} lacks the index {{{index}}}, so the rule has no inverse"


def _sizes(rule: Rule, recipe: Recipe) -> Iterator[str]:
    for step in rule.steps:
        yield from _factors(step, recipe)
        yield from _numbers(step, recipe)
        for name in _fields_named(step):
            if name not in recipe.fields:
                yield f"{step.op}: {name!r} is not a field of [config]"
            elif recipe.fields[name].type != "int":
                yield f"{step.op}: field {name!r} is not an int"


def _factors(step: Step, recipe: Recipe) -> Iterator[str]:
    for name in step.params.get("factors", ()):
        field, _, index = name.partition(".")
        wanted = "floats" if index else "float"
        if field not in recipe.fields:
            yield f"{step.op}: {field!r} is not a field of [config]"
        elif recipe.fields[field].type != wanted:
            yield f"{step.op}: field {field!r} is not of type {wanted}"


def _numbers(step: Step, recipe: Recipe) -> Iterator[str]:
    kinds = OPERATIONS[step.op].params
    for name in (value for key, value in step.params.items() if kinds[key] == "numbers"):
        if name not in recipe.fields:
            yield f"{step.op}: {name!r} is not a field of [config]"
        elif recipe.fields[name].type != "counts":
            yield f"{step.op}: field {name!r} is not of type counts"


def _fields_named(step: Step) -> Iterator[str]:
    kinds = OPERATIONS[step.op].params
    for key, value in step.params.items():
        if kinds[key] in ("size", "rows"):
            yield from _in_size(value)
        elif kinds[key] == "sizes":
            yield from (name for size in value for name in _in_size(size))


def _in_size(size: Size) -> list[str]:
    factors = size if isinstance(size, tuple) else (size,)
    return [factor for factor in factors if isinstance(factor, str)]


def _tie(rule: Rule, recipe: Recipe, known: set[str]) -> Iterator[str]:
    if rule.tie is not None and rule.tie not in known:
        yield f"tied to {rule.tie!r}, which has no rule"
    if rule.tie is not None and not rule.when:
        yield "a 'tie' needs a 'when'"
    if rule.of is not None and rule.of not in known:
        yield f"of {rule.of!r}, which has no rule"
    if rule.of is not None and (rule.tie, rule.part, rule.over) != (None, None, None):
        yield "'of' goes with steps and 'when' alone"
    for name in rule.when:
        if name not in recipe.fields:
            yield f"when: {name!r} is not a field of [config]"


def _shape(rule: Rule) -> Iterator[str]:
    """Problems with how arrays are joined and parted along the chain."""
    first = rule.steps[0].op if rule.steps else None
    joins = [step.op for step in rule.steps if OPERATIONS[step.op].joins]
    if joins and (joins != [first] or rule.part is not None):
        yield "concat and stack come first, and once"
    if len(rule.sources) > 1 and not joins:
        yield "several sources need concat or stack"
    if (rule.over is not None) != (first == "stack"):
        yield "'over' and stack go together"
    if first == "concat" and len(rule.steps[0].params["sizes"]) != len(rule.sources):
        yield "concat needs as many sizes as sources"
    if any(OPERATIONS[step.op].computes for step in rule.steps[: max(rule.split - 1, 0)]):
        yield "what computes numbers comes behind the split"
    if [step.op for step in rule.steps].count("split") != (0 if rule.part is None else 1):
        yield "'part' and split go together, once"


def _inverses(recipe: Recipe) -> Iterator[str]:
    """Problems of sources that neither one rule nor all parts of one split make again."""
    for dialect in DIALECTS:
        users: dict[str, list[Rule]] = defaultdict(list)
        for rule in recipe.rules[dialect].rules:
            for source in rule.sources:
                users[source.text].append(rule)
        for name, rules in users.items():
            if problem := _no_inverse(rules):
                yield f"weights.{dialect}: {name!r} {problem}"


def _no_inverse(rules: list[Rule]) -> str | None:
    # Those that may hold under the same configuration as another.
    groups = [[other for other in rules if not _exclude(rule, other)] for rule in rules]
    together = max(groups, key=len)
    splits = [rule for rule in together if rule.split]
    if not splits:
        count = len(together)
        return None if count == 1 else f"is used by {count} rules, which has no inverse"
    ways = {str(rule.steps[: rule.split]) for rule in splits}
    if len(splits) != len(together) or len(ways) != 1:
        return "is split in different ways"
    wanted = list(range(len(splits[0].steps[splits[0].split - 1].params["sizes"])))
    found = sorted(rule.part for rule in splits if rule.part is not None)
    return (
        None if found == wanted else f"needs a rule for each of the parts {wanted}, found {found}"
    )


def _exclude(left: Rule, right: Rule) -> bool:
    both = left.when.keys() & right.when.keys() if left.tie is right.tie is None else ()
    return any(left.when[field] != right.when[field] for field in both)


CHECKS: tuple[Callable[[Recipe], Iterator[str]], ...] = (
    _matches,
    _fields,
    check_types.problems,
    _computed,
    _targets,
    _rules,
    _past_layers,
    _inverses,
)
