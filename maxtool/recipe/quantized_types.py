"""The types that a scheme gives the tensors of a model, by their names in GGUF."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from maxtool.errors import UsageError
from maxtool.quantization.mixes import ModelFacts
from maxtool.quantization.scheme import ChosenType, Scheme, choose_types, needing_importance
from maxtool.recipe.bind import OutputTensor, bind, emissions
from maxtool.recipe.plan import Plan
from maxtool.recipe.step import Shape
from maxtool.weights.names import did_you_mean

ARCHITECTURE = "general.architecture"


def gguf_types(
    planned: Plan, emitted: Iterable[OutputTensor], scheme: Scheme
) -> dict[str, ChosenType]:
    """The types of those of a GGUF file's tensors that can be quantized, by name."""
    shapes = {tensor.name: tensor.shape for tensor in emitted}
    return _chosen(planned, shapes, scheme)


def parameter_types(planned: Plan, scheme: Scheme) -> dict[str, ChosenType]:
    """The types of parameters: those of the GGUF tensors that they would become a part of.

    A parameter that GGUF has no tensor for goes by its own name.
    """
    tensors = {name: (tensor.name, tensor.shape) for name, tensor in gguf_tensors(planned).items()}
    for name, binding in planned.parameters.items():
        tensors.setdefault(name, (name, binding.shape))
    types = _chosen(planned, dict(tensors.values()), scheme)
    return {name: types[tensor] for name, (tensor, _) in tensors.items() if tensor in types}


def _chosen(planned: Plan, shapes: Mapping[str, Shape], scheme: Scheme) -> dict[str, ChosenType]:
    """The types of tensors; an error for patterns that match none of them."""
    types = choose_types(shapes, scheme, model_facts(planned))
    for glob, _ in scheme.overrides:
        if not any(fnmatchcase(name, glob) for name in types):
            what = f"--tensor-type {glob!r:.80} matches no matrix that can be quantized"
            hint = did_you_mean(glob[:80], types) or "--dry-run without it lists the tensors"
            raise UsageError(what, hint=hint)
    if needing_importance(types, scheme):
        raise UsageError(f"{scheme.mix.name} needs an importance matrix, or it computes nonsense")
    return types


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
    return ModelFacts(
        architecture=str(said or constants.get(ARCHITECTURE, "")),
        layers=values.get("n_layers") or 0,
        heads=heads,
        key_heads=values.get("n_kv_heads") or heads,
        experts=values.get("n_experts") or 0,
    )
