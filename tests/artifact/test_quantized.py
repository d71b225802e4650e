"""Quantized matrices from the file to the kernel: sizes, and what is computed with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.artifact import manifest
from maxtool.artifact.graph_outputs import GraphRunner
from maxtool.artifact.weights import type_bytes
from maxtool.cli.app import app
from maxtool.compiler.quantized_layout import COLUMNS, LAYOUTS
from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.errors import UsageError
from maxtool.graph import Graph, Tensor, TensorType, Weight, ops
from maxtool.nn import Linear
from maxtool.parity.activation_rounding import rounded
from maxtool.parity.definitions import DEFINITIONS
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.quantization.scheme import Scheme
from maxtool.runtime import loader
from maxtool.runtime.loader import specs
from maxtool.runtime.loader.errors import BadInput
from maxtool.runtime.loader.manifest import CHECKSUM
from maxtool.weights import WeightData, open_checkpoint
from tests.artifact.measure import error
from tests.artifact.quantized_files import SAMPLE, planned, sample_gguf
from tests.artifact.random_checkpoint import random_checkpoint
from tests.schemes import pure

Array = np.ndarray[Any, Any]
Made: TypeAlias = tuple[artifact.Build, artifact.Report]
E = QuantizationEncoding


@pytest.fixture(scope="module", params=[E.Q8_0, E.Q4_0], ids=lambda one: one.name)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Made]:
    """An artifact of a quantized file, with its check."""
    folder = tmp_path_factory.mktemp("quantized")
    build = planned(sample_gguf(folder, request.param), folder / "out", check=True)
    return build, artifact.make(build)


def test_the_loader_knows_the_records_of_the_compiler() -> None:
    assert specs.COLUMNS == COLUMNS
    expected = {each.encoding.name: (each.span, each.nbytes) for each in LAYOUTS.values()}
    assert expected == specs.RECORDS


def test_an_artifact_is_as_large_as_its_file(
    made: Made,
) -> None:
    build, _ = made
    source = build.request.source
    weights = build.request.output / "weights.bin"
    assert weights.stat().st_size <= 1.05 * source.stat().st_size
    infos = open_checkpoint(source).tensors.values()
    blocks = sum(info.nbytes for info in infos if info.encoding is not None)
    ((name, nbytes),) = type_bytes(build.contents).items()
    assert (name, nbytes) == (source.stem, blocks)  # rows of 96, 256 and 1024: nothing is filled up


def test_every_block_is_that_of_the_file(made: Made) -> None:
    build, _ = made
    ours, theirs = open_checkpoint(build.request.output), build.plan
    for name, binding in theirs.parameters.items():
        actual, expected = ours.read(name), theirs.read(name)
        assert actual.quantization_encoding is binding.encoding
        assert actual.shape == expected.shape
        np.testing.assert_array_equal(actual.data, expected.data)


def test_the_error_allowed_is_neither_exceeded_nor_far_from_it(
    made: Made,
) -> None:
    """Check the bound: it follows from the rounding of activations, which the artifact does too."""
    _, report = made
    assert report.check is not None
    for trial in report.check.trials.each:
        assert trial.tolerance.rtol < 0.1
    worst = report.check.worst
    assert worst is not None
    assert 0.15 * worst.rtol < worst.relative_error < 0.9 * worst.rtol


def test_the_check_tells_four_bits_from_eight(made: Made, tmp_path: Path) -> None:
    """Another quantization of the same weights, a small mistake, is further off than allowed."""
    build, report = made
    other = E.Q4_0 if build.request.source.stem == "Q8_0" else E.Q8_0
    assert report.check is not None
    model = loader.load(build.request.output)
    graphs = planned(sample_gguf(tmp_path, other), tmp_path / "out")
    runner = GraphRunner(graphs.contents)
    trial = next(each for each in report.check.trials.each if each.name.startswith("forward"))
    assert error(trial.run(model), trial.run(runner)) > trial.tolerance.rtol


def test_the_text_is_as_likely(made: Made) -> None:
    """The sample's own story, by the artifact and by the decoded weights in float64."""
    build, _ = made
    model = loader.load(build.request.output)
    ids = np.array([model.encode((SAMPLE / "greedy.txt").read_text())[:64]])
    losses = [
        loss(runner.run("forward", {"input_ids": ids})["logits"], ids)
        for runner in (model, GraphRunner(build.contents))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def loss(logits: Array, ids: Array) -> float:
    """The mean negative logarithm of the probability of each token after those before it."""
    wide = logits[0, :-1].astype(np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    chances = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return float(-chances[np.arange(ids.shape[1] - 1), ids[0, 1:]].mean())


def test_tied_heads_are_stored_once(made: Made) -> None:
    build, _ = made
    weights = loader.Manifest(build.request.output).weights
    (table,) = [spec for spec in weights if spec.logical[0] == 1024]
    assert (table.name, table.encoding) == ("embed.weight", build.request.source.stem)


CONTRADICTIONS: dict[str, dict[str, object]] = {
    "more rows than blocks": {"unpacked": [1025, 96]},
    "fewer rows than blocks": {"unpacked": [1008, 96]},
    "longer rows": {"unpacked": [1024, 128]},
    "rows of parts of blocks": {"unpacked": [1024, 97]},
    "no shape": {"unpacked": None},
    "another dimension": {"unpacked": [1, 1024, 96]},
    "another encoding": {"encoding": "Q5_0"},
    "an encoding without kernels": {"encoding": "TQ1_0"},
    "no name": {"encoding": 8},
    "no encoding": {"encoding": None},
    "other elements": {"dtype": "int8"},
}


@pytest.mark.parametrize("change", CONTRADICTIONS)
def test_a_manifest_that_contradicts_its_blocks_is_refused(
    made: Made, tmp_path: Path, change: str
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(made[0].request.output, folder)
    content = json.loads((folder / "manifest.json").read_text())
    (entry,) = [one for one in content["weights"]["tensors"] if one["name"] == "embed.weight"]
    entry |= CONTRADICTIONS[change]
    content.pop(CHECKSUM)
    manifest.save(folder, content)
    with pytest.raises(BadInput):
        loader.Manifest(folder)


# Sizes that fill nothing, experts, several devices, modules.

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
SMALL = {"hidden_size": 64, "intermediate_size": 128, **HEADS}


def test_tables_of_many_positions_are_told(tmp_path: Path) -> None:
    """Angles of 65,536 positions are as large as some quantized model; those of 512 are not."""
    source = random_checkpoint(
        tmp_path / "source", "tiny-llama", **SMALL, max_position_embeddings=1 << 16
    )
    told, quiet = (
        [note for note in build.notes if "tables by position" in note]
        for context in (None, 512)
        for build in [planned(source, tmp_path / "out", quantize=pure(E.Q8_0), context=context)]
    )
    (note,) = told
    assert "take 4.0 MiB beside " in note
    assert "--context N" in note
    assert not quiet


@pytest.mark.long
def test_rows_that_fill_the_last_record_are_told_and_read_right(tmp_path: Path) -> None:
    """A vocabulary of 65 takes 80 rows, and what bounds ids is 65."""
    sizes = SMALL | {"vocab_size": 65, "intermediate_size": 64, "num_hidden_layers": 1}
    source = random_checkpoint(tmp_path / "source", "tiny-llama", **sizes)
    output = tmp_path / "out"
    build = planned(source, output, quantize=pure(E.Q4_1), check=True)
    assert any("more room than in a file" in note for note in build.notes)
    report = artifact.make(build)
    assert report.check is not None
    assert loader.Manifest(output).limits["input_ids"] == (0, 64)


@pytest.mark.long
def test_parts_for_devices_are_cut_between_blocks(tmp_path: Path) -> None:
    source = random_checkpoint(tmp_path / "source", "tiny-llama", **SMALL)
    builds = [planned(source, tmp_path / f"{n}", quantize=pure(E.Q8_0), devices=n) for n in (1, 2)]
    whole, parts = (build.contents.storage["layers.0.attn.o.weight"] for build in builds)
    assert (whole.shape, parts.shape, parts.encoding) == ((64, 64), (64, 32), E.Q8_0)
    for build in builds:
        artifact.make(build)
    ids = np.array([[3, 1, 4, 1, 5, 9]])
    one, two = (loader.load(tmp_path / f"{n}")(input_ids=ids)["logits"] for n in (1, 2))
    assert error(two, one) < 0.05  # sums in another order fall on other sides of thresholds


def test_parts_that_would_cut_blocks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="3 blocks of 32 elements"):
        planned(SAMPLE, tmp_path / "out", quantize=pure(E.Q8_0), devices=2)


def test_a_module_keeps_its_blocks(tmp_path: Path) -> None:
    """Compiled, saved, checked, and read again."""
    values = np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)
    blocks = quantize(values, E.Q5_1)
    layer = Linear(64, 20, quantization_encoding=E.Q5_1, has_bias=True)
    data = WeightData(blocks, "weight", DType.float32, (20, 64), E.Q5_1)
    layer.load_state_dict({"weight": data, "bias": np.ones(20, np.float32)})
    compiled = layer.compile(TensorType(DType.float32, ["n", 64]))
    compiled.save(tmp_path / "out", check=True)
    stored = open_checkpoint(tmp_path / "out").read("weight")
    assert stored.quantization_encoding is E.Q5_1
    np.testing.assert_array_equal(stored.data, blocks)
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    expected = rounded(x, 32) @ data.astype(DType.float32).data.T + 1
    for run in (compiled(x).to_numpy(), loader.load(tmp_path / "out")(x=x)["output"]):
        np.testing.assert_allclose(run, expected, rtol=1e-4, atol=1e-4)


def test_what_something_else_reads_is_decoded() -> None:
    """A weight that is multiplied by a number as well: elements, as accurate as before."""
    values = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    weight = Weight("w", DType.float32, [8, 32], quantization_encoding=E.Q8_0)

    def forward(x: Tensor) -> list[Tensor]:
        return [ops.linear(x, weight), weight * 2]

    data = WeightData(quantize(values, E.Q8_0), "w", DType.float32, (8, 32), E.Q8_0)
    graph = Graph("g", forward, [TensorType(DType.float32, ["n", 32])])
    model = InferenceSession().load(graph, weights_registry={"w": data})
    x = np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)
    product, doubled = model(x)
    decoded = data.astype(DType.float32).data
    np.testing.assert_allclose(product.to_numpy(), x @ decoded.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(doubled.to_numpy(), decoded * 2)


@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 1, 64), (1, 3, 64)])
def test_a_gated_block_of_mixed_weights(shape: tuple[int, ...]) -> None:
    """Two encodings, and one beside floats: fused for one token, and apart for several."""
    stored = {"gate": E.Q4_0, "up": None, "value": E.Q8_0, "other": E.Q5_1}
    weights, registry, decoded = {}, {}, {}
    for seed, (name, encoding) in enumerate(stored.items()):
        values = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32) / 8
        weights[name] = Weight(name, DType.float32, [64, 64], quantization_encoding=encoding)
        registry[name] = decoded[name] = values
        if encoding is not None:
            blocks = quantize(values, encoding)
            data = WeightData(blocks, name, DType.float32, (64, 64), encoding)
            registry[name], decoded[name] = data, data.astype(DType.float32).data

    def forward(x: Tensor) -> list[Tensor]:
        gate, up, value, other = (ops.linear(x, weight) for weight in weights.values())
        return [ops.silu(gate) * up + x, ops.gelu(other) * value]

    graph = Graph("g", forward, [TensorType(DType.float32, shape)])
    model = InferenceSession().load(graph, weights_registry=registry)
    x = np.random.default_rng(9).standard_normal(shape).astype(np.float32)
    seen = rounded(x.reshape(-1, 64), 32).reshape(shape)
    rows = {name: x if encoding is None else seen for name, encoding in stored.items()}
    gate, up, value, other = (rows[name] @ decoded[name].T.astype("f8") for name in stored)
    expected = DEFINITIONS["silu"](gate) * up + x, DEFINITIONS["gelu"](other) * value
    for got, exact in zip(model(x), expected, strict=True):
        np.testing.assert_allclose(got.to_numpy(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("encoding", [E.Q8_0, E.Q4_0])
def test_experts_stay_quantized_and_routers_as_they_are(
    tmp_path: Path, encoding: QuantizationEncoding
) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 96, **HEADS}
    source = random_checkpoint(tmp_path / "source", "tiny-mixtral", **sizes)
    build = planned(source, tmp_path / "out", quantize=pure(encoding), check=True)
    kinds = {name: one.type_name for name, one in build.contents.storage.items()}
    assert kinds["layers.0.mlp.gate.weight"] == encoding.name
    assert kinds["layers.0.mlp.router.weight"] == "float32"
    assert artifact.make(build).check is not None


def test_what_inspecting_shows(made: Made) -> None:
    """The encoding and its bytes, not those of elements."""
    build, _ = made
    command = ["inspect-weights", str(build.request.output)]
    shown = CliRunner().invoke(app, command)
    encoding = build.request.source.stem
    assert f"compiled from llama · for cpu · {encoding} · context 512" in shown.output
    described = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    tensors = {one["name"]: one for one in described["tensors"]}
    table = tensors["embed.weight"]
    assert (table["encoding"], table["shape"]) == (encoding, [1024, 96])
    assert table["bytes"] == 1024 * E[encoding].row_bytes(96)


def test_only_quantized_weights_ask_for_tiles(sample: Path, tmp_path: Path) -> None:
    """An artifact that has none runs where the system does not let processes use AMX."""
    target = "cpu:sapphirerapids+amx-int8"
    for scheme, uses in ((None, False), (Scheme.named("Q8_0"), True)):
        request = artifact.Request(sample, tmp_path / "out", target=target, quantize=scheme)
        chosen = artifact.prepare(request).contents.target
        assert ("amx-int8" in chosen.processor.features) is uses
