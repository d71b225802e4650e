"""``maxtool recipes check``: a recipe against a checkpoint, tensor by tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxtool.cli import options
from maxtool.cli.output import Output

if TYPE_CHECKING:
    from maxtool.recipe import Binding, Plan

SCHEMA = "maxtool.recipes-check/1"
COLUMNS = [("Parameter", "left"), ("Made of", "left"), ("Type", "left"), ("Shape", "left")]
PROBLEMS = ("missing", "misshapen", "unused", "refused")


def recipes_check(
    out: Output,
    recipe: options.NamedRecipe,
    checkpoint: options.Source,
    ignore_config: options.IgnoreConfig = None,
) -> None:
    """Check a recipe against a checkpoint's headers: what each parameter is made of.

    Exits with 4 when a tensor is missing, unused or of another shape.
    """
    from maxtool.recipe import load_recipe, plan
    from maxtool.sources import open_named

    loaded = load_recipe(options.local_recipe(recipe))
    planned = plan(
        loaded,
        open_named(checkpoint).checkpoint,
        ignore=frozenset(ignore_config or ()),
    )
    if out.json_mode:
        _print_json(out, planned)
    else:
        _show(out, planned)


def _show(out: Output, plan: Plan) -> None:
    from maxtool.cli.tables import write

    if plan.parameters:
        write(out, COLUMNS, [_row(binding) for binding in plan.parameters.values()], folds=1)
    for note in plan.notes:
        out.note(note)
    plan.check()
    tensors = {source.name for binding in plan.parameters.values() for source in binding.sources}
    out.note(f"{len(plan.parameters)} parameters of {len(tensors)} tensors: everything fits")


def _row(binding: Binding) -> list[str]:
    type_ = binding.encoding.name if binding.encoding else binding.dtype.value
    sources = " + ".join(_some([source.name for source in binding.sources]))
    steps = [step.op for step in binding.rule.steps]
    return [binding.parameter, ", ".join([sources, *steps]), type_, str(list(binding.shape))]


def _some(names: list[str]) -> list[str]:
    return names if len(names) <= 3 else [*names[:2], f"{len(names) - 2} more"]


def _print_json(out: Output, plan: Plan) -> None:
    """The mapping and every problem, in one object; the exit code says whether it fits."""
    from typer import Exit

    from maxtool.errors import ModelMismatch

    problems = {name: list(getattr(plan, name)) for name in PROBLEMS}
    parameters = {name: _as_json(binding) for name, binding in plan.parameters.items()}
    content = {"recipe": plan.recipe.name, "dialect": plan.dialect, "config": plan.config}
    out.data(SCHEMA, {**content, "notes": plan.notes, "parameters": parameters, **problems})
    if any(problems.values()):
        raise Exit(ModelMismatch.exit_code)


def _as_json(binding: Binding) -> dict[str, object]:
    return {
        "dtype": binding.dtype.value,
        "shape": list(binding.shape),
        "encoding": binding.encoding.name if binding.encoding else None,
        "from": [source.name for source in binding.sources],
        "operations": [step.op for step in binding.rule.steps],
    }
