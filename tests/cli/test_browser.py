"""Pages in a real browser: they are not empty, and rectangles are where they should be."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.cli.pages.treemap import HEIGHT, WIDTH, Box, squarified
from tests.cli import browser

LLAMA = Path(__file__).resolve().parents[1] / "data" / "tiny-llama3"
GGUF = LLAMA / "tiny-llama3-f32.gguf"
# Of the style: the ground, and the first two types.
GROUND = {False: (0xFF, 0xFF, 0xFF), True: (0x0D, 0x11, 0x17)}
FIRST = (0x2F, 0x6F, 0xB3)
SECOND = {False: (0xB3, 0x54, 0x1E), True: (0xA3, 0x50, 0x1F)}

pytestmark = [pytest.mark.slow, pytest.mark.peers]


@pytest.fixture(autouse=True)
def _browser() -> None:
    browser.needed()


def drawn(file: Path, *words: object, code: int = 0) -> Path:
    result = CliRunner().invoke(app, [*map(str, words), "--html", str(file)])
    assert result.exit_code == code, result.output
    return file


def where(pixels: NDArray[np.uint8], colour: tuple[int, ...]) -> NDArray[np.bool_]:
    return (np.abs(pixels.astype(int) - colour) <= 2).all(axis=-1)


@pytest.mark.parametrize("dark", [False, True])
def test_rectangles_are_where_they_should_be(dark: bool, tmp_path: Path) -> None:
    """Four tensors without layers, of two types: their boxes, found again by their colours."""
    sizes = {"a": (np.float32, 4096), "b": (np.float16, 4096), "c": (np.float16, 2048)}
    tensors = {name: np.ones(count, dtype) for name, (dtype, count) in sizes.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    page = drawn(tmp_path / "page.html", "inspect-weights", tmp_path / "model.safetensors")
    pixels = browser.screenshot(page, 1200, 800, dark=dark)
    assert where(pixels, GROUND[dark])[0].all()
    colours = where(pixels, FIRST), where(pixels, SECOND[dark])
    rows, columns = (np.flatnonzero((colours[0] | colours[1])[200:].any(axis=a)) for a in (1, 0))
    top, left = 200 + rows[0], columns[0]
    height, width = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
    assert width / height == pytest.approx(WIDTH / HEIGHT, rel=0.02)
    boxes = squarified([16384, 8192, 4096], Box(left, top, width, height))
    for box, type_ in zip(boxes, (0, 1, 1), strict=True):
        inside = colours[type_][round(box.y) + 4 : round(box.y + box.height) - 4]
        inside = inside[:, round(box.x) + 4 : round(box.x + box.width) - 4]
        assert inside.mean() > 0.97  # the rest is its name
    ratio = colours[0][200:].sum() / colours[1][200:].sum()
    assert ratio == pytest.approx(16384 / 12288, rel=0.03)


PAGES: dict[str, tuple[tuple[object, ...], int]] = {
    "checkpoint": (("inspect-weights", LLAMA, "--stats"), 0),
    "difference": (("inspect-weights", LLAMA, "--diff", GGUF), 1),
    "comparison": (("compare", LLAMA, GGUF, GGUF), 0),
}


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", PAGES)
def test_pages_are_not_empty(name: str, width: int, tmp_path: Path) -> None:
    words, code = PAGES[name]
    page = drawn(tmp_path / "page.html", *words, code=code)
    pixels = browser.screenshot(page, width, 900)
    assert pixels.shape == (900, width, 3)
    colours, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    assert len(colours) > 20
    assert counts.max() < 0.97 * pixels.size / 3
    # Nothing is cut off at the right: pages are as wide as the window, drawings scroll.
    assert where(pixels[:, -8:], GROUND[False]).all()


def test_a_check_has_its_points_on_the_line(tmp_path: Path) -> None:
    words = ("compile", LLAMA, "-o", tmp_path / "model", "--context", 32, "--check")
    page = drawn(tmp_path / "page.html", *words)
    pixels = browser.screenshot(page, 900, 800)
    points = where(pixels, FIRST)[120:]
    assert points.sum() > 300
    y, x = np.nonzero(points)
    assert np.corrcoef(x, y)[0, 1] < -0.99  # upwards, as rows are counted downwards


@pytest.mark.parametrize("kind", range(5))
def test_screenshots_are_decoded(kind: int) -> None:
    """Each filter of PNG, applied as its specification has it."""
    random = np.random.default_rng(kind)
    image = random.integers(0, 256, (5, 7, 3))
    padded = np.zeros((6, 8, 3), int)
    padded[1:, 1:] = image
    left, up, corner = padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1]
    guess = left + up - corner
    far = np.abs(np.stack([left, up, corner]) - guess)
    paeth = np.take_along_axis(np.stack([left, up, corner]), far.argmin(axis=0)[None], 0)[0]
    predicted = (0 * left, left, up, (left + up) // 2, paeth)[kind]
    rows = ((image - predicted) % 256).astype(np.uint8).reshape(5, -1)
    raw = b"".join(bytes([kind]) + row.tobytes() for row in rows)

    def chunk(name: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + name + data + bytes(4)

    size = (7).to_bytes(4, "big") + (5).to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    parts = [chunk(b"IHDR", size), chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b"")]
    np.testing.assert_array_equal(browser.decoded(browser.SIGNATURE + b"".join(parts)), image)
