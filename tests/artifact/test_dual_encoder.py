"""Compiled models of images and texts compute what transformers computed, from files and words."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import artifact
from maxtool.errors import ConfigurationError
from maxtool.runtime import loader
from maxtool.runtime.loader.image_comparison import ImageComparison
from maxtool.serve.vectors import Vectors
from maxtool.tokenizer import read, to_json
from tests.artifact.making import made, run
from tests.artifact.measure import BOUND, error
from tests.artifact.test_image_encoders import image
from tests.parity.test_dual_encoder import CASES, RECORDED, inputs_of, written

TOKENIZERS: dict[str, Any] = json.loads(RECORDED["tokenizers"].tobytes())
TEXTS: list[str] = TOKENIZERS["texts"]
LABELS = ("a photo of a cat", "DOGS, and more!", "a house")
POSITIONS = 24
TOKENS = {"eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}


def with_tokenizer(kind: str, folder: Path, **config: Any) -> Path:
    """A folder with the recorded tokenizer of ``clip`` or ``siglip``."""
    folder.mkdir(exist_ok=True)
    said: dict[str, Any] = {"tokenizer_class": "CLIPTokenizer", "pad_token": "<|endoftext|>"}
    if kind == "clip":
        (folder / "tokenizer.json").write_text(TOKENIZERS["clip"])
    else:
        (folder / "spiece.model").write_bytes(bytes.fromhex(TOKENIZERS["siglip"]))
        said = {"tokenizer_class": "SiglipTokenizer", **TOKENS, "model_input_names": ["input_ids"]}
    (folder / "tokenizer_config.json").write_text(json.dumps({**said, **config}))
    return folder


def whole(kind: str, folder: Path, **config: Any) -> Path:
    """A checkpoint with its tokenizer and its preprocessing; its table of tokens is as long."""
    from safetensors.numpy import save_file

    from tests.data.seeded import tensors

    with_tokenizer(kind, folder, **config)
    known = CASES[{"clip": "CLIP-0", "siglip": "Siglip-same"}[kind]]
    tokens = read(folder)
    assert tokens is not None
    shapes = dict(known["shapes"])
    texts = dict(known["config"]["text_config"], vocab_size=tokens.size)
    texts |= {"max_position_embeddings": POSITIONS, "eos_token_id": tokens.size - 1}
    for name, rows in (("token", tokens.size), ("position", POSITIONS)):
        full = f"text_model.embeddings.{name}_embedding.weight"
        shapes[full] = [rows, shapes[full][1]]
    (folder / "config.json").write_text(json.dumps(known["config"] | {"text_config": texts}))
    save_file(tensors(shapes, 1.0), folder / "model.safetensors")
    name = {"clip": "CLIPImageProcessor", "siglip": "SiglipImageProcessor"}[kind]
    sizes = {"size": {"height": 12, "width": 12}, "do_center_crop": False}
    content = {"image_processor_type": name, **sizes}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Artifacts of both kinds, with tokenizers and preprocessing."""

    @cache
    def make(kind: str) -> Path:
        return made(whole(kind, tmp_path_factory.mktemp(kind) / "model"))

    return make


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize(
    "case",
    [
        pytest.param("CLIP-0", id="clip"),
        pytest.param("Siglip-same", id="siglip"),
        "CLIP-to-24",
        "Siglip-to-8",
    ],
)
def test_check_passes(case: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    source = written(case, tmp_path / "model")
    folder = made(source, check=True, image_size=CASES[case]["size"])
    model = loader.load(folder)
    recipe = case.partition("-")[0].lower()
    assert (model.manifest.root["recipe"], model.manifest.task) == (recipe, "dual_encoder")
    for entry, inputs in inputs_of(case).items():
        for output, found in model.run(entry, inputs).items():
            assert error(found, RECORDED[f"{case}/{entry}.{output}"]) <= BOUND


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_ids_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    found = read(with_tokenizer(kind, tmp_path))
    assert found is not None
    tokenizer = library.Tokenizer.from_str(to_json(found))
    assert [tokenizer.encode(text).ids for text in TEXTS] == TOKENIZERS["ids"][kind]


def test_a_spiece_model_of_another_class_is_no_tokenizer(tmp_path: Path) -> None:
    assert read(with_tokenizer("siglip", tmp_path, tokenizer_class="AlbertTokenizer")) is None


@pytest.mark.long
@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_what_an_image_shows(kind: str, compiled: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    folder, file = compiled(kind), image(tmp_path)
    asked = ["--image", file, *(word for text in LABELS for word in ("--label", text))]
    outs = [json.loads(run(name, folder, *asked, "--json")[0]) for name in ("run", "embed")]
    own = [sys.executable, folder / "run.py", *asked, "--json", "--quiet"]
    outs.append(json.loads(subprocess.run(own, capture_output=True, check=True).stdout))
    assert outs[0] == outs[1] == outs[2]
    (one,) = outs[0]["images"]
    model = loader.load(folder)
    output = tmp_path / "x.npy"
    run("embed", folder, "--image", file, "--output", output)
    texts, images = model.embed(list(LABELS)), np.load(output)
    vectors = {"image_embeds": images, "text_embeds": texts}
    logits = model.run("score", vectors)["logits_per_image"][0].astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum() if kind == "clip" else 1 / (1 + np.exp(-logits))
    order = np.argsort(-shares)
    assert [label["label"] for label in one["labels"]] == [LABELS[index] for index in order]
    assert [label["probability"] for label in one["labels"]] == pytest.approx(shares[order])
    shown, _ = run("run", folder, *asked, "--top-k", 1)
    assert shown.count("%") == 1


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_vectors_of_texts(kind: str, compiled: Callable[[str], Path]) -> None:
    """Each is that of its ids, filled up where the model wants it, whatever stands beside it."""
    pytest.importorskip("tokenizers")
    model = loader.load(compiled(kind))
    found = model.embed(TEXTS, batch=4)
    for text, ids, vector in zip(TEXTS, TOKENIZERS["ids"][kind], found, strict=True):
        filled = ids + [1] * (POSITIONS - len(ids)) if kind == "siglip" else ids
        alone = model.run("embed", {"input_ids": [filled]})["embeddings"][0]
        assert error(vector, alone) <= BOUND, text
    answer = Vectors("m", model).made({"input": TEXTS[0]}, lambda: None)
    assert answer["data"][0]["embedding"] == pytest.approx(found[0], rel=1e-5)  # type: ignore[index]


@pytest.mark.long
def test_padding_that_the_mask_hides(tmp_path: Path) -> None:
    """A tokenizer may give a mask, as its class does where nothing says."""
    pytest.importorskip("tokenizers")
    names = ["input_ids", "attention_mask"]
    folder = made(whole("siglip", tmp_path / "model", model_input_names=names))
    model, ids = loader.load(folder), TOKENIZERS["ids"]["siglip"][0]
    filled = ids + [1] * (POSITIONS - len(ids))
    mask = [1] * len(ids) + [0] * (POSITIONS - len(ids))
    expected = model.run("embed", {"input_ids": [filled], "attention_mask": [mask]})
    assert error(model.embed(TEXTS[0])[0], expected["embeddings"][0]) <= BOUND


def test_what_does_not_go_together(compiled: Callable[[str], Path]) -> None:
    folder = compiled("clip")
    _, told = run("embed", folder, "--text", "x", "--label", "y", code=2)
    assert "--label goes with --image" in told
    _, told = run("embed", folder, "--image", "x", "--label", "y", "--output", "z.npy", code=2)
    assert "--output takes its vector" in told
    _, told = run("run", folder, "--prompt", "x", code=4)
    assert "this model compares images with texts" in told
    with pytest.raises(loader.DoesNotFit, match="there is none"):
        ImageComparison(loader.load(folder), [])


def test_texts_of_one_length(tmp_path: Path) -> None:
    source = whole("siglip", tmp_path / "model")
    with pytest.raises(ConfigurationError, match=f"it is {POSITIONS}"):
        artifact.prepare(artifact.Request(source, tmp_path / "out", context=8))
    (source / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "SiglipTokenizer", **TOKENS, "pad_token": "none"})
    )
    with pytest.raises(ConfigurationError, match="no token is for padding"):
        artifact.prepare(artifact.Request(source, tmp_path / "out"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda root: root["entries"].pop("score"), "there is no entry 'score'"),
        (lambda root: root["entries"].pop("embed_image"), "there is no entry 'embed_image'"),
        (lambda root: root["entries"].pop("embed"), "there is no entry 'embed'"),
        (lambda root: root["filled"].update(length=POSITIONS + 1), "filled up to 25"),
        (lambda root: root["filled"].update(token=10**6), "filled up with token 1000000"),
        (lambda root: root["filled"].update(length=0), "'length' is 0"),
        (lambda root: root["filled"].pop("is_hidden"), "'is_hidden' is missing"),
        (lambda root: root.update(scores="half"), "'scores' is 'half'"),
        (
            lambda root: root["entries"]["score"]["inputs"][0]["shape"].__setitem__(1, 21),
            "vectors of several sizes",
        ),
    ],
)
def test_manifests_that_contradict_themselves(
    change: Callable[[Any], object],
    problem: str,
    compiled: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(compiled("siglip"), folder)
    root = json.loads((folder / "manifest.json").read_text())
    change(root)
    (folder / "manifest.json").write_text(json.dumps(root))
    with pytest.raises(loader.BadInput) as told:
        loader.Manifest(folder)
    assert problem in str([told.value.what, *told.value.problems])


def test_one_tower_alone(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    source = written("CLIP-0", tmp_path / "model")
    build = artifact.prepare(artifact.Request(source, tmp_path / "out", recipe="clip_vision"))
    assert build.contents.identity["task"] == "image"
    assert "the part that reads texts is left out" in " ".join(build.notes)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("CLIP-0", {}),
        ("CLIP-largest", {"normalize": True}),
        ("Siglip-0", {}),
        ("Siglip-same", {"image_size": 20}),
    ],
)
def test_check_against_the_original_model(
    case: str, options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    source = written(case, tmp_path / "model")
    request = artifact.Request(
        source, tmp_path / "out", check=True, against="transformers", **options
    )
    found = artifact.make(artifact.prepare(request))
    assert found.check is not None
    assert found.check.trials.against == "transformers"


@pytest.mark.peers
@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_shares_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    """An image told apart by labels, beside transformers' zero-shot classification."""
    import transformers

    source = whole(kind, tmp_path / "model")
    folder, file = made(source), image(tmp_path)
    asked = [word for text in LABELS for word in ("--label", text)]
    (one,) = json.loads(run("run", folder, "--image", file, *asked, "--json")[0])["images"]
    found = {label["label"]: label["probability"] for label in one["labels"]}
    classes = {"clip": "CLIPTokenizer", "siglip": "SiglipTokenizer"}
    processor = {"clip": "CLIPImageProcessor", "siglip": "SiglipImageProcessor"}
    pipeline = transformers.pipeline(
        "zero-shot-image-classification",
        model=transformers.AutoModel.from_pretrained(source),
        tokenizer=getattr(transformers, classes[kind]).from_pretrained(source),
        image_processor=getattr(transformers, processor[kind]).from_pretrained(source),
    )
    from PIL import Image

    if kind == "siglip":  # of 64 tokens otherwise; a call's `tokenizer_kwargs` reach nothing
        pipeline._preprocess_params["tokenizer_kwargs"] = {"max_length": POSITIONS}
    shown = Image.open(file).convert("RGB")
    expected = pipeline(shown, candidate_labels=list(LABELS), hypothesis_template="{}")
    assert {each["label"]: each["score"] for each in expected} == pytest.approx(found, rel=1e-5)
