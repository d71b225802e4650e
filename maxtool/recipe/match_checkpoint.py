"""Planning: every parameter is bound to its tensors, from headers alone.

All that does not fit is gathered: parameters without a tensor, tensors without a use, shapes and
types that differ, tensors that say the model is of an unsupported kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maxtool.dtype import DType
from maxtool.errors import ConfigurationError, MisshapenWeight
from maxtool.recipe.bind import BoundRule, bind
from maxtool.recipe.dense_modules import FEATURES, with_dense
from maxtool.recipe.first_dimensions import respelled, spellings
from maxtool.recipe.load import dialect
from maxtool.recipe.name_patterns import clashes, renamed
from maxtool.recipe.operations import result_dtype
from maxtool.recipe.plan import Binding, Plan
from maxtool.recipe.read_config import resolve_config
from maxtool.recipe.schema import Recipe
from maxtool.recipe.square_matrices import tell_squares
from maxtool.recipe.step import Shape
from maxtool.recipe.text_part import tensors_of, within
from maxtool.recipe.unused_tensors import classify_unused
from maxtool.weights import Checkpoint, TensorInfo
from maxtool.weights.scaled_float8 import VALUE_TYPES

if TYPE_CHECKING:
    from maxtool.architectures import Architecture

# Of a model whose tensors are not at hand; the deepest published models have some 130.
MAX_LAYERS = 1 << 12
PLAIN_FLOATS = frozenset({DType.float16, DType.bfloat16, DType.float32, DType.float64})


def plan(recipe: Recipe, checkpoint: Checkpoint, *, ignore: frozenset[str] = frozenset()) -> Plan:
    """Match a checkpoint with a recipe, from headers alone; ``ignore`` names keys to pass over.

    What does not fit is in the plan, see :meth:`Plan.check`; a configuration that does not fit the
    recipe is an error.
    """
    recipe = within(recipe, checkpoint)
    resolved = resolve_config(recipe, checkpoint, ignore=ignore)
    if resolved.values.get(FEATURES):
        checkpoint = with_dense(checkpoint)
    renames = recipe.rules[dialect(checkpoint)].rename
    own = tensors_of(recipe, checkpoint.tensors)
    tensors = renamed(renames, own)
    notes = [*([recipe.text_part.note] if recipe.text_part else []), *resolved.notes]
    made = Plan(recipe, checkpoint, dialect(checkpoint), resolved.values, tensors, notes)
    made.unused += clashes(renames, own)
    made.dropped += (name for name in checkpoint.tensors if name not in own)
    most = len(checkpoint.tensors)
    module = _declared(recipe, checkpoint, resolved.values, most, f"the file only {most} tensors")
    made.context = module.context
    for parameter, shape in _shapes(module).items():
        _bind(made, parameter, shape)
    respelled(made)
    tell_squares(made)
    classify_unused(made)
    return made


def declared_shapes(
    recipe: Recipe, checkpoint: Checkpoint, values: Mapping[str, Any]
) -> dict[str, Shape]:
    """The shapes of all parameters of a model of which only the configuration is at hand."""
    said = f"{MAX_LAYERS} are the most"
    return _shapes(_declared(recipe, checkpoint, values, MAX_LAYERS, said))


def _shapes(module: Architecture) -> dict[str, Shape]:
    """The shapes of all parameters that a module has, by name."""
    weights = module.raw_state_dict().items()
    return {name: tuple(int(dim) for dim in weight.shape) for name, weight in weights}


def _declared(
    recipe: Recipe, checkpoint: Checkpoint, values: Mapping[str, Any], most: int, said: str
) -> Architecture:
    """Build the recipe's architecture for the parameters that it declares.

    Refuse first a configuration that asks for more than ``most`` layers.
    """
    from maxtool.architectures import build

    layers = values.get("n_layers", 0)
    if layers > most:
        raise ConfigurationError(
            f"the configuration has {layers} layers and {said}",
            file=checkpoint.config_file or checkpoint.path,
        )
    try:
        return build(recipe.architecture, values)
    except ConfigurationError as error:
        error.file = error.file or str(checkpoint.config_file or checkpoint.path)
        raise


def _bind(made: Plan, parameter: str, shape: Shape) -> None:
    rule = bind(made.recipe, made.dialect, parameter, made.config)
    if rule is None:
        made.missing.append(f"{parameter} (the recipe has no rule for it)")
        return
    if rule.lost:
        made.missing.append(f"{parameter} ({rule.lost})")
        return
    tensors = made.tensors
    made.claimed.update(rule.sources)
    absent = [source for source in rule.sources if source not in tensors]
    if absent:
        made.missing += [f"{source} {list(shape)} (for {parameter})" for source in absent]
        return
    sources = tuple(tensors[source] for source in rule.sources)
    problem = _misfit(rule, sources, shape)
    if problem is not None and made.dialect == "gguf":
        fitting = (each for each in spellings(sources) if _misfit(rule, each, shape) is None)
        sources, problem = next(((each, None) for each in fitting), (sources, problem))
    if problem is not None:
        names = rule.sources
        names = names if len(names) <= 3 else (*names[:2], f"... {len(names)} in all")
        made.misshapen.append(f"{', '.join(names)}: {problem} (for {parameter})")
        return
    made.parameters[parameter] = _binding(parameter, shape, sources, rule)


def _misfit(rule: BoundRule, sources: tuple[TensorInfo, ...], shape: Shape) -> str | None:
    for source in sources:
        if source.encoding is None and source.dtype in VALUE_TYPES:  # one with a scale is float32
            return f"is {source.dtype.value} and lacks its scale {source.name}_scale_inv"
        if source.encoding is None and source.dtype not in PLAIN_FLOATS:
            return f"is {source.dtype.value}, not a plain floating-point type"
    try:
        found = rule.shape([source.shape for source in sources])
    except MisshapenWeight as error:
        return error.what
    if found == shape:
        return None
    if len(sources) == 1 and not rule.steps:
        return f"needs {list(shape)}, found {list(found)}"
    return f"gives {list(found)}, {list(shape)} is needed"


def _binding(
    parameter: str, shape: Shape, sources: tuple[TensorInfo, ...], rule: BoundRule
) -> Binding:
    encodings = {source.encoding for source in sources}
    dtypes = {source.dtype for source in sources}
    encoding = next(iter(encodings)) if len(encodings) == 1 else None
    if not rule.whole_rows([source.shape for source in sources]):
        encoding = None
    stored = next(iter(dtypes)) if len(dtypes) == 1 and encodings == {None} else DType.float32
    dtype = DType.float32 if encoding is not None else result_dtype(rule.steps, stored)
    return Binding(parameter, shape, dtype, encoding, sources, rule)
