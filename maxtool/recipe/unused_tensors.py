"""Tensors that make no parameter: what they are, and why they are there all the same."""

from __future__ import annotations

import itertools

from maxtool.recipe.computed import names_of
from maxtool.recipe.keys import Keys
from maxtool.recipe.layer_ranges import folded
from maxtool.recipe.plan import Plan
from maxtool.recipe.text_part import values_of


def classify_unused(made: Plan) -> None:
    """Put every tensor that no parameter uses where it belongs."""
    rules = made.recipe.rules[made.dialect]
    computed = made.recipe.computed[made.dialect]
    read = {name for each in computed for name in names_of(each, made.tensors)}
    passed = made.claimed | read | _set_aside(made) | _past_layers(made)
    idle: list[str] = []
    for name, tensor in made.tensors.items():
        if name in passed:
            continue
        reasons = (why for pattern, why in rules.refuse.items() if pattern.match(name) is not None)
        if reason := next(reasons, None):
            made.refused.append(f"{tensor.name}: {reason}")
        elif _is_duplicate(made, name):
            continue
        elif 0 in tensor.shape or any(pattern.match(name) is not None for pattern in rules.drop):
            idle.append(tensor.name)
        else:
            made.unused.append(f"{tensor.name} {list(tensor.shape)}{_why(made, name)}")
    made.dropped += idle
    made.notes += folded(f"{name} is not needed to run and is dropped" for name in idle)


def _set_aside(made: Plan) -> set[str]:
    """The tensors of a part of the model that is left out; noted if there are any."""
    aside = made.recipe.aside[made.dialect]
    left = [name for name in made.tensors if any(p.match(name) is not None for p in aside.tensors)]
    if left:
        made.dropped += left
        made.notes.append(f"{aside.note}: {len(left)} tensors")
    return set(left)


def _past_layers(made: Plan) -> set[str]:
    """The tensors of layers behind the last, which predict further tokens; noted if any."""
    numbers: dict[str, int] = {}
    for key, patterns in made.recipe.rules[made.dialect].past_layers.items():
        counted = values_of(made.recipe, Keys.of(made.checkpoint)).get(key)
        layers = made.config["n_layers"]
        past = range(layers, layers + (counted if isinstance(counted, int) else 0))
        for name, pattern in itertools.product(made.tensors, patterns):
            layer = (pattern.match(name) or {}).get("layer", -1)
            if layer in past:
                numbers[name] = layer
    if numbers:
        made.dropped += numbers
        listed = ", ".join(map(str, sorted(set(numbers.values()))))
        made.notes.append(
            f"layer {listed} predicts further tokens and is not computed: {len(numbers)} tensors"
        )
    return set(numbers)


def _is_duplicate(made: Plan, name: str) -> bool:
    """Return whether the tensor repeats one that its parameter is tied to; noted if so."""
    for rule in made.recipe.rules[made.dialect].rules:
        if not rule.tied(made.config) or rule.tie not in made.parameters:
            continue
        if name not in {source.text for source in rule.sources}:
            continue
        original = made.parameters[rule.tie].sources[0]
        tensor = made.tensors[name]
        if tensor.shape != original.shape:
            made.misshapen.append(
                f"{name}: needs {list(original.shape)} as {original.name}, to which it is tied, "
                f"found {list(tensor.shape)}"
            )
        else:
            made.duplicates[tensor.name] = original.name
            made.notes.append(
                f"{tensor.name} is dropped: it is tied to {original.name}, and has to be equal"
            )
        return True
    return False


def _why(made: Plan, name: str) -> str:
    """Reason why a tensor that some rule knows is not used."""
    for rule in made.recipe.rules[made.dialect].rules:
        for source in rule.sources:
            indices = source.match(name)
            if indices is not None:
                return f" (for {rule.target.name(indices)}, which this configuration does not have)"
    return ""
