"""Rules applied to names: which tensors make a parameter, and which tensors parameters make.

Both directions come from the same rule. Reading, a parameter's rule names its sources and the steps
from them; writing, the steps are undone, and the parts of a split are joined again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from maxtool.errors import ConfigurationError
from maxtool.recipe import operations as ops
from maxtool.recipe.rule import Rule, resolve_step
from maxtool.recipe.schema import Dialect, Recipe
from maxtool.recipe.step import Array, Shape, Step

T = TypeVar("T")


@dataclass(frozen=True)
class BoundRule:
    """A rule at the indices of one parameter."""

    sources: tuple[str, ...]
    steps: tuple[Step, ...]  # sizes as numbers
    part: int | None  # which output of the split it is; the steps after that see only this
    split: int = 0  # steps up to the split, it included
    lost: str = ""  # why there is no such tensor, where there is none
    is_copy: bool = False  # whether another parameter is what writes the sources

    @property
    def select(self) -> tuple[Step, ...]:
        """The steps up to the split, if there is one."""
        return self.steps[: self.split]

    @property
    def rest(self) -> tuple[Step, ...]:
        """The steps after the split."""
        return self.steps[self.split :]

    def apply(self, arrays: Sequence[Array]) -> Array:
        """The parameter's array from those of the sources."""
        return ops.run(self.rest, self._selected(ops.run(self.select, arrays)))[0]

    @property
    def may_round(self) -> bool:
        """Return whether there are values that the rule rounds, or rows that it leaves out."""
        return ops.may_round(self.steps) and not self.is_copy

    def is_exact(self, arrays: Sequence[Array]) -> bool:
        """Return whether undoing the rule gives every bit of the sources' arrays back."""
        selected = self._selected(ops.run(self.select, arrays))
        return ops.is_exact(self.select, arrays) and ops.is_exact(self.rest, selected)

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The parameter's shape from those of the sources; MisshapenWeight if they do not fit."""
        return ops.run_shapes(self.rest, self._selected(ops.run_shapes(self.select, shapes)))[0]

    def whole_rows(self, shapes: Sequence[Shape]) -> bool:
        """Return whether only whole rows of the sources are moved."""
        return ops.moves_whole_rows(self.select, shapes) and ops.moves_whole_rows(
            self.rest, self._selected(ops.run_shapes(self.select, shapes))
        )

    def _selected(self, items: list[Any]) -> list[Any]:
        return items if self.part is None else [items[self.part]]


@dataclass(frozen=True)
class OutputTensor:
    """A tensor of a dialect, as parameters make it."""

    name: str
    shape: Shape
    inputs: tuple[tuple[str, tuple[Step, ...]], ...]  # parameters, and the steps that undo rules
    join: tuple[Step, ...]  # the step that joins the parts of a split, if there is one
    index: int  # which of the arrays that the steps give it is

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters it is made from."""
        return tuple(parameter for parameter, _ in self.inputs)

    def apply(self, arrays: Sequence[Array]) -> Array:
        """The tensor's array from those of its parameters."""
        undone = [array for steps, given in self._each(arrays) for array in ops.run(steps, [given])]
        return ops.run(self.join, undone)[self.index]

    @property
    def may_round(self) -> bool:
        """Return whether there are values that get rounded."""
        return any(ops.may_round(steps) for _, steps in self.inputs)

    def is_exact(self, arrays: Sequence[Array]) -> bool:
        """Return whether reading the tensor by the rule again gives every bit of the parameters."""
        return all(ops.is_exact(steps, [given]) for steps, given in self._each(arrays))

    def whole_rows(self, shapes: Sequence[Shape]) -> bool:
        """Return whether only whole rows of parameters of these shapes are moved."""
        pairs = self._each(shapes)
        undone = [shape for steps, given in pairs for shape in ops.run_shapes(steps, [given])]
        return all(ops.moves_whole_rows(steps, [given]) for steps, given in pairs) and (
            ops.moves_whole_rows(self.join, undone)
        )

    def _each(self, items: Sequence[T]) -> list[tuple[tuple[Step, ...], T]]:
        """Items of each parameter, with the steps that undo its rule."""
        return [(steps, item) for (_, steps), item in zip(self.inputs, items, strict=True)]


def find_rule(
    recipe: Recipe, dialect: Dialect, parameter: str, values: Mapping[str, Any]
) -> tuple[Rule, dict[str, int]] | None:
    """The rule that makes ``parameter``, and the indices at which it does."""
    for rule in recipe.rules[dialect].rules:
        indices = rule.target.match(parameter)
        if indices is not None and rule.applies(values, indices):
            return rule, indices
    return None


def bind(
    recipe: Recipe, dialect: Dialect, parameter: str, values: Mapping[str, Any]
) -> BoundRule | None:
    """The rule of ``parameter`` at its indices, or None when there is no rule."""
    found = find_rule(recipe, dialect, parameter, values)
    if found is None:
        return None
    rule, indices = found
    if rule.of is None:
        return _bound(rule, indices, values)
    original = bind(recipe, dialect, _original(recipe, dialect, rule.of, values), values)
    if original is None or original.lost:
        return original
    steps = (*original.steps, *_resolved(rule, values))
    return replace(original, steps=steps, is_copy=True)


