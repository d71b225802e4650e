"""Images become the pixel values that transformers' processors make of them; others are refused."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.artifact import image_processor
from maxtool.runtime.loader import BadInput, MachineLacks
from maxtool.runtime.loader.image_files import pixels_of
from maxtool.runtime.loader.image_spec import ImageSpec, image_spec
from tests.data.seeded import write_images

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDED = dict(np.load(DATA / "image_processors.npz"))
CASES: dict[str, Any] = json.loads(RECORDED.pop("cases").tobytes())
STEPS = ImageSpec((4, 4), None, "bilinear", None, 1 / 255, None, None)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    pytest.importorskip("PIL", reason="needs Pillow")
    return write_images(tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize("case", CASES)
def test_pixels_are_those_of_transformers(case: str, images: list[Path], tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(CASES[case]))
    steps = image_processor.read(tmp_path)
    assert steps is not None
    assert image_spec(json.loads(json.dumps(image_processor.manifest(steps)))) == steps
    for file in images:
        found, expected = pixels_of(file, steps), RECORDED[f"{case}/{file.name}"]
        assert found.dtype == np.float32
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_keys_that_older_releases_wrote(tmp_path: Path) -> None:
    older = CASES["clip"] | {"_valid_processor_keys": ["images", "do_resize"]}
    for file, said in (("x", CASES["clip"]), ("y", older)):
        (tmp_path / file).mkdir()
        (tmp_path / file / "preprocessor_config.json").write_text(json.dumps(said))
    assert image_processor.read(tmp_path / "y") == image_processor.read(tmp_path / "x")


def test_the_file_of_a_whole_processor(tmp_path: Path) -> None:
    assert image_processor.read(tmp_path) is None
    inner = CASES["clip"]
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": inner}))
    steps = image_processor.read(tmp_path)
    assert steps is not None
    assert (steps.shortest_edge, steps.crop, steps.resample) == (14, (12, 12), "bicubic")


def png(width: int, height: int) -> bytes:
    """A PNG file that says how large it is, and has no pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"")), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


UNDECODED = "no image that can be decoded"
HOSTILE = {
    "empty": (b"", UNDECODED),
    "a program": (b"%!PS-Adobe-3.0 EPSF-3.0\n", UNDECODED),
    "a large bomb": (png(40000, 40000), UNDECODED),
    "a bomb": (png(10000, 10000), "10000 x 10000 pixels"),
    "no pixels": (png(9, 9), UNDECODED),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_images(kind: str, tmp_path: Path) -> None:
    content, problem = HOSTILE[kind]
    pytest.importorskip("PIL", reason="needs Pillow")
    file = tmp_path / "x.png"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=problem) as error:
        pixels_of(file, STEPS)
    assert error.value.file == str(file)


def test_a_narrow_image_does_not_grow_beyond_all_bounds(tmp_path: Path) -> None:
    module = pytest.importorskip("PIL.Image", reason="needs Pillow")
    module.new("RGB", (100_000, 1)).save(tmp_path / "x.png")
    steps = ImageSpec(None, 224, "bilinear", (224, 224), None, None, None)
    with pytest.raises(BadInput, match="22400000 x 224 pixels"):
        pixels_of(tmp_path / "x.png", steps)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_images(images: list[Path], data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(images)).read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = images[0].with_name("damaged")
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        assert pixels_of(file, STEPS).shape == (3, 4, 4)
    except BadInput as error:
        assert error.file == str(file)


def test_without_pillow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(MachineLacks, match="need the package Pillow"):
        pixels_of(tmp_path / "x.png", STEPS)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": [4]},
        {"size": [4, 0]},
        {"size": [-4, 4]},
        {"size": [4, 10**5]},
        {"shortest_edge": True},
        {"size": [4, 4], "shortest_edge": 4},
        {"resample": "sinc"},
        {"mean": [0.5, 0.5, 0.5]},
        {"mean": [0, 0], "std": [1, 1]},
        {"mean": [0, 0, 0], "std": [1, 1, float("inf")]},
        {"rescale": "much"},
    ],
)
def test_steps_of_a_manifest_that_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="'"):
        image_spec({"resample": "bilinear", **changes})
