"""``inspect-weights --graph``: the graph of an ONNX model, as tables and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from maxtool.cli import units
from maxtool.cli.output import Output
from maxtool.cli.tables import draw_names
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from maxtool.importers.onnx.description import GraphDescription
    from maxtool.weights.opened_checkpoint import OpenedCheckpoint

OPERATOR_COLUMNS = [("operator", "left"), ("opset", "right"), ("nodes", "right"), ("", "left")]


def described(opened: OpenedCheckpoint) -> GraphDescription:
    """The graph of an ONNX model on this machine."""
    checkpoint = opened.checkpoint
    if checkpoint.format != "onnx" or opened.remote is not None:
        where = "of an ONNX file on this machine"
        raise UsageError(f"--graph shows the graph {where}", file=opened.location)
    from maxtool.importers.onnx import open_model
    from maxtool.importers.onnx.description import describe

    return describe(open_model(Path(checkpoint.path)))


def show(out: Output, graph: GraphDescription) -> None:
    """Inputs, outputs, and the operators with what is not supported."""
    out.gap()
    out.say(f"graph: {units.plural(graph.nodes, 'node')}")
    for title, types in (("input", graph.inputs), ("output", graph.outputs)):
        cells = ((name, out.escape(text)) for name, text in types.items())
        draw_names(out, [(title, "left"), ("type", "left")], cells)
    rows = (
        (one.name, str(one.opset), f"{one.count:,}", out.escape(one.problem))
        for one in graph.operators
    )
    draw_names(out, OPERATOR_COLUMNS, rows)


def as_json(graph: GraphDescription) -> dict[str, object]:
    """The graph as the report has it."""
    return {"nodes": graph.nodes, **asdict(graph)}
