"""The examples of the document on layers, each with the results it states."""

# The code is kept as the document prints it, so that the two can be compared.
# ruff: noqa: ANN001, ANN202, T201
# fmt: off

from __future__ import annotations

import pytest

from maxtool import nn
from maxtool.dtype import DType
from maxtool.graph import DeviceRef, Graph, TensorType
from tests.api.examples import example


# The page's text has the example twice.
@example("layer", 121, 128)
@example("layer", 129, 136)
def test_add_layer_hook(capsys: pytest.CaptureFixture[str]) -> None:
    from maxtool.nn.layer import add_layer_hook, clear_hooks

    def print_info(layer, args, kwargs, outputs):
        print("Layer:", type(layer).__name__)
        print("Input args:", args)
        print("Input kwargs:", kwargs)
        print("Outputs:", outputs)
        return outputs

    add_layer_hook(print_info)

    model = nn.Linear(4, 3, DType.float32, DeviceRef.CPU())
    kind = TensorType(DType.float32, ["rows", 4], DeviceRef.CPU())
    try:
        Graph("hooked", model, input_types=[kind])
    finally:
        clear_hooks()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Layer: Linear"
    assert lines[1].startswith("Input args: (")
    assert lines[2] == "Input kwargs: {}"
    assert lines[3].startswith("Outputs: ")
    # "limited information (like shape and dtype)"
    assert "rows" in lines[3]
    assert "float32" in lines[3]
    Graph("plain", model, input_types=[kind])
    assert not capsys.readouterr().out
