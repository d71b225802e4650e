"""Files of an artifact, and the requirements to run it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.architectures import graph_of
from maxtool.cli.app import app
from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.runtime import loader
from tests.artifact.measure import BOUND, Compile, bound, error, recorded

LOADER = {f"loader/{file.name}" for file in Path(loader.__file__).parent.glob("*.py")}
FILES = {"manifest.json", "model.so", "weights.bin", "run.py", "tokenizer.json", *LOADER}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_and_checksums(compiled: Compile, data: Path) -> None:
    source = data / "tiny-llama"
    folder = compiled(source)
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert files == FILES
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["files"]) == FILES - {"manifest.json"}
    for name, facts in manifest["files"].items():
        assert facts == {"bytes": (folder / name).stat().st_size, "sha256": digest(folder / name)}
    sources = manifest["build"]["sources"]
    there = {each.name for each in source.iterdir()}
    assert {"config.json", "model.safetensors"} < {*sources} <= there
    for name, facts in sources.items():
        assert facts["sha256"] == digest(source / name)
    assert set(manifest["entries"]) == {"forward", "prefill", "decode"}
    assert all(one["offset"] % 64 == 0 for one in manifest["weights"]["tensors"])


@pytest.mark.long
def test_its_name_is_its_own_or_asked_for(compiled: Compile, data: Path) -> None:
    def name(folder: Path) -> str:
        return str(json.loads((folder / "manifest.json").read_text())["name"])

    assert name(compiled(data / "tiny-llama")) == "llama 43K"
    assert name(compiled(data / "tiny-llama", name="A Small One")) == "A Small One"


@pytest.mark.long
def test_check_is_recorded(compiled: Compile, data: Path) -> None:
    def status(folder: Path) -> dict[str, object]:
        return dict(json.loads((folder / "manifest.json").read_text())["check"])

    assert status(compiled(data / "tiny-llama")) == {"status": "not checked"}
    checked = status(compiled(data / "tiny-llama", check=True))
    assert checked["status"] == "passed"
    assert isinstance(checked["relative_error"], float)
    assert 0 < checked["relative_error"] < BOUND


@pytest.mark.long
def test_context_is_the_size_of_the_cache(compiled: Compile, data: Path) -> None:
    folder = compiled(data / "tiny-llama", context=16)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["context"] == 16
    assert {16} == {size for one in manifest["state"] for size in one["shape"][2:] if size != 12}
    command = [sys.executable, str(folder / "run.py"), "--ids", ",".join(["1"] * 17)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 4
    assert "Traceback" not in refused.stderr


def test_dynamic_scaling_reaches_beyond_the_trained_context(data: Path, tmp_path: Path) -> None:
    """Trained for 16 positions, with a factor of 4."""

    def context(asked: int | None) -> int | None:
        request = artifact.Request(data / "tiny-dynamic", tmp_path / "model", context=asked)
        return artifact.prepare(request).module.context

    assert (context(None), context(48), context(3)) == (64, 48, 3)
    with pytest.raises(
        UsageError,
        match=r"--context 65 is not from 1 to 64: .* for 16 positions, .* stretches to 64",
    ):
        context(65)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-nomic-bert"])
def test_a_long_context_is_cut_where_none_is_asked_for(
    data: Path, tmp_path: Path, name: str
) -> None:
    folder = shutil.copytree(data / name, tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    key = "max_position_embeddings" if name == "tiny-llama" else "max_trained_positions"
    (folder / "config.json").write_text(json.dumps({**config, key: 10**8}))

    def prepared(asked: int | None) -> artifact.Build:
        return artifact.prepare(artifact.Request(folder, tmp_path / "model", context=asked))

    usual, more = prepared(None), prepared(200_000)
    assert (usual.module.context, more.module.context) == (131_072, 200_000)
    assert usual.weight_bytes < 60 << 20
    cut = "room for 131072 of the model's 100000000 positions: --context N makes room for more"
    assert (cut in usual.notes, cut in more.notes) == (True, False)


@pytest.mark.long
def test_generation_reads_anew_where_longrope_takes_other_factors(
    compiled: Compile, data: Path
) -> None:
    """Generate as transformers' own ``generate``: each token follows from the text as a whole."""
    model = loader.load(compiled(data / "tiny-phi3-longrope"))
    assert model.manifest.reread_beyond == 16
    text = list(range(3, 13))
    for _ in range(12):
        text.append(int(model(input_ids=[text])["logits"][0, -1].argmax()))
    assert list(model.generate(text[:10], max_tokens=12)) == text[10:]


