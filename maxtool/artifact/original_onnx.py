"""The original ONNX model, run by onnxruntime: a reading of the file that is not ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from maxtool.artifact.check import CallRefused
from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.onnxruntime_process import OnnxruntimeProcess, Refusal
from maxtool.errors import ConfigurationError, MachineLacks

Array: TypeAlias = np.ndarray[Any, Any]

ONNXRUNTIME = "onnxruntime"
INSTALL = "pip install 'maxtool[onnxruntime]'"


def require() -> None:
    """Require that onnxruntime is here, before any work is done."""
    if find_spec(ONNXRUNTIME) is None:
        what = "--check onnxruntime needs onnxruntime, which this Python lacks"
        raise MachineLacks(what, hint=INSTALL)


class OriginalOnnx:
    """The function of an artifact of an ONNX model, computed by onnxruntime on the CPU."""

    def __init__(
        self,
        file: Path,
        contents: Contents,
        names: tuple[Sequence[str], Sequence[str]],
        fixed: Mapping[str, Array],
    ) -> None:
        """``names`` are those of inputs and outputs in the model, in the function's order."""
        (self._function,) = contents.functions
        self._file, self._fixed = file, fixed
        self._inputs, self._outputs = names
        try:
            self._process = OnnxruntimeProcess(file)
        except Refusal as error:
            what = f"onnxruntime cannot run this model: {error!s:.300}"
            raise ConfigurationError(what, file=file, hint="try --check graph") from error

    def entry(self, name: str) -> NamedGraph:  # noqa: ARG002 - there is one
        """The function."""
        return self._function

    def new_state(self, **_sizes: int) -> dict[str, Any]:
        """The state of a text, of which a model has none."""
        return {}

    def run(
        self,
        name: str,  # noqa: ARG002 - there is one
        inputs: Mapping[str, Array],
        state: object = None,  # noqa: ARG002 - there is none
    ) -> dict[str, Array]:
        """The outputs by their names in the artifact."""
        given = (inputs[own] for own in self._function.inputs)
        feed = {**self._fixed, **dict(zip(self._inputs, given, strict=True))}
        try:
            results = self._process.run(self._outputs, feed)
        except Refusal as error:
            what = f"onnxruntime cannot run this model on what --check gives it: {error!s:.300}"
            hint = "--shape NAME=SIZES says sizes that fit; or try --check graph"
            raise CallRefused(what, file=self._file, hint=hint) from error
        return dict(zip(self._function.outputs, results, strict=True))
