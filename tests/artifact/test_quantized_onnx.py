"""Artifacts of quantized ONNX models, checked within what steps change in each of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from maxtool.cli.app import app
from tests.importers.models import model, saved, value
from tests.importers.quantized_models import quantized


def test_bytes_that_a_model_gives_may_be_a_step_off(tmp_path: Path) -> None:
    """A tenth of all sums lies so near a threshold that float32 may pass it."""
    node, random = helper.make_node, np.random.default_rng(0)
    constants = {
        "scale": np.float32(0.1),
        "zero": np.uint8(128),
        "w": random.integers(-1, 2, (64, 64)).astype(np.int8),
        "w_scale": np.float32(1),
        "w_zero": np.int8(0),
        "to": np.float32(1),
    }
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wd"]),
        node("MatMul", ["d", "wd"], ["m"]),
        node("QuantizeLinear", ["m", "to", "zero"], ["y"]),
    ]
    values = {name: np.asarray(each) for name, each in constants.items()}
    proto = model(nodes, [value("x", [40, 64])], ["y"], values)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    source, folder = saved(proto, tmp_path), tmp_path / "artifact"
    result = CliRunner().invoke(app, ["compile", str(source), "-o", str(folder), "--check"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("signed", [False, True])
def test_a_quantized_network_is_checked(tmp_path: Path, signed: bool) -> None:
    pytest.importorskip("onnxruntime")
    proto = quantized(tmp_path, signed=signed, per_channel=True, operators=False)
    source, folder = saved(proto, tmp_path), tmp_path / "artifact"
    result = CliRunner().invoke(app, ["compile", str(source), "-o", str(folder), "--check"])
    assert result.exit_code == 0, result.output
    assert "checked with" in result.output