@pytest.mark.long
def test_same_bytes_again(compiled: Compile, data: Path, tmp_path: Path) -> None:
    first = compiled(data / "tiny-llama")
    output = tmp_path / "again"
    result = CliRunner().invoke(app, ["compile", str(data / "tiny-llama"), "-o", str(output)])
    assert result.exit_code == 0
    for name in FILES - {"model.so", "manifest.json"}:
        assert (first / name).read_bytes() == (output / name).read_bytes()


def test_arrays_named_as_huggingface_names_them(
    compiled: Compile, data: Path, tmp_path: Path
) -> None:
    folder = compiled(data / "tiny-llama")
    output = tmp_path / "y.npz"
    command = [sys.executable, str(folder / "run.py"), "--output", str(output)]
    command += ["--inputs", str(data / "tiny-llama" / "expected.npz")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "greedy_tokens" in shown.stderr
    expected = recorded(data / "tiny-llama")
    with np.load(output) as arrays:
        assert error(arrays["logits"], expected["logits"]) <= BOUND


BLOCKED = """
import runpy, sys


class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tvm", "maxtool"):
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Refused())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.long
def test_standalone_needs_no_compiler(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "alone"
    source = str(data / "tiny-llama")
    result = CliRunner().invoke(app, ["compile", source, "-o", str(folder), "--standalone"])
    assert result.exit_code == 0, result.stderr
    libraries = list((folder / "lib").iterdir())
    assert len(libraries) == 1
    command = [sys.executable, "-c", BLOCKED, str(folder / "run.py"), "--ids", "1,2,3"]
    environment = os.environ | {"PYTHONPATH": ""}
    command += ["--max-tokens", "4", "--json"]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert shown.returncode == 0, shown.stderr
    assert len(json.loads(shown.stdout)["ids"]) <= 4


@pytest.mark.long
def test_one_process_may_load_what_was_replaced(
    compiled: Compile, data: Path, tmp_path: Path
) -> None:
    """The system's linker takes a library it has loaded from the same path for the same library."""
    folder, kept = tmp_path / "model", []
    for name in ("tiny-llama", "tiny-mistral", "tiny-llama-tied"):
        if folder.exists():
            folder.rename(tmp_path / f"before {name}")
        shutil.copytree(compiled(data / name, kv_dtype=DType.float32), folder)
        expected = recorded(data / name)
        kept.append(loader.load(folder))
        actual = kept[-1](input_ids=expected["input_ids"])["logits"]
        assert error(actual, expected["logits"]) <= bound(data / name)


@pytest.mark.long
def test_two_standalone_models_in_one_process(compiled: Compile, data: Path) -> None:
    """The second brings a runtime library of its own, which must not be loaded as well."""
    folders = [compiled(data / name, standalone=True) for name in ("tiny-llama", "tiny-mistral")]
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(folders[0])!r})\n"
        "import run\n"
        f"for folder in {list(map(str, folders))}:\n"
        "    print(run.load(folder)(input_ids=[[1, 2]])['logits'].shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "(1, 2, 97)\n" * 2), done.stderr


def test_changed_weights_are_refused(compiled: Compile, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(compiled(data / "tiny-llama"), folder)
    weights = bytearray((folder / "weights.bin").read_bytes())
    weights[1000] ^= 1
    (folder / "weights.bin").write_bytes(weights)
    command = [sys.executable, str(folder / "run.py"), "--ids", "1,2,3", "--max-tokens", "1"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "weights.bin" in refused.stderr
    allowed = subprocess.run([*command, "--no-verify"], capture_output=True, check=False)
    assert allowed.returncode == 0


@pytest.mark.parametrize("layers", [2, 6])
def test_equal_layers_are_compiled_once(data: Path, layers: int) -> None:
    from maxtool import architectures

    config = json.loads((data / "tiny-llama" / "config.json").read_text())
    values = {
        "vocab_size": config["vocab_size"],
        "hidden_size": 48,
        "intermediate_size": 100,
        "n_layers": layers,
        "n_heads": 4,
        "n_kv_heads": 2,
        "head_dim": 12,
        "norm_eps": 1e-5,
        "rope_theta": 1e4,
        "context_length": 64,
    }
    module = architectures.build("decoder", values)
    for entry in module.entries():
        graph = graph_of(module, entry)
        assert len(graph.subgraphs) == 1
        assert len(graph.weight_values) == 2 + 1 + 2 + 9 * layers


def test_why_a_context_is_no_longer(data: Path, tmp_path: Path) -> None:
    asked = artifact.Request(data / "tiny-llama", tmp_path / "model", context=65)
    with pytest.raises(UsageError, match=r"the model was trained for 64 positions \(file") as told:
        artifact.prepare(asked)
    assert told.value.file == str(data / "tiny-llama" / "config.json")
    assert told.value.hint is not None
