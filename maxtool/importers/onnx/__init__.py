"""ONNX models as graphs: a function for each operator, in a table by domain, name and opset."""

from maxtool.importers.onnx.importing import ImportedGraph, import_model
from maxtool.importers.onnx.structure import OnnxModel, open_model

__all__ = ["ImportedGraph", "OnnxModel", "import_model", "open_model"]
