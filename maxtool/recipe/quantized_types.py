"""The types that a scheme gives the tensors of a model, by their names in GGUF."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.quantization.mixes import ModelFacts
from maxtool.quantization.scheme import ChosenType, Scheme, choose_types, needing_importance
from maxtool.recipe.bind import OutputTensor, bind, emissions
from maxtool.recipe.fitted_importance import fitted
from maxtool.recipe.plan import Plan
from maxtool.recipe.step import Shape
from maxtool.weights.importance_file import ImportanceFile, read_importance
from maxtool.weights.names import did_you_mean, listed

ARCHITECTURE = "general.architecture"


@dataclass(frozen=True)
class QuantizedTypes:
    """The types of a model's tensors, as a scheme chose them.

    Attributes:
        types: Those of tensors that can be quantized, by name.
        notes: What is worth knowing of them.
        importance: The file that they were weighed by, if there is one.
    """

    types: Mapping[str, ChosenType]
    notes: list[str]
    importance: ImportanceFile | None = None


def gguf_types(planned: Plan, emitted: Iterable[OutputTensor], scheme: Scheme) -> QuantizedTypes:
    """The types of a GGUF file's tensors.

    Raises:
        UsageError: If a pattern matches none of them, or importance is needed that is not there.
        InputError: If the importance matrix cannot be read.
        ModelMismatch: If it is of another model.
    """
    return _chosen(planned, {tensor.name: tensor.shape for tensor in emitted}, scheme)


def parameter_types(planned: Plan, scheme: Scheme) -> QuantizedTypes:
    """The types of parameters: those of the GGUF tensors that they would become a part of.

    A parameter that GGUF has no tensor for goes by its own name. Errors as of :func:`gguf_types`.
    """
    tensors = {name: (tensor.name, tensor.shape) for name, tensor in gguf_tensors(planned).items()}
    for name, binding in planned.parameters.items():
        tensors.setdefault(name, (name, binding.shape))
    chosen = _chosen(planned, dict(tensors.values()), scheme)
    types = chosen.types
    by_parameter = {name: types[tensor] for name, (tensor, _) in tensors.items() if tensor in types}
    return replace(chosen, types=by_parameter)


def _chosen(planned: Plan, shapes: Mapping[str, Shape], scheme: Scheme) -> QuantizedTypes:
    """The types of tensors, and the importance of those that are quantized."""
    file = None if scheme.importance is None else read_importance(scheme.importance)
    facts = replace(model_facts(planned), has_importance=file is not None)
    types = choose_types(shapes, scheme, facts)
    _check_patterns(scheme, types)
    packed = {name: shapes[name] for name in types if not isinstance(types[name].type, DType)}
    columns, notes = ({}, []) if file is None else fitted(file, packed)
    if lacking := [name for name in needing_importance(types, scheme) if name not in columns]:
        what = f"{scheme.mix.name} needs an importance matrix, or it computes nonsense"
        hint = "--imatrix FILE names one that has all of these"
        raise UsageError(what, problems=listed(lacking), hint=hint)
    weighed = {name: replace(types[name], importance=columns.get(name)) for name in types}
    return QuantizedTypes(weighed, notes, file)


def _check_patterns(scheme: Scheme, names: Iterable[str]) -> None:
    """Refuse patterns that match no tensor: they are misspelled."""
    for glob, _ in scheme.overrides:
        if not any(fnmatchcase(name, glob) for name in names):
            what = f"--tensor-type {glob!r:.80} matches no matrix that can be quantized"
            hint = did_you_mean(glob[:80], names) or "--dry-run without it lists the tensors"
            raise UsageError(what, hint=hint)


def gguf_tensors(planned: Plan) -> dict[str, OutputTensor]:
    """The GGUF tensor that each parameter would be, or be a part of."""
    recipe, values = planned.recipe, planned.config
    shapes = {
        name: binding.shape
        for name, binding in planned.parameters.items()
        if bind(recipe, "gguf", name, values) is not None
    }
    emitted = emissions(recipe, "gguf", values, shapes)
    return {parameter: tensor for tensor in emitted for parameter in tensor.parameters}


def model_facts(planned: Plan) -> ModelFacts:
    """The facts of a model that mixes ask for."""
    values, constants = planned.config, planned.recipe.constants["gguf"]
    said = planned.checkpoint.metadata.get(ARCHITECTURE) if planned.dialect == "gguf" else None
    heads = values.get("n_heads") or 1
    attends, *_ = values.get("attention_layers") or (True,)
    return ModelFacts(
        architecture=str(said or constants.get(ARCHITECTURE, "")),
        layers=values.get("n_layers") or 0,
        heads=heads,
        key_heads=(values.get("n_kv_heads") or heads) if attends else 0,
        experts=values.get("n_experts") or 0,
    )
