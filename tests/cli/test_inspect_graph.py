"""``inspect-weights --graph``: the graphs of ONNX models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from tests.importers.models import model, saved, value

node = helper.make_node


def inspecting(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["inspect-weights", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Strange", ["c"], ["y"], domain="com.example"),
    ]
    weights = {"w": np.ones((4, 3), np.float32)}
    inputs = [value("x", ["batch", 4])]
    return saved(model(nodes, inputs, ["y"], weights, domains={"com.example": 2}), tmp_path)


def test_operators_are_counted(source: Path) -> None:
    done = inspecting(source, "--graph", "--json")
    assert done.exit_code == 0, done.output
    graph = json.loads(done.stdout)["graph"]
    assert graph["nodes"] == 4
    assert graph["inputs"] == {"x": "float32[batch, 4]"}
    assert [(one["name"], one["opset"], one["count"]) for one in graph["operators"]] == [
        ("Relu", 20, 2),
        ("MatMul", 20, 1),
        ("com.example.Strange", 2, 1),
    ]
    problems = [one["problem"] for one in graph["operators"]]
    assert problems == ["", "", "the operator is not supported"]


def test_the_tables_say_what_is_not_supported(source: Path) -> None:
    done = inspecting(source, "--graph")
    assert done.exit_code == 0, done.output
    assert "graph: 4 nodes" in done.stdout
    assert "float32[batch, 4]" in done.stdout
    assert "float32 of any shape" in done.stdout
    (line,) = [one for one in done.stdout.splitlines() if "Strange" in one]
    assert line.endswith("the operator is not supported")


def test_other_formats_have_no_graph(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=np.ones(3, np.float32))
    done = inspecting(tmp_path / "w.npz", "--graph")
    assert done.exit_code == 2
    assert "--graph shows the graph of an ONNX file" in done.stderr
