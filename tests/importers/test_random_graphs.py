"""Random graphs beside onnxruntime: by their definitions in float64, and compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from maxtool.errors import MaxtoolError
from maxtool.importers.onnx import ImportedGraph, import_model, open_model
from tests.effort import examples
from tests.importers.backend_suite import by_definitions
from tests.importers.beside_onnxruntime import in_compiled
from tests.importers.models import saved
from tests.importers.random_graphs import RandomGraph
from tests.importers.random_operators import OPERATORS

pytestmark = pytest.mark.peers
NAMED = {3: "n", 5: "m"}
MOST_NODES = 9
unhurried = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def drawn(data: st.DataObject) -> RandomGraph:
    graph = RandomGraph(data.draw)
    for _ in range(data.draw(st.integers(1, MOST_NODES))):
        OPERATORS[data.draw(st.sampled_from(sorted(OPERATORS)))](graph)
    assume(graph.nodes)
    return graph


def imported(proto: onnx.ModelProto, folder: Path) -> ImportedGraph:
    return import_model(open_model(saved(proto, folder)))


def require_what_was_drawn(graph: RandomGraph, names: list[str], results: list[np.ndarray]) -> None:
    found = dict(zip(names, results, strict=True))
    largest = max(float(np.abs(one.value).max()) for one in graph.tensors)
    for leaf in graph.leaves():
        actual, wanted = found[leaf.name], leaf.value
        assert actual.shape == wanted.shape, f"{leaf.name}: {actual.shape}, not {wanted.shape}"
        near = np.isclose(*(one.astype(float) for one in (actual, wanted)), 1e-4, 1e-5 * largest)
        assert near.all(), f"{leaf.name}: {actual[~near][:5]} is not {wanted[~near][:5]}"


@given(st.data())
@settings(max_examples=examples(60, 250), suppress_health_check=unhurried)
def test_definitions_are_those_of_onnxruntime(tmp_path: Path, data: st.DataObject) -> None:
    graph = drawn(data)
    read = imported(graph.proto({}), tmp_path)
    require_what_was_drawn(graph, [*read.outputs], by_definitions(read, graph.inputs))


@given(st.data())
@settings(max_examples=examples(10, 30), suppress_health_check=unhurried)
def test_compiled_graphs_give_what_onnxruntime_does(tmp_path: Path, data: st.DataObject) -> None:
    graph = drawn(data)
    read = imported(graph.proto({}), tmp_path)
    require_what_was_drawn(graph, [*read.outputs], in_compiled(read)(graph.inputs))


@given(st.data())
@settings(max_examples=examples(10, 30), suppress_health_check=unhurried)
def test_sizes_with_names_change_nothing(tmp_path: Path, data: st.DataObject) -> None:
    """A graph may be refused for what names leave open, and a call whose sizes do not fit."""
    graph = drawn(data)
    try:
        run = in_compiled(read := imported(graph.proto(NAMED), tmp_path))
        results = run(graph.inputs)
    except (MaxtoolError, ValueError) as refusal:
        event(f"refused: {refusal!s:.40}")
        return
    require_what_was_drawn(graph, [*read.outputs], results)
