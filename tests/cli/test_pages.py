"""``--html``: pages that hold all they need, of each command that draws."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.cli.pages.charts import Axis
from maxtool.cli.pages.markup import Markup, element, text
from maxtool.weights import WeightData
from maxtool.weights.histogram import BINS, counted
from maxtool.weights.stats import measure
from tests.runtime import tiny_artifact as tiny

LLAMA = Path(__file__).resolve().parents[1] / "data" / "tiny-llama3"
GGUF = LLAMA / "tiny-llama3-f32.gguf"
HOSTILE = (
    "</title></style></script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)//'",
    "\u202egnp.exe\u2066",
    "a\x00b\x1b[31m\r\n",
    "&amp;<!--",
    "]]>",
)
# What a page may consist of: nothing that fetches, runs or leads elsewhere.
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "br", "div", "span"),
    *("ul", "li", "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td"),
    *("svg", "rect", "text", "line", "circle", "path"),
}


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "100"})
    assert result.exit_code == code, result.output
    return result


def parsed(file: Path) -> ElementTree.Element:
    """Parse a page, which is XML too but for its first line, and check that it is harmless."""
    content = file.read_text(encoding="utf-8")
    first, _, rest = content.partition("\n")
    assert first == "<!doctype html>"
    root = ElementTree.fromstring(rest)  # noqa: S314 - our own
    assert {one.tag for one in root.iter()} <= ELEMENTS
    for one in root.iter():
        assert not [name for name in one.keys() if name.startswith("on")]  # noqa: SIM118
        assert not {"href", "src", "action"}.intersection(one.keys())
        assert "url(" not in (one.get("style") or "")
    assert "url(" not in (root.findtext(".//style") or "")
    policy = next(one for one in root.iter("meta") if one.get("http-equiv"))
    assert policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'"
    return root


def titles(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter("h2")]


def test_a_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    run("inspect-weights", LLAMA, "--html", file)
    root = parsed(file)
    assert titles(root) == ["Bytes"]
    tooltips = [one.findtext("title") for one in root.iter("rect") if one.find("title") is not None]
    assert len(tooltips) == 21
    assert any((tip or "").startswith("model.layers.1.mlp.up_proj.weight\nF32") for tip in tooltips)
    run("inspect-weights", LLAMA, "--stats", "--html", file, "--force")
    root = parsed(file)
    assert titles(root) == ["Bytes", "Values"]
    assert len(list(root.iter("figure"))) == 21


def test_a_difference(tmp_path: Path) -> None:
    file, other = tmp_path / "page.html", tmp_path / "other.safetensors"
    ones = np.ones((2, 8), np.float32)
    save_file({f"layers.{i}.w": ones for i in range(3)} | {"a": ones, "s": ones}, tmp_path / "x.st")
    (tmp_path / "x.st").rename(tmp_path / "x.safetensors")
    second = {f"layers.{i}.w": (i * ones).astype(np.float16) for i in range(3)}
    save_file(second | {"b": ones, "s": ones.T.copy()}, other)
    words = ("inspect-weights", tmp_path / "x.safetensors", "--diff", other)
    run(*words, "--html", file, code=1)
    root = parsed(file)
    assert titles(root) == ["Tensors by layer"]
    legend = [" ".join("".join(one.itertext()).split()) for one in root.iter("li")]
    assert legend == [
        "of another type 3 tensors",
        "of another shape 1 tensor",
        "only in the first 1 tensor",
        "only in the second 1 tensor",
    ]
    run(*words, "--stats", "--html", file, "--force", code=1)
    root = parsed(file)
    assert titles(root) == ["Tensors by layer", "Differences by layer", "Differences by bytes"]
    assert any("relative error 100%" in (one.text or "") for one in root.iter("title"))


def test_checkpoints_beside_each_other(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    run("compare", LLAMA, GGUF, "--html", file)
    wanted = ["Totals", "Differences by layer", "Differences by bytes"]
    assert titles(parsed(file)) == wanted
    run("compare", LLAMA, GGUF, LLAMA, "--html", file, "--force", "--json")
    assert titles(parsed(file)) == ["Totals", "Error and size", *2 * wanted[1:]]


@pytest.mark.long
def test_compiled_models_beside_each_other(tmp_path: Path) -> None:
    module = tiny.compile_module(tmp_path)
    for name, token in (("a", 7), ("b", 9)):
        tiny.make(tmp_path / name, module, [token] * 40, 1)
    (tmp_path / "text").write_text("Once upon a time there was a little girl. " * 20)
    words = ("compare", tmp_path / "a", tmp_path / "b", "--text", tmp_path / "text")
    run(*words, "--context", 16, "--html", tmp_path / "page.html")
    root = parsed(tmp_path / "page.html")
    assert titles(root) == ["Totals", "Divergence and size", "Percentiles of the divergence"]
    assert root.findtext(".//h1") == "b beside a"


@pytest.mark.long
def test_a_check(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    words = ("compile", LLAMA, "-o", tmp_path / "model", "--context", 32)
    run(*words, "--check", "--html", file)
    root = parsed(file)
    assert titles(root) == ["forward, logits", "prefill and decode"]
    assert all("Passed: relative error" in (one.text or "") for one in root.findall("./body/p")[1:])
    dots = list(root.iter("circle"))
    assert len(dots) > 1000
    assert "--html draws what --check compares" in run(*words, "--html", file, code=2).stderr


@pytest.mark.long
def test_a_check_that_fails_is_drawn(tmp_path: Path) -> None:
    recipe, file = tmp_path / "strict.toml", tmp_path / "page.html"
    recipe.write_text('extends = "llama"\n[check]\nfloat32 = { rtol = 0.0, atol = 1e-30 }\n')
    words = ("compile", LLAMA, "-o", tmp_path / "model", "--context", 32, "--recipe", recipe)
    run(*words, "--check", "--html", file, code=1)
    assert not (tmp_path / "model").exists()
    root = parsed(file)
    assert (root.findtext("./body/p") or "").startswith("0 of 2 outputs")
    assert all("Failed: relative error" in (one.text or "") for one in root.findall("./body/p")[1:])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str, tmp_path: Path) -> None:
    ones = np.ones((4, 32), np.float32)
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_file({name: ones, f"{name}.0.{name}": ones, "w": ones}, first)
    save_file({name: 2 * ones, "w": ones}, second)
    for number, words in enumerate(
        [
            ("inspect-weights", first, "--stats"),
            ("inspect-weights", first, "--diff", second, "--stats"),
            ("compare", first, second),
        ]
    ):
        file = tmp_path / f"{number}.html"
        run(*words, "--html", file, code=1 if "--diff" in words else 0)
        root = parsed(file)
        content = file.read_text(encoding="utf-8")
        assert not set("\u202e\u2066\x00\x1b\r") & set(content)
        shown = text(name).split("&")[0]
        assert shown in content
        assert any("alert" in (one.text or "") for one in root.iter("title")) == ("alert" in name)


def test_the_name_of_the_file_is_text(tmp_path: Path) -> None:
    source = tmp_path / "<script>&\u202e.gguf"
    shutil.copy(GGUF, source)
    run("inspect-weights", source, "--html", tmp_path / "page.html")
    root = parsed(tmp_path / "page.html")
    assert root.findtext(".//h1") == "<script>&\\u202e.gguf"


def test_the_same_inputs_give_the_same_page(tmp_path: Path) -> None:
    """The time and the folder are not on a page."""
    pages = []
    for name in ("one", "other"):
        folder = tmp_path / name
        shutil.copytree(LLAMA, folder / "tiny")
        source, file = folder / "tiny", folder / "page.html"
        run("inspect-weights", source, "--stats", "--html", file)
        run("compare", source, source / GGUF.name, "--html", folder / "compare.html")
        pages.append((file.read_bytes(), (folder / "compare.html").read_bytes()))
        assert str(tmp_path).encode() not in b"".join(pages[-1])
    assert pages[0] == pages[1]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    inspect = ("inspect-weights", LLAMA)
    assert "call it NAME.html" in run(*inspect, "--html", tmp_path / "x.svg", code=2).stderr
    assert "does not exist" in run(*inspect, "--html", tmp_path / "no" / "x.html", code=2).stderr
    assert "overwrite the source" in run(*inspect, "--html", LLAMA / "x.html", code=2).stderr
    assert "one PATH" in run("inspect-weights", LLAMA, GGUF, "--html", file, code=2).stderr
    file.write_text("mine")
    for words in (inspect, ("compare", LLAMA, GGUF)):
        assert "--force" in run(*words, "--html", file, code=2).stderr
    assert file.read_text() == "mine"


def test_markup_is_escaped_but_for_markup() -> None:
    assert element("p", "a<b", Markup("<br/>"), class_='"') == '<p class="&quot;">a&lt;b<br/></p>'
    assert element("rect", x=1.5, y=-0.0, width=2.0) == '<rect x="1.5" y="-0" width="2"></rect>'


def test_ticks_are_round_and_inside() -> None:
    assert Axis("x", -14.2, 10.3).ticks() == pytest.approx([-10, -5, 0, 5, 10])
    assert Axis("x", 0.004, 0.3, log=True).ticks() == pytest.approx(
        [0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
    )
    assert Axis("x", 1e-7, 1.0, log=True).ticks() == pytest.approx(
        [10.0**power for power in range(-7, 1)]
    )


@given(st.floats(-1e100, 1e100), st.floats(1e-99, 1e100))
def test_axes_of_any_range_have_few_ticks(low: float, room: float) -> None:
    axis = Axis("x", low, low + room)
    ticks = axis.ticks()
    assert len(ticks) <= 12
    assert all(0 <= axis.share(tick) <= 1 for tick in ticks)


def test_histograms_count_every_finite_element() -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal((300, 1024)).astype(np.float32)
    values[0, :3] = np.nan, np.inf, -np.inf
    weight = WeightData.from_numpy(values, "w")
    histogram = counted(weight, measure(weight))
    assert histogram is not None
    finite = values[np.isfinite(values)].astype(np.float64)
    expected, _ = np.histogram(finite, BINS, (histogram.low, histogram.high))
    assert sum(histogram.counts) == finite.size
    assert np.abs(np.array(histogram.counts) - expected).max() <= 1  # at the edges of bins
    odd = WeightData.from_numpy(np.array([np.nan]), "w")
    assert counted(odd, measure(odd)) is None
    wide = WeightData.from_numpy(np.array([-1.7e308, 0, 1.7e308]), "w")
    result = counted(wide, measure(wide))
    assert result is not None
    assert (result.counts[0], sum(result.counts), result.counts[-1]) == (1, 3, 1)
