"""A compilation of an ONNX model, planned: its graph imported, its initializers as the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from maxtool.architectures import Limit
from maxtool.artifact import original_onnx
from maxtool.artifact.check import GRAPHS, ONNXRUNTIME, PassedCheck, Reference, check
from maxtool.artifact.contents import Contents, NamedGraph, Read, used_target
from maxtool.artifact.module_build import declared_encodings, function_identity, matrix_dtype
from maxtool.artifact.module_check import trials_of
from maxtool.artifact.original_onnx import OriginalOnnx
from maxtool.artifact.planned import Planned, check_place, target_of
from maxtool.artifact.pure_graphs import pure_function
from maxtool.artifact.request import OnnxRequest
from maxtool.importers.onnx import ImportedGraph, OnnxModel, import_model, open_model
from maxtool.nn.weight_binding import bound_data
from maxtool.recipe.naming import check_name
from maxtool.weights.files_read import files_noted, named
from maxtool.weights.weight_data import WeightData

FORWARD = "forward"
MOST_METADATA = 1 << 16
"""Characters of the model's metadata that the manifest keeps."""


@dataclass
class OnnxBuild(Planned):
    """A compilation of an ONNX model that has been planned, and fits."""

    request: OnnxRequest
    imported: ImportedGraph

    def compare(self, folder: Path) -> PassedCheck:
        """Compare with the graph in float64, or with the model as onnxruntime runs it."""
        trials = trials_of(self.contents, self._reference())
        return check(folder, trials, here=self.target.host, observe=self.observe)

    def _reference(self) -> Reference:
        if self.request.against != ONNXRUNTIME:
            return GRAPHS
        names = self.imported.inputs, self.imported.outputs
        return Reference(
            ONNXRUNTIME,
            lambda contents: OriginalOnnx(
                self.request.source, contents, names, self.imported.fixed
            ),
        )


def prepare_onnx(request: OnnxRequest) -> OnnxBuild:
    """Plan a compilation of an ONNX model: everything that cannot be taken is told at once."""
    check_name(request.name)
    target = target_of(request)
    if request.check and request.against == ONNXRUNTIME:
        original_onnx.require()
    with files_noted() as read:
        model = open_model(request.source)
        check_place(request, model.checkpoint.protected)
        imported = import_model(
            model,
            shapes=request.shapes,
            fixed=request.fixed,
            on_bytes=target.kind == "cpu",
        )
    functions = (_function(imported),)
    encodings = declared_encodings(functions)
    contents = Contents(
        functions,
        used_target(target, encodings),
        _reading(model, imported),
        identity=function_identity(request.name or request.source.stem, _graph_name(model)),
        dtype=matrix_dtype(functions, encodings),
        encodings=encodings,
        facts={"onnx": _metadata(model)},
        limits=_limits(imported),
        sources=named(read, request.source),
        origin=request.origin,
    )
    notes = [*model.checkpoint.notes]
    build = OnnxBuild(request, contents, model.checkpoint, notes, imported)
    build.check_machine()
    return build


def _function(imported: ImportedGraph) -> NamedGraph:
    """The model's graph as a function; slashes in names become underscores."""
    inputs, outputs = (
        tuple(map(_file_name, names)) for names in (imported.inputs, imported.outputs)
    )
    graph = imported.graph
    return pure_function(FORWARD, graph.name, graph, inputs, outputs, may_be_empty=True)


def _file_name(name: str) -> str:
    return name.replace("/", "_").replace("\\", "_")


def _limits(imported: ImportedGraph) -> Mapping[str, Limit]:
    """Limits of sizes, and of the numbers of inputs whose names no size has."""
    values = {_file_name(name): limit for name, limit in imported.values.items()}
    names = {name for one in imported.graph.inputs for dim in one.shape for name in dim.names()}
    own = {name: limit for name, limit in values.items() if name not in names}
    return {**own, **imported.limits}


def _graph_name(model: OnnxModel) -> str:
    return str(model.graph.name)[:200] or "onnx"


def _reading(model: OnnxModel, imported: ImportedGraph) -> Read:
    """The values of the weights: initializers, and constants of many elements."""

    def read(name: str) -> WeightData:
        if name in model.checkpoint.tensors:
            return model.checkpoint.read(name)
        weight = imported.graph.weight(name)
        if weight is None:
            raise KeyError(name)
        return bound_data(name, weight)

    return read


def _metadata(model: OnnxModel) -> Mapping[str, object]:
    """Metadata of the model itself, if it is short."""
    entries = model.checkpoint.metadata.items()
    kept = {key: value for key, value in entries if isinstance(value, str | int)}
    size = sum(len(key) + len(str(value)) for key, value in kept.items())
    return kept if size <= MOST_METADATA else {}
