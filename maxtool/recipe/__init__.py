"""Recipes: how a model is recognised, configured and made of tensors, in either direction."""

from maxtool.recipe.bind import BoundRule, OutputTensor, bind, emissions, left_out, taken_for_zero
from maxtool.recipe.computed import computed_tensors
from maxtool.recipe.load import find_recipe, load_recipe, written_by
from maxtool.recipe.match_checkpoint import declared_shapes, plan
from maxtool.recipe.plan import Binding, Plan
from maxtool.recipe.read_config import ResolvedConfig, resolve_config
from maxtool.recipe.recipe_files import hidden, recipe_names
from maxtool.recipe.recognition import Recognition, recognise
from maxtool.recipe.schema import Dialect, Recipe
from maxtool.recipe.write_config import written_keys, written_notes

__all__ = [
    "Binding",
    "BoundRule",
    "Dialect",
    "OutputTensor",
    "Plan",
    "Recipe",
    "Recognition",
    "ResolvedConfig",
    "bind",
    "computed_tensors",
    "declared_shapes",
    "emissions",
    "find_recipe",
    "hidden",
    "left_out",
    "load_recipe",
    "plan",
    "recipe_names",
    "recognise",
    "resolve_config",
    "taken_for_zero",
    "written_by",
    "written_keys",
    "written_notes",
]
