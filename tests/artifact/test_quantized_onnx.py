"""Artifacts of quantized ONNX models, checked within what steps change in each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from maxtool.cli.app import app
from tests.importers.models import saved
from tests.importers.quantized_models import quantized


@pytest.mark.parametrize("signed", [False, True])
def test_a_quantized_network_is_checked(tmp_path: Path, signed: bool) -> None:
    pytest.importorskip("onnxruntime")
    proto = quantized(tmp_path, signed=signed, per_channel=True, operators=False)
    source, folder = saved(proto, tmp_path), tmp_path / "artifact"
    result = CliRunner().invoke(app, ["compile", str(source), "-o", str(folder), "--check"])
    assert result.exit_code == 0, result.output
    assert "checked with" in result.output
