"""Artifacts for several devices: parts of the host run them together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import artifact
from maxtool.errors import ConfigurationError, UsageError
from maxtool.graph import ShardingStrategy
from maxtool.recipe import find_recipe, plan
from maxtool.runtime import loader
from maxtool.runtime.loader.split import SplitExecution
from maxtool.weights import open_checkpoint
from tests.compiler.unpacking import unpacked

DATA = Path(__file__).resolve().parents[1] / "data"
IDS = [[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]]


def compiled(source: str, folder: Path, devices: int, **options: Any) -> Path:
    output = folder / f"{source}-{devices}"
    request = artifact.Request(DATA / source, output, devices=devices, **options)
    artifact.make(artifact.prepare(request))
    return output


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model for one device and for two."""
    folder = tmp_path_factory.mktemp("devices")
    return compiled("tiny-llama", folder, 1), compiled("tiny-llama", folder, 2)


def test_two_devices_compute_what_one_does(both: tuple[Path, Path]) -> None:
    left, right = map(loader.load, both)
    assert isinstance(right._execution, SplitExecution)
    expected = left.run("forward", {"input_ids": IDS})["logits"]
    for _ in range(2):
        result = right.run("forward", {"input_ids": IDS})["logits"]
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    assert list(left.generate([5, 6, 7], 20)) == list(right.generate([5, 6, 7], 20))


def test_each_file_has_its_part_of_every_weight(both: tuple[Path, Path]) -> None:
    whole, split = (loader.Manifest(folder) for folder in both)
    assert (split.devices, [file.name for file in split.weights_files]) == (
        2,
        ["weights.0.bin", "weights.1.bin"],
    )
    stored = [path.read_bytes() for path in split.weights_files]
    assert sum(map(len, stored)) < 1.3 * whole.weights_file.stat().st_size
    checkpoint = open_checkpoint(DATA / "tiny-llama")
    planned = plan(find_recipe(checkpoint), checkpoint)
    for name, axis in {"attn.q": 0, "attn.o": 1, "mlp.up": 0, "mlp.down": 1}.items():
        weight = planned.read(f"layers.1.{name}.weight").data
        parts = np.split(weight, 2, axis)
        for raw, part in zip(stored, parts, strict=True):
            result = unpacked(matrix(split, raw, f"layers.1.{name}.weight"), len(part))
            np.testing.assert_array_equal(result, part)
    for raw in stored:
        everywhere = matrix(split, raw, "norm.weight")
        np.testing.assert_array_equal(everywhere, planned.read("norm.weight").data)


def matrix(manifest: loader.Manifest, raw: bytes, name: str) -> np.ndarray:
    """A weight as it is stored in the file of one device."""
    spec = next(spec for spec in manifest.weights if spec.name == name)
    array = np.frombuffer(raw, np.float32, spec.nbytes() // 4, spec.offset)
    return array.reshape(spec.sizes({}))


def test_a_state_lies_on_every_device(both: tuple[Path, Path]) -> None:
    two = loader.load(both[1])
    state = two.new_state(batch=1)
    inputs = {"input_ids": [IDS[0]], "position": np.zeros(1, np.int32)}
    two.run("prefill", inputs, state)
    half = len(state.arrays) // 2
    keys = state.arrays[0], state.arrays[half]
    assert keys[0].any() and not np.array_equal(*keys)
    with pytest.raises(loader.DoesNotFit, match="another model"):
        two.run("prefill", inputs, loader.load(both[0]).new_state(batch=1))


def test_the_command_line_runs_it(both: tuple[Path, Path]) -> None:
    command = [sys.executable, str(both[1] / "run.py"), "--ids", "1,2,3", "--max-tokens", "4"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    one = loader.load(both[0])
    assert json.loads(done.stdout)["ids"] == list(one.generate([1, 2, 3], 4))


def test_an_error_on_one_device_ends_the_call_on_all(
    both: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = loader.load(both[1])
    assert isinstance(two._execution, SplitExecution)
    broken: Any = two._execution._members[1]
    call = broken.call

    def fail(*_: Any) -> Any:
        raise loader.DoesNotFit("the second device is broken")

    monkeypatch.setattr(broken, "call", fail)
    with pytest.raises(loader.RunError, match="the second device is broken"):
        two.run("forward", {"input_ids": IDS})
    monkeypatch.setattr(broken, "call", call)
    assert two.run("forward", {"input_ids": IDS})["logits"].shape == (2, 6, 97)


def test_a_part_does_not_run_alone(both: tuple[Path, Path]) -> None:
    two = loader.load(both[1])
    assert isinstance(two._execution, SplitExecution)
    with pytest.raises(loader.RunError, match="one part of a model on several devices"):
        two._execution._members[0].call("forward", {"input_ids": np.array(IDS)}, [])


@pytest.mark.parametrize(("device", "kind"), [("cuda", "DoesNotFit"), ("cpu:1", "BadUsage")])
def test_other_devices(both: tuple[Path, Path], device: str, kind: str) -> None:
    with pytest.raises(getattr(loader, kind)):
        loader.load(both[1], device=device)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"devices": 3}, "for 3 devices"),
        ({"devices": "2"}, "'devices' is missing or wrong"),
        ({"weights": {"files": ["weights.0.bin", 7], "tensors": []}}, "for 2 devices"),
        ({"weights": {"files": ["weights.0.bin", "../x"], "tensors": []}}, "'../x'"),
        ({"weights": {"file": "weights.0.bin", "tensors": []}}, "'files' is missing"),
    ],
)
def test_manifests_that_contradict_themselves(
    both: tuple[Path, Path], tmp_path: Path, damage: dict[str, Any], message: str
) -> None:
    for file in both[1].iterdir():
        (tmp_path / file.name).symlink_to(file)
    described = json.loads((both[1] / "manifest.json").read_text())
    (tmp_path / "manifest.json").unlink()
    for name in ("model.so", "weights.0.bin", "weights.1.bin", "tokenizer.json"):
        (tmp_path / name).unlink()
        (tmp_path / name).write_bytes((both[1] / name).read_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(described | damage))
    with pytest.raises(loader.BadInput, match=message):
        loader.load(tmp_path)


def test_what_cannot_be_split(tmp_path: Path) -> None:
    cases: list[tuple[str, int, type[Exception], str]] = [
        ("tiny-llama", 0, UsageError, "not from 1 to 64"),
        ("tiny-bert", 2, UsageError, "for decoders"),
        ("tiny-gpt2", 2, ConfigurationError, "over 2 devices"),
    ]
    for source, count, kind, message in cases:
        with pytest.raises(kind, match=message):
            artifact.prepare(artifact.Request(DATA / source, tmp_path / "x", devices=count))


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["tiny-mixtral", "tiny-gemma2", "tiny-falcon-rw", "tiny-phi3", "tiny-qwen3-moe"]
)
def test_other_families(source: str, tmp_path: Path) -> None:
    """Checked against the float64 reference: experts, biases, a single head of keys, norms."""
    compiled(source, tmp_path, 2, check=True)


def test_a_strategy_by_layers_is_one_of_strategies() -> None:
    strategy = ShardingStrategy.tensor_parallel(2)
    assert strategy.is_tensor_parallel and strategy.is_replicate
    assert not ShardingStrategy.rowwise(2).is_tensor_parallel
