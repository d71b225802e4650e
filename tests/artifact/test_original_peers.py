"""``--check transformers``: compiled models beside the original ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.cli.app import app
from maxtool.errors import ConfigurationError, ParityFailed
from tests.parity.peers import torch

__all__ = ["torch"]  # the fixture

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("torch")]

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    *("llama3", "gemma2", "gemma3", "gpt-neox", "gpt2", "falcon", "olmo2", "starcoder2", "yarn"),
    *("phi3-longrope", "dynamic", "mixtral", "qwen3-moe", "bert", "roberta", "distilbert"),
)


def checked(source: Path, output: Path, **options: object) -> dict[str, object]:
    """Return the manifest's record of a comparison with the original model."""
    request = artifact.Request(source, output, check=True, against="transformers", **options)  # type: ignore[arg-type]
    artifact.make(artifact.prepare(request))
    result: dict[str, object] = json.loads((output / "manifest.json").read_text())["check"]
    return result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_models_of_each_kind(data: Path, tmp_path: Path, name: str) -> None:
    result = checked(data / f"tiny-{name}", tmp_path / "out")
    assert (result["status"], result["against"]) == ("passed", "transformers")


@pytest.mark.filterwarnings("ignore")
def test_a_window_of_one_token(data: Path, tmp_path: Path) -> None:
    """Transformers' own cache keeps all that it should forget then."""
    source = shutil.copytree(data / "tiny-mistral", tmp_path / "source")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"sliding_window": 1}))
    assert checked(source, tmp_path / "out")["status"] == "passed"


@pytest.mark.filterwarnings("ignore")
def test_a_recipe_that_reads_something_else_is_found_out(data: Path, tmp_path: Path) -> None:
    """The graph says the same as the recipe, and passes; the original model does not."""
    recipe = tmp_path / "wrong.toml"
    recipe.write_text(
        'schema = 2\nname = "wrong"\nextends = "llama"\n'
        '[config]\nnorm_eps = { type = "float", hf = "mine", default = 0.5 }\n'
    )
    options = {"recipe": str(recipe), "ignore": frozenset({"rms_norm_eps"})}
    output = tmp_path / "out"
    artifact.make(
        artifact.prepare(artifact.Request(data / "tiny-llama", output, check=True, **options))  # type: ignore[arg-type]
    )
    with pytest.raises(ParityFailed, match="the original model in transformers"):
        checked(data / "tiny-llama", tmp_path / "other", **options)


@pytest.mark.filterwarnings("ignore")
def test_a_recipe_that_exchanges_tensors_is_found_out(data: Path, tmp_path: Path) -> None:
    """Two tensors of one shape, of which the graph cannot know which is which."""
    text = (ROOT / "recipes" / "bert.toml").read_text()
    query, key = "attention.self.query.", "attention.self.key."
    text = text.replace(query, "@").replace(key, query).replace("@", key)
    (tmp_path / "wrong.toml").write_text(text)
    command = ["compile", str(data / "tiny-bert"), "-o", str(tmp_path / "out")]
    command += ["--recipe", str(tmp_path / "wrong.toml"), "--check", "transformers"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    for name in ("forward, last_hidden_state", "forward, pooler_output", "embed, embeddings"):
        assert f"- {name}: relative error" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore")
def test_what_transformers_does_not_know_is_refused_before_it_is_compiled(
    data: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(data / "tiny-llama", source)
    config = json.loads((source / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}
    (source / "config.json").write_text(json.dumps(config))
    (source / "mine.py").write_text("raise SystemExit('a stranger was run')")
    request = artifact.Request(
        source,
        tmp_path / "out",
        recipe="llama",
        check=True,
        against="transformers",
        ignore=frozenset({"auto_map"}),
    )
    with pytest.raises(ConfigurationError, match="transformers cannot read this checkpoint"):
        artifact.prepare(request)