def _original(recipe: Recipe, dialect: Dialect, parameter: str, values: Mapping[str, Any]) -> str:
    """The parameter that has the tensors: the one it is tied to, if it is tied."""
    found = find_rule(recipe, dialect, parameter, values)
    is_tied = found is not None and found[0].tied(values)
    return (found[0].tie if found is not None and is_tied else None) or parameter


def _resolved(rule: Rule, values: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps of a rule with sizes as numbers, without those that do nothing."""
    steps = (resolve_step(step, values) for step in rule.steps)
    return tuple(s for s in steps if not ops.OPERATIONS[s.op].does_nothing(s.params))


def _bound(rule: Rule, indices: Mapping[str, int], values: Mapping[str, Any]) -> BoundRule:
    steps = _resolved(rule, values)
    if rule.over is None:
        names = tuple(source.name(indices) for source in rule.sources)
    else:
        (source,) = rule.sources
        count = range(steps[0].params["count"])
        names = tuple(source.name({**indices, rule.over: index}) for index in count)
    return BoundRule(names, steps, rule.part, rule.split, rule.lost)


def emissions(
    recipe: Recipe, dialect: Dialect, values: Mapping[str, Any], shapes: Mapping[str, Shape]
) -> list[OutputTensor]:
    """The tensors of ``dialect`` that say the same as parameters of ``shapes``, in no order.

    A parameter that the dialect has no place for is left out; :func:`left_out` names those. So is
    what only repeats parts of others. Those without a rule are an error, which lists them.
    """
    bound = {name: bind(recipe, dialect, name, values) for name in shapes}
    if lost := [name for name, rule in bound.items() if rule is None]:
        raise ConfigurationError(
            f"the recipe {recipe.name} has no way to write parameters for {dialect}",
            file=recipe.file,
            problems=lost,
        )
    kept = {
        name: rule
        for name, rule in bound.items()
        if rule is not None and not rule.lost and not rule.is_copy
    }
    whole = {name: rule for name, rule in kept.items() if rule.part is None}
    parts: dict[str, list[tuple[int, str, BoundRule]]] = {}
    for name, rule in kept.items():
        if rule.part is not None:
            parts.setdefault(rule.sources[0], []).append((rule.part, name, rule))
    made = [item for name, rule in whole.items() for item in _undone(name, rule, shapes[name])]
    return made + [
        _joined(source, sorted(group, key=lambda item: item[0]), shapes)
        for source, group in parts.items()
    ]


def left_out(
    recipe: Recipe, dialect: Dialect, values: Mapping[str, Any], parameters: Iterable[str]
) -> list[str]:
    """The parameters that ``dialect`` has no place for, each with the reason."""
    rules = _rules_of(recipe, dialect, values, parameters)
    lost = [f"{name} is not written: {rule.lost}" for name, rule in rules.items() if rule.lost]
    return lost + [
        f"{name} is not written: what {dialect} needs of it is {rule.of}"
        for name, rule in rules.items()
        if rule.of is not None and ops.may_round(ops.inverted(_resolved(rule, values)))
    ]


def taken_for_zero(
    recipe: Recipe, dialect: Dialect, values: Mapping[str, Any], parameters: Iterable[str]
) -> dict[str, str]:
    """The parameters that ``dialect`` takes for 0, each with why it has no place for them."""
    if not any(rule.zero for rule in recipe.rules[dialect].rules):
        return {}
    rules = _rules_of(recipe, dialect, values, parameters)
    return {name: rule.lost for name, rule in rules.items() if rule.zero}


def _rules_of(
    recipe: Recipe, dialect: Dialect, values: Mapping[str, Any], parameters: Iterable[str]
) -> dict[str, Rule]:
    """The rule of each parameter that has one."""
    found = {name: find_rule(recipe, dialect, name, values) for name in parameters}
    return {name: pair[0] for name, pair in found.items() if pair is not None}


def _undone(name: str, rule: BoundRule, shape: Shape) -> list[OutputTensor]:
    steps = ops.inverted(rule.steps)
    given = ops.run_shapes(steps, [shape])
    return [
        OutputTensor(source, given[index], ((name, steps),), (), index)
        for index, source in enumerate(rule.sources)
    ]


def _joined(
    source: str, group: Sequence[tuple[int, str, BoundRule]], shapes: Mapping[str, Shape]
) -> OutputTensor:
    """The source of a split, made of all its parts."""
    inputs = tuple((name, ops.inverted(rule.rest)) for _, name, rule in group)
    join = ops.inverted(group[0][2].select)
    undone = [ops.run_shapes(steps, [shapes[name]])[0] for name, steps in inputs]
    if len(undone) != len(join[0].params["sizes"]):
        raise ConfigurationError(
            f"{source!r} needs all parts of its split; {len(undone)} are there"
        )
    return OutputTensor(source, ops.run_shapes(join, undone)[0], inputs, join, 0)
