"""Models run here, evaluated and compiled, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from maxtool.engine import InferenceSession
from maxtool.importers.onnx import ImportedGraph, import_model, open_model
from tests.importers.backend_suite import by_definitions
from tests.importers.models import saved

Arrays = Mapping[str, np.ndarray]


def in_onnxruntime(proto: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def in_compiled(graph: ImportedGraph) -> Callable[[Arrays], list[np.ndarray]]:
    """The graph compiled once, as a function of inputs by name."""
    owners = {**graph.graph.borrowed, **graph.graph.owners}
    registry = {name: owner.to_numpy() for name, owner in owners.items()}
    model = InferenceSession().load(graph.graph, weights_registry=registry)

    def run(inputs: Arrays) -> list[np.ndarray]:
        results = model.execute(*(np.asarray(inputs[name], order="C") for name in graph.inputs))
        return [one.to_numpy() for one in results]

    return run


def require_equal(
    proto: onnx.ModelProto,
    inputs: Arrays | Sequence[Arrays],
    folder: Path,
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compiled: bool = True,
) -> None:
    """Compare every output, of the float64 evaluation and of compiled code, for each inputs."""
    graph = import_model(open_model(saved(proto, folder)))
    runs: dict[str, Callable[[Arrays], list[np.ndarray]]]
    runs = {"definitions": lambda given: by_definitions(graph, given)}
    runs |= {"compiled": in_compiled(graph)} if compiled else {}
    for given in [inputs] if isinstance(inputs, Mapping) else inputs:
        expected = in_onnxruntime(proto, given)
        for how, run in runs.items():
            results = dict(zip(graph.outputs, run(given), strict=True))
            for name, wanted in expected.items():
                _require_close(f"{name} by {how}", results[name], wanted, (rtol, atol))


def _require_close(
    what: str, actual: np.ndarray, wanted: np.ndarray, tolerance: tuple[float, float]
) -> None:
    assert actual.shape == wanted.shape, f"{what}: {actual.shape}, not {wanted.shape}"
    wide = (one.astype(np.float64) for one in (actual, wanted))
    close = np.isclose(*wide, *tolerance, equal_nan=True)
    assert close.all(), f"{what}: {actual[~close][:5]} is not {wanted[~close][:5]}"
