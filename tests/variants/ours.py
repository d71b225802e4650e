"""Reading of a checkpoint by maxtool, without a compiler: recipe, fields, graph, outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from maxtool.architectures import build, graph_of
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import FoldedWeight, Graph, Weight
from maxtool.parity import evaluate
from maxtool.recipe import Plan, find_recipe, plan
from maxtool.weights import Checkpoint
from tests.data.seeded import Array


def planned(checkpoint: Checkpoint) -> Plan:
    """The checkpoint bound to its recipe; a MaxtoolError where that does not work."""
    result = plan(find_recipe(checkpoint), checkpoint)
    result.check()
    return result


def meaning(result: Plan) -> str:
    """All that decides what a plan computes from a file: plans of which it is equal are equal."""
    named = result.parameters.items()
    rules = {name: (one.sources, one.rule.steps, one.rule.part) for name, one in named}
    return repr((result.recipe.name, sorted(result.config.items()), rules))


def outputs(result: Plan, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs of the entry ``forward``, in float64.

    Raises:
        ConfigurationError: If the model has no room for the inputs.
    """
    module = build(result.recipe.architecture, result.config)
    if module.context is not None and module.context < inputs["input_ids"].shape[1]:
        raise ConfigurationError(f"a context of {module.context}")
    entry = next(one for one in module.entries() if one.name == "forward")
    graph = graph_of(module, entry)
    derived = dict(_owners(graph))
    weights = {
        name: _read(result, name) if name in result.parameters else _derived(result, derived[name])
        for name in graph.weight_values
    }
    given = {"attention_mask": np.ones_like(inputs["input_ids"]), **inputs}
    return evaluate(graph, [given[name] for name in entry.inputs], weights)


def _derived(result: Plan, weight: Weight) -> Array:
    if isinstance(weight, FoldedWeight):
        return weight.computed(partial(_read, result))
    return weight.to_numpy()


def _read(result: Plan, name: str) -> Array:
    return np.asarray(result.read(name).astype(DType.float32).data)


def _owners(graph: Graph) -> Iterator[tuple[str, Weight]]:
    for callee in graph.subgraphs.values():
        yield from _owners(callee)
    yield from graph.owners.items()
