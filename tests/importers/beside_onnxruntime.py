"""Models run here, evaluated and compiled, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
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


def in_compiled(graph: ImportedGraph, inputs: Arrays) -> list[np.ndarray]:
    registry = {name: owner.to_numpy() for name, owner in graph.graph.owners.items()}
    model = InferenceSession().load(graph.graph, weights_registry=registry)
    results = model.execute(*(np.asarray(inputs[name], order="C") for name in graph.inputs))
    return [one.to_numpy() for one in results]


def require_equal(
    proto: onnx.ModelProto,
    inputs: Arrays,
    folder: Path,
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compiled: bool = True,
) -> None:
    """Compare every output, of the float64 evaluation and of compiled code."""
    expected = in_onnxruntime(proto, inputs)
    graph = import_model(open_model(saved(proto, folder)))
    runs = [by_definitions, *([in_compiled] if compiled else [])]
    for run in runs:
        results = dict(zip(graph.outputs, run(graph, inputs), strict=True))
        for name, wanted in expected.items():
            actual = results[name]
            assert actual.shape == wanted.shape, f"{name} by {run.__name__}"
            close = np.isclose(
                *(one.astype(np.float64) for one in (actual, wanted)), rtol, atol, equal_nan=True
            )
            assert close.all(), (
                f"{name} by {run.__name__}: {actual[~close][:5]} is not {wanted[~close][:5]}"
            )
