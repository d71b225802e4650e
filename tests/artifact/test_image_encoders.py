"""Compiled encoders of images compute what transformers computed with the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool import artifact
from maxtool.artifact import image_processor
from maxtool.errors import ConfigurationError, UsageError
from maxtool.runtime import loader
from tests.artifact.making import made, run
from tests.artifact.measure import BOUND, error
from tests.data.seeded import pixel_values, tensors

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDED = dict(np.load(DATA / "image_encoders.npz"))
CASES: dict[str, Any] = json.loads(RECORDED.pop("cases").tobytes())
# A case of each recipe, and the size of its images.
RECIPES = {
    "vit": ("ViT-classifier", None),
    "dinov2": ("Dinov2-to-17", 17),
    "dinov2_with_registers": ("Dinov2WithRegisters-to-24", 24),
    "siglip_vision": ("Siglip-classifier", None),
    "clip_vision": ("CLIP-towers", None),
}
PROCESSOR = {"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 12}}


def written(folder: Path, case: str, processor: dict[str, Any] | None = None, **more: Any) -> Path:
    """The checkpoint of a case, with a processor if one is given."""
    folder.mkdir(exist_ok=True)
    known = CASES[case]
    (folder / "config.json").write_text(json.dumps(known["config"] | more))
    save_file(tensors(known["shapes"], 1.0), folder / "model.safetensors")
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("recipe", RECIPES)
def test_check_passes(recipe: str, tmp_path: Path) -> None:
    case, size = RECIPES[recipe]
    recipe_of = {"recipe": recipe} if case.endswith("-towers") else {}
    source = written(tmp_path / "model", case)
    folder = made(source, check=True, image_size=size, **recipe_of)
    model = loader.load(folder)
    assert (model.manifest.root["recipe"], model.manifest.task) == (recipe, "image")
    pixels = pixel_values(CASES[case]["config"], size)
    for key, expected in RECORDED.items():
        name, _, output = key.partition("/")
        if name == case:
            entry, _, output = output.partition(".")
            assert error(model.run(entry, {"pixel_values": pixels})[output], expected) <= BOUND


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """An artifact of a classifier with labels and preprocessing."""

    @cache
    def make() -> Path:
        folder = tmp_path_factory.mktemp("classifier") / "model"
        labels = {"0": "cat", "1": "dog\x1b[31m", "2": "owl"}
        return made(written(folder, "ViT-classifier", PROCESSOR, id2label=labels))

    return make


def image(folder: Path, name: str = "x.png") -> Path:
    module = pytest.importorskip("PIL.Image", reason="needs Pillow")
    bits = np.random.default_rng(0).integers(0, 256, (20, 17, 3), dtype=np.uint8)
    module.fromarray(bits).save(folder / name)
    return folder / name


@pytest.mark.parametrize("command", ["run", "embed"])
def test_labels_of_an_image(command: str, classifier: Callable[[], Path], tmp_path: Path) -> None:
    folder, file = classifier(), image(tmp_path)
    out, _ = run(command, folder, "--image", file, "--top-k", 2, "--json")
    (one,) = json.loads(out)["images"]
    from maxtool.runtime.loader.image_files import pixels_of
    from maxtool.runtime.loader.image_spec import image_spec

    model = loader.load(folder)
    pixels = pixels_of(file, image_spec(model.manifest.image))[None]
    logits = model.run("classify", {"pixel_values": pixels})["logits"][0].astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum()
    order = np.argsort(-shares)[:2]
    assert [label["index"] for label in one["labels"]] == order.tolist()
    assert [label["probability"] for label in one["labels"]] == pytest.approx(shares[order])
    text, _ = run(command, folder, "--image", file, "--image", file)
    assert text.splitlines()[0] == str(file)
    assert text.count("%") == 6
    assert "\x1b" not in text


def test_vectors_of_images(classifier: Callable[[], Path], tmp_path: Path) -> None:
    file, output = image(tmp_path), tmp_path / "x.npy"
    out, _ = run("embed", classifier(), "--image", file, "--image", file, "--output", output)
    assert out == f"{output} float32[2, 20]\n"
    assert np.load(output).shape == (2, 20)


def test_what_does_not_go_together(classifier: Callable[[], Path], tmp_path: Path) -> None:
    folder = classifier()
    _, told = run("embed", folder, "--image", "x", "--text", "y", code=2)
    assert "give one of --text, --file, --image" in told
    _, told = run("embed", folder, "--text", "y", code=4)
    assert "this model takes images" in told
    _, told = run("run", folder, "--image", tmp_path / "x.png", code=3)
    assert "the image cannot be read" in told
    _, told = run("run", folder, "--image", tmp_path / "x.png", "--top-k", 0, code=2)
    assert "--top-k" in told


def test_without_preprocessing_there_are_no_images(tmp_path: Path) -> None:
    source = written(tmp_path / "model", "ViT-0")
    build = artifact.prepare(artifact.Request(source, tmp_path / "out"))
    assert any("takes pixel values, not images" in note for note in build.notes)
    assert "image" not in build.contents.facts


@pytest.mark.parametrize(
    ("asked", "sizes"),
    [
        (None, (12, [12, 12], None)),
        (24, (24, [24, 24], None)),
    ],
)
def test_the_size_of_images(asked: int | None, sizes: tuple[Any, ...], tmp_path: Path) -> None:
    source = written(tmp_path / "model", "ViT-0", PROCESSOR)
    build = artifact.prepare(artifact.Request(source, tmp_path / "out", image_size=asked))
    facts = build.contents.facts
    assert (facts["image_size"], facts["image"]["size"], facts["image"]["crop"]) == sizes  # type: ignore[index]


def test_what_a_preprocessor_makes_is_what_positions_are_resized_to(tmp_path: Path) -> None:
    processor = {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 32},
        "crop_size": 28,
    }
    source = written(tmp_path / "model", "Dinov2-0", processor)
    build = artifact.prepare(artifact.Request(source, tmp_path / "out"))
    assert build.contents.facts["image_size"] == 28
    wider = artifact.prepare(artifact.Request(source, tmp_path / "out", image_size=56))
    assert wider.contents.facts["image"] == build.contents.facts["image"] | {  # type: ignore[operator]
        "shortest_edge": 64,
        "crop": [56, 56],
    }


def test_image_size_is_for_models_of_images(tmp_path: Path) -> None:
    request = artifact.Request(DATA / "tiny-bert", tmp_path / "out", image_size=32)
    with pytest.raises(UsageError, match="--image-size is for models of images, not bert"):
        artifact.prepare(request)


@pytest.mark.parametrize(
    ("processor", "problem"),
    [
        ({"image_processor_type": "FlavaImageProcessor"}, "the class 'FlavaImageProcessor'"),
        ({}, "the class 'of no name'"),
        ({**PROCESSOR, "do_pad": True}, "do_pad = True"),
        ({**PROCESSOR, "size": {"longest_edge": 7}}, "size is {'longest_edge': 7}"),
        ({**PROCESSOR, "size": {"height": 10**6, "width": 10**6}}, "'size' is"),
        ({**PROCESSOR, "resample": 17}, "'resample' is 17"),
        ({**PROCESSOR, "image_std": [1, 0, 1]}, "none of the latter is 0"),
        ({**PROCESSOR, "image_mean": "grey"}, "'mean' is 'grey'"),
        ({**PROCESSOR, "rescale_factor": float("nan")}, "'rescale' is nan"),
    ],
)
def test_preprocessing_that_is_refused(
    processor: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    with pytest.raises(ConfigurationError) as told:
        image_processor.read(tmp_path)
    assert problem in str(told.value)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("ViT-0", {"image_size": 20}),
        ("ViT-classifier", {"normalize": True}),
        ("Dinov2-classifier", {"pooling": "mean"}),
        ("Dinov2WithRegisters-0", {"image_size": 20}),
        ("Siglip-towers", {"recipe": "siglip_vision"}),
        ("CLIP-towers", {"recipe": "clip_vision"}),
        ("CLIP-projected", {}),
        ("CLIP-classifier", {"pooling": "cls"}),
    ],
)
def test_check_against_the_original_model(
    case: str, options: dict[str, Any], tmp_path: Path
) -> None:
    source = written(tmp_path / "model", case)
    request = artifact.Request(source, tmp_path / "out", check=True, against="transformers")
    found = artifact.make(artifact.prepare(replace(request, **options)))
    assert found.check is not None
    assert found.check.trials.against == "transformers"
