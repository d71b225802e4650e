"""Architectures of installed packages, with a recipe of theirs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool.architectures import build
from maxtool.cli.app import app
from maxtool.errors import ConfigurationError
from maxtool.runtime import loader

MODEL = '''
from maxtool.architectures import Entry
from maxtool.dtype import DType
from maxtool.graph import TensorType
from maxtool.nn import Linear, Module


class Classifier(Module):
    """A linear layer: no sequence, so no context."""

    context = None

    def __init__(self, config, dtype):
        self.config = config
        self.head = Linear(config["features"], config["classes"], dtype, has_bias=True)

    @property
    def facts(self):
        return {"classes": self.config["classes"]}

    @property
    def limits(self):
        return {"batch": 4}

    def forward(self, features):
        return self.head(features)

    def entries(self):
        kind = TensorType(DType.float32, ["batch", self.config["features"]])
        return (Entry("forward", self, {"features": kind}, ("scores",)),)


def build(config, dtype=DType.float32, context=None):
    return Classifier(config, dtype)
'''
RECIPE = """
schema = 2
name = "flowers"
architecture = "classifier"
[match.hf]
model_type = ["flowers"]
[config]
features = { type = "int", hf = "features", gguf = "{arch}.features" }
classes = { type = "int", hf = "classes", gguf = "{arch}.classes" }
[constants.gguf]
"general.architecture" = "flowers"
[weights.hf]
"head.weight" = "linear.weight"
"head.bias" = "linear.bias"
[entries]
forward = { features = ["batch", "features"] }
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def install(site: Path, package: str, code: str, points: str) -> None:
    """Install a package as pip would lay it out."""
    (site / package).mkdir()
    (site / package / "__init__.py").write_text("")
    (site / package / "model.py").write_text(code)
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


def checkpoint(folder: Path, rng: np.random.Generator) -> dict[str, np.ndarray]:
    from safetensors.numpy import save_file

    folder.mkdir()
    config = {"model_type": "flowers", "features": 5, "classes": 3}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        "linear.weight": rng.standard_normal((3, 5)).astype(np.float32),
        "linear.bias": rng.standard_normal(3).astype(np.float32),
    }
    save_file(tensors, folder / "model.safetensors")
    return tensors


def test_an_installed_architecture_compiles_and_runs(site: Path, tmp_path: Path) -> None:
    points = "[maxtool.architectures]\nclassifier = flowers.model:build\n"
    install(site, "flowers", MODEL, f"{points}[maxtool.recipes]\nflowers = flowers\n")
    (site / "flowers" / "flowers.toml").write_text(RECIPE)
    rng = np.random.default_rng(0)
    tensors = checkpoint(tmp_path / "checkpoint", rng)
    output = tmp_path / "artifact"
    result = CliRunner().invoke(app, ["compile", str(tmp_path / "checkpoint"), "-o", str(output)])
    assert result.exit_code == 0, result.stderr
    manifest = json.loads((output / "manifest.json").read_text())
    assert (manifest["architecture"], manifest["classes"]) == ("classifier", 3)
    assert (manifest["context"], manifest["limits"]) == (None, {"batch": 4})
    model, x = loader.load(output), rng.standard_normal((2, 5)).astype(np.float32)
    expected = x @ tensors["linear.weight"].T + tensors["linear.bias"]
    np.testing.assert_allclose(model(features=x)["scores"], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(loader.DoesNotFit, match="batch is 5"):
        model(features=np.zeros((5, 5), np.float32))
    shutil.rmtree(output)
    command = ["compile", str(tmp_path / "checkpoint"), "-o", str(output), "--context", "8"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "--context is for models of sequences" in refused.stderr
    sys.modules.pop("flowers.model")


def test_maxtools_own_come_first(site: Path) -> None:
    lies = "[maxtool.architectures]\ndecoder = liar.model:build\n"
    install(site, "liar", "raise RuntimeError('imported')", lies)
    with pytest.raises(ConfigurationError, match="the model's configuration does not work"):
        build("decoder", {})


def test_of_two_packages_the_first_name_wins(site: Path) -> None:
    for package in ("zinc", "gold"):
        code = f"def build(config, dtype, context):\n    return {package!r}\n"
        install(site, package, code, f"[maxtool.architectures]\nmetal = {package}.model:build\n")
    assert build("metal", {}) == "gold"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("", "AttributeError"),
        ("build = 3", "it is not a function"),
    ],
)
def test_a_package_that_does_not_work_is_named(site: Path, code: str, reason: str) -> None:
    package = f"broken{len(code)}"
    install(site, package, code, f"[maxtool.architectures]\nrusty = {package}.model:build\n")
    with pytest.raises(ConfigurationError, match=f"'rusty' of {package}.*{reason}") as error:
        build("rusty", {})
    assert error.value.hint == f"mend or uninstall {package}"


def test_an_architecture_that_is_not_there_names_installed_ones(site: Path) -> None:
    install(site, "tin", "", "[maxtool.architectures]\ntinny = tin.model:build\n")
    with pytest.raises(ConfigurationError, match=r"no architecture 'tiny'.*decoder.*, tinny"):
        build("tiny", {})
