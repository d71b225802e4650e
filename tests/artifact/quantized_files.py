"""Quantized files of the sample model, and what is planned to be made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from maxtool import artifact
from maxtool.cli.app import app
from maxtool.quantization import QuantizationEncoding

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "fireside"


def sample_gguf(folder: Path, encoding: QuantizationEncoding) -> Path:
    """The sample model as a GGUF file in that encoding."""
    output = folder / f"{encoding.name}.gguf"
    command = ["convert", str(SAMPLE), "-o", str(output), "--quantize", encoding.name, "--pure"]
    done = CliRunner().invoke(app, [*command, "--force"])
    assert done.exit_code == 0, done.output
    return output


def planned(source: Path, output: Path, **options: Any) -> artifact.Build:
    """A compilation, planned and not run."""
    return artifact.prepare(artifact.Request(source, output, **options))
