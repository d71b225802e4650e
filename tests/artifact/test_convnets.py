"""Compiled convolutional networks compute what transformers computed with the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.artifact import image_processor
from maxtool.cli.app import app
from maxtool.compiler.fusion.convolution_fusions import DEPTHWISE, DIRECT
from maxtool.compiler.rewriting import rewrite
from maxtool.errors import ConfigurationError, ModelMismatch
from maxtool.graph import Node
from maxtool.runtime import loader
from maxtool.weights import open_checkpoint
from tests.artifact.making import made
from tests.artifact.measure import BOUND, error
from tests.data.seeded import network_tensors, pixel_values
from tests.parity.test_convnets import CASES, recorded, written
from tests.parity.traced import TracedModel

# A case of each recipe, and one whose classifier is compiled too.
RECIPES = {
    "resnet": "ResNet-classifier",
    "resnet-basic": "ResNet-12",
    "convnext": "ConvNext-classifier",
    "convnextv2": "ConvNextV2-classifier",
}
PROCESSOR = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 21}}


def checkpoint(folder: Path, case: str, processor: Any = None, **changes: Any) -> Path:
    """The checkpoint of a case, with a processor if one is given."""
    folder.mkdir()
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return written(case, folder, **changes)


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("name", RECIPES)
def test_check_passes(name: str, tmp_path: Path) -> None:
    case = RECIPES[name]
    size = CASES[case]["size"]
    model = loader.load(made(checkpoint(tmp_path / "model", case), check=True, image_size=size))
    recipe, _, _ = name.partition("-")
    assert (model.manifest.root["recipe"], model.manifest.task) == (recipe, "image")
    pixels = pixel_values(CASES[case]["config"], size)
    for key, expected in recorded(case).items():
        entry, _, output = key.partition(".")
        assert error(model.run(entry, {"pixel_values": pixels})[output], expected) <= BOUND


@pytest.mark.long
def test_labels_of_an_image(tmp_path: Path) -> None:
    module = pytest.importorskip("PIL.Image", reason="needs Pillow")
    labels = {"0": "cat", "1": "dog", "2": "owl"}
    source = checkpoint(tmp_path / "model", "ResNet-classifier", PROCESSOR, id2label=labels)
    folder, file = made(source), tmp_path / "x.png"
    bits = np.random.default_rng(0).integers(0, 256, (30, 27, 3), dtype=np.uint8)
    module.fromarray(bits).save(file)
    arguments = ["run", str(folder), "--image", str(file), "--top-k", "3", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    (one,) = json.loads(result.stdout)["images"]
    assert {label["label"] for label in one["labels"]} == {*labels.values()}
    assert sum(label["probability"] for label in one["labels"]) == pytest.approx(1)
    facts = loader.load(folder).manifest.root
    assert (facts["image"]["shortest_edge"], facts["image"]["crop"]) == (24, [21, 21])


@pytest.mark.long
def test_vectors_of_length_1(tmp_path: Path) -> None:
    case = "ConvNext-0"
    source, size = checkpoint(tmp_path / "model", case), CASES[case]["size"]
    model = loader.load(made(source, normalize=True, image_size=size))
    pixels = pixel_values(CASES[case]["config"], size)
    vectors = model.run("embed", {"pixel_values": pixels})["embeddings"]
    pooled = recorded(case)["forward.pooler_output"]
    expected = pooled / np.linalg.norm(pooled, axis=-1, keepdims=True)
    assert error(vectors, expected) <= BOUND


@pytest.mark.parametrize(
    ("processor", "sizes"),
    [
        ({"size": {"shortest_edge": 21}}, (None, 24, [21, 21])),
        ({"size": 32, "crop_pct": 0.5}, (None, 64, [32, 32])),
        ({"size": {"shortest_edge": 384}}, ([384, 384], None, None)),
        ({"do_resize": False, "do_center_crop": True, "crop_size": 24}, (None, None, [24, 24])),
    ],
)
def test_preprocessing(processor: Any, sizes: tuple[Any, ...], tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model", "ConvNext-0", PROCESSOR | processor)
    build = artifact.prepare(artifact.Request(source, tmp_path / "out"))
    image: Any = build.contents.facts["image"]
    assert (image["size"], image["shortest_edge"], image["crop"]) == sizes
    assert build.contents.facts["image_size"] == (image["crop"] or image["size"])[0]


@pytest.mark.parametrize(
    ("processor", "problem"),
    [
        ({**PROCESSOR, "crop_pct": 0}, "crop_pct is 0"),
        ({**PROCESSOR, "crop_pct": "half"}, "crop_pct is 'half'"),
        ({**PROCESSOR, "crop_pct": float("nan")}, "crop_pct is nan"),
        ({**PROCESSOR, "crop_pct": 1e-9}, "'shortest_edge' is 21000000000"),
        ({**PROCESSOR, "size": {"height": 9, "width": 9}}, "size is {'size': [9, 9]}"),
        ({**PROCESSOR, "do_center_crop": True}, "do_center_crop is set"),
        ({"image_processor_type": "ViTImageProcessor", "crop_pct": 0.9}, "crop_pct = 0.9"),
    ],
)
def test_preprocessing_that_is_refused(processor: Any, problem: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    with pytest.raises(ConfigurationError) as told:
        image_processor.read(tmp_path)
    assert problem in str(told.value)


def test_the_kernels_are_those_of_onnx_models(tmp_path: Path) -> None:
    """Every convolution has a kernel of its own, and its filter lies as that reads it."""
    for case, depthwise in (("ResNet-classifier", 0), ("ConvNext-classifier", 3)):
        source = checkpoint(tmp_path / case, case)
        build = artifact.prepare(artifact.Request(source, tmp_path / "out", image_size=32))
        contents = build.contents
        found = [
            node.op
            for function in contents.functions
            if function.name == "classify"
            for graph in (function.graph, *function.graph.subgraphs.values())
            for node in rewrite(graph, contents.lowering.placement).nodes
            if isinstance(node, Node)
        ]
        assert not {"conv2d", "sqrt", "rsqrt"} & {*found}
        assert DIRECT in found
        assert (DEPTHWISE in found) == bool(depthwise)
        filters = [each for name, each in contents.storage.items() if name.endswith("t.folded")]
        assert filters
        assert all(each.form is not None for each in filters)


def test_statistics_that_no_filter_follows_from(tmp_path: Path) -> None:
    values = network_tensors(CASES["ResNet-0"]["shapes"])
    name = "embedder.embedder.normalization.running_var"
    (tmp_path / "model").mkdir()
    extra = {name: np.full_like(values[name], -1)}
    source = written("ResNet-0", tmp_path / "model", extra)
    request = artifact.Request(source, tmp_path / "out", image_size=8)
    with pytest.raises(ModelMismatch, match="running variance") as told:
        artifact.make(artifact.prepare(request))
    assert told.value.tensor == "body.stem.norm.bias"
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize("case", ["ResNet-0", "ConvNext-0", "ConvNextV2-0"])
def test_code_for_gpus(case: str, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model", case)
    assert (made(source, target="cuda:sm_80", image_size=21) / "manifest.json").is_file()


@pytest.mark.parametrize("case", ["ResNet-0", "ResNet-classifier", "ConvNext-15", "ConvNextV2-0"])
def test_a_folder_is_written_again(case: str, tmp_path: Path) -> None:
    source, output = checkpoint(tmp_path / "model", case, PROCESSOR), tmp_path / "out"
    result = CliRunner().invoke(app, ["convert", str(source), "-o", str(output)])
    assert result.exit_code == 0, result.stderr
    size = CASES[case]["size"]
    model = TracedModel(open_checkpoint(output), input_size=size)
    pixels = pixel_values(CASES[case]["config"], size)
    for key, expected in recorded(case).items():
        entry, _, name = key.partition(".")
        found = model.run(entry, {"pixel_values": pixels})[name]
        assert np.linalg.norm(found - expected) < 2e-6 * np.linalg.norm(expected)
    processor = json.loads((output / "preprocessor_config.json").read_text())
    assert processor == PROCESSOR


def test_gguf_has_no_form_of_them(tmp_path: Path) -> None:
    source, output = checkpoint(tmp_path / "model", "ResNet-0"), tmp_path / "x.gguf"
    result = CliRunner().invoke(app, ["convert", str(source), "-o", str(output)])
    assert result.exit_code == 4
    assert "GGUF has no form of resnet models" in result.stderr


@pytest.mark.peers
@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("ResNet-0", {"image_size": 37}),
        ("ResNet-classifier", {"normalize": True, "image_size": 20}),
        ("ResNet-12", {"image_size": 33}),
        ("ResNet-backbone", {"image_size": 19}),
        ("ConvNext-0", {"image_size": 29}),
        ("ConvNext-classifier", {"image_size": 18}),
        ("ConvNextV2-14", {"image_size": 23}),
        ("ConvNextV2-classifier", {"normalize": True, "image_size": 45}),
    ],
)
def test_check_against_the_original_model(
    case: str, options: dict[str, Any], tmp_path: Path
) -> None:
    source = checkpoint(tmp_path / "model", case)
    request = artifact.Request(
        source, tmp_path / "out", check=True, against="transformers", **options
    )
    found = artifact.make(artifact.prepare(request))
    assert found.check is not None
    assert found.check.trials.against == "transformers"
