"""Square matrices that a file may keep either way: others of the same file tell which."""

from __future__ import annotations

from dataclasses import replace

from maxtool.recipe.plan import Binding, Plan

EITHER_WAY = "outputs_first"


def tell_squares(made: Plan) -> None:
    """Read square matrices as those are kept that are not square.

    The step takes square ones for rows of inputs, as it writes them. It is left out where the
    others have rows of outputs already.
    """
    bound = [each for each in made.parameters.values() if _is_either_way(each)]
    squares = [each for each in bound if _is_square(each)]
    ways = {_has_outputs_first(each) for each in bound if not _is_square(each)}
    if len(ways) > 1:
        made.misshapen += (
            f"{each.sources[0].name}: is square, and other matrices have rows of inputs here, of "
            f"outputs there: nothing tells which it has (for {each.parameter})"
            for each in squares
        )
    elif ways == {True}:
        made.parameters |= {each.parameter: _without_step(each) for each in squares}


def _is_either_way(binding: Binding) -> bool:
    return any(step.op == EITHER_WAY for step in binding.rule.steps[:1])


def _is_square(binding: Binding) -> bool:
    params = binding.rule.steps[0].params
    return bool(params["rows"] == params["columns"])


def _has_outputs_first(binding: Binding) -> bool:
    params = binding.rule.steps[0].params
    return binding.sources[0].shape[-2:] == (params["rows"], params["columns"])


def _without_step(binding: Binding) -> Binding:
    rule = binding.rule
    shorter = replace(rule, steps=rule.steps[1:], split=max(0, rule.split - 1))
    return replace(binding, rule=shorter)
