"""``maxtool bench``: what it prints, and what it refuses. How fast anything is, no test says."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from maxtool.benchmark import rounds
from maxtool.benchmark.cases import Settings
from maxtool.benchmark.results import Benchmark
from maxtool.cli import bench_report
from maxtool.cli.app import app
from maxtool.cli.output import Output
from maxtool.cli.pages import kernel_chart
from maxtool.runtime.loader.host import TILES
from tests.artifact.test_image_encoders import made, written
from tests.runtime import tiny_artifact

ROOT = Path(__file__).resolve().parents[2]
SAMPLE, ENCODER = ROOT / "samples" / "fireside", ROOT / "tests" / "data" / "tiny-bert"
DIGITS = ROOT / "samples" / "digits" / "digits"
CONTEXT = 48
SOURCES: Mapping[str, list[object]] = {
    "decoder": [SAMPLE, "--context", CONTEXT],
    "encoder": [ENCODER],
    "module": [
        *(f"{DIGITS}.py:Digits", "--weights", f"{DIGITS}.safetensors"),
        *("--input", "picture=float32[batch,8,8]"),
    ],
}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a decoder, an encoder and a module."""
    home = tmp_path_factory.mktemp("bench")
    for name, arguments in SOURCES.items():
        done = invoke("compile", *arguments, "-o", home / name)
        assert done.exit_code == 0, done.output
    return home


@pytest.fixture(scope="module")
def benchmark(artifacts: Path) -> Benchmark:
    """All three, measured twice and profiled, in no time."""
    settings = Settings(rounds=2, tokens=4, threads=1, profile=True)
    with pytest.MonkeyPatch.context() as patch:
        for seconds in ("TURN", "PEAK"):
            patch.setattr(rounds, seconds, 0.001)
        return rounds.run([artifacts / name for name in SOURCES], settings)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "80"})


def printed(
    benchmark: Benchmark, capsys: pytest.CaptureFixture[str], *, markdown: bool = False, **of: bool
) -> str:
    bench_report.show(Output(**of), benchmark, markdown=markdown)
    said, told = capsys.readouterr()
    assert not told
    return said


def figures(content: object) -> Iterator[float]:
    """Yield all measured figures of a JSON object."""
    if isinstance(content, dict):
        if content.keys() == {"median", "deviation", "values"}:
            assert math.isfinite(content["deviation"])
            yield from (content["median"], *content["values"])
        else:
            for value in content.values():
                yield from figures(value)
    elif isinstance(content, list):
        for value in content:
            yield from figures(value)


def plain(features: list[str]) -> list[str]:
    """Instruction sets that models without quantized weights use."""
    return [name for name in features if name != TILES]


def test_all_figures_are_there_for_each_round(
    benchmark: Benchmark, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(printed(benchmark, capsys, json_mode=True))
    assert content["schema"] == "maxtool.bench/1"
    assert all(value > 0 for value in figures(content))
    assert content["machine"]["threads"] == 1
    assert content["machine"]["read_bytes"] >= 1 << 28
    for artifact in content["artifacts"]:
        assert artifact["threads"] == 1
        machine = content["machine"]["target"]
        assert artifact["target"] == {**machine, "features": plain(machine["features"])}
        assert len(artifact["load_seconds"]["values"]) == 2
        for case in artifact["cases"]:
            assert len(case["per_second"]["values"]) == 2


def test_cases_follow_from_the_task(
    benchmark: Benchmark, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(printed(benchmark, capsys, json_mode=True))
    cases = {
        Path(artifact["folder"]).name: [
            (case["entry"], case["unit"], case["sizes"]) for case in artifact["cases"]
        ]
        for artifact in content["artifacts"]
    }
    assert cases == {
        "decoder": [
            ("prefill", "token", {"prompt": CONTEXT - 4}),
            ("decode", "token", {"prompt": CONTEXT - 4, "tokens": 4}),
        ],
        "encoder": [("embed", "text", {"batch": batch, "length": 40}) for batch in (1, 8)],
        "module": [("forward", "call", {"batch": 1})],
    }


def test_bytes_and_operations_of_the_sample(benchmark: Benchmark) -> None:
    """Four layers of width 96, eight heads of 16 (six of queries), a tied head of 1024 rows."""
    matrices = 4 * (2 * 96 * 96 + 2 * 32 * 96 + 3 * 256 * 96) + 1024 * 96
    norms = 9 * 96
    decode = benchmark.artifacts[0].cases[1].case.work
    assert decode is not None
    start, cached = CONTEXT - 4, 4 * 2 * 32 * 4
    positions = sum(start + i + 2 for i in range(4)) / 4  # those read, and the one written
    rows = 96 * 4 + 2 * 8 * 4  # of the embedding, and of both tables of angles
    assert decode.bytes == (matrices + norms) * 4 + cached * positions + rows
    assert decode.multiply_adds == matrices + 4 * 2 * 96 * (positions - 1)
    module = benchmark.artifacts[2].cases[0].case.work
    assert module is not None
    # Blocks of columns are filled up, so that the file may hold more than the parameters.
    assert module.bytes >= 4 * (64 * 32 + 32 + 32 * 10 + 10)
    assert module.multiply_adds is None


def test_kernels_read_the_weights_that_are_counted(benchmark: Benchmark) -> None:
    """The shapes of what kernels are given are not the manifest's, from which bytes are counted."""
    matrices = 4 * (2 * 96 * 96 + 2 * 32 * 96 + 3 * 256 * 96) + 1024 * 96
    for measured, calls in zip(benchmark.artifacts[0].cases, (1, 1), strict=True):
        profile = measured.profile
        assert profile is not None
        assert sum(kernel.bytes for kernel in profile.kernels) == (matrices + 9 * 96) * 4
        by_weights = {kernel.weights: kernel for kernel in profile.kernels if kernel.bytes}
        assert by_weights["layers.*.mlp.down.weight"].calls == 4 * calls
        assert by_weights["embed.weight"].calls == calls
        assert all(kernel.seconds > 0 for kernel in profile.kernels)
        assert profile.between >= 0
        assert not any("decoderlayer" in kernel.kernel for kernel in profile.kernels)


def test_a_profile_is_a_table_for_each_case(
    benchmark: Benchmark, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(benchmark, capsys)
    assert said.count("between kernels") == sum(len(one.cases) for one in benchmark.artifacts)
    assert re.search(r"^linear_float32\w* +mlp\.down +4 ", said, re.MULTILINE)


def test_a_picture_has_a_bar_for_each_kernel(benchmark: Benchmark) -> None:
    root = ElementTree.fromstring(kernel_chart.draw(benchmark))  # noqa: S314 - our own
    svg = "{http://www.w3.org/2000/svg}"
    bars = [one for one in root.iter(f"{svg}rect") if one.get("class")]
    profiles = [case.profile for one in benchmark.artifacts for case in one.cases]
    shown = [min(len(one.kernels), kernel_chart.MOST_BARS + 1) + 1 for one in profiles if one]
    assert len(bars) == sum(shown)
    assert all(0 <= float(bar.get("width", "")) <= kernel_chart.WIDTH for bar in bars)
    titles = [one.text for one in root.iter(f"{svg}text") if one.get("class") == "title"]
    assert titles[:2] == ["decoder: prefill 44", "decoder: decode at 44"]


def test_a_picture_is_written(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "run", lambda *_: benchmark)
    file = tmp_path / "kernels.svg"
    for options, code in ([], 0), ([], 2), (["--force"], 0):
        done = invoke("bench", tmp_path / "model", "--profile", file, *options)
        assert done.exit_code == code, done.output
    assert file.read_text(encoding="utf-8") == kernel_chart.draw(benchmark)


def test_tables_fit_a_terminal_and_name_the_instructions(
    benchmark: Benchmark, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(benchmark, capsys)
    lines = said.splitlines()
    features = benchmark.machine.target["features"]
    assert isinstance(features, list)
    assert " ".join(features) in said
    assert said.count(" ".join(plain(features))) == 1 + len(SOURCES)
    assert [line for line in lines if line.startswith("artifact")]
    for name in (
        "load",
        "first token or first vector",
        "anonymous",
        "mapped",
        "of read",
        "of peak",
    ):
        assert name in said
    for label in (
        "prefill 44",
        "decode at 44",
        "embed 8\N{MULTIPLICATION SIGN}40",
        "forward batch=1",
    ):
        assert label in said


def test_markdown_is_tables_of_equal_rows(
    benchmark: Benchmark, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(benchmark, capsys, markdown=True).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    heads = [line for line in tables if ":---" in line]
    assert len(heads) == 2 + 5
    assert {line.count(" | ") for line in heads} == {line.count(" | ") for line in tables} == {5, 7}
    assert sum(line.startswith("- ") for line in lines) == 1 + len(SOURCES)


def compiled_for(**target: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        content: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
        del content["manifest_sha256"]
        tiny_artifact.write(folder, {**content, "target": target})

    return change


def cut(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


REFUSED: Mapping[str, tuple[str, tuple[str, ...], int, str]] = {
    "both forms": ("decoder", ("--markdown", "--json"), 2, "do not go together"),
    "no round": ("decoder", ("--rounds", "0"), 2, "--rounds is 0; it is at least 1"),
    "no prompt": ("decoder", ("--prompt", "0"), 2, "--prompt is 0"),
    "no thread": ("decoder", ("--threads", "0"), 2, "--threads is 0"),
    "a size without a number": ("module", ("--size", "batch"), 2, "is not NAME=N"),
    "an unknown size": ("module", ("--size", "rows=2"), 2, "has no size rows"),
    "a batch of a decoder": ("decoder", ("--batch", "2"), 2, "compile it with --batch N"),
    "a prompt of a module": ("module", ("--prompt", "2"), 2, "--prompt means nothing to a model"),
    "a long prompt": ("decoder", ("--prompt", "40", "--tokens", "9"), 4, "context of 48"),
    "a long text": ("encoder", ("--prompt", "41"), 4, "41 tokens go beyond the context of 40"),
    "no artifact": (".", (), 3, "manifest.json"),
    "a picture of another name": ("decoder", ("--profile", "x.png"), 2, "call it NAME.svg"),
    "a picture in no folder": ("decoder", ("--profile", "no/x.svg"), 2, "does not exist"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, artifacts: Path) -> None:
    folder, options, code, message = REFUSED[name]
    done = invoke("bench", artifacts / folder, *options)
    assert done.exit_code == code
    assert message in " ".join((done.stderr + done.stdout).split())


DAMAGED: Mapping[str, tuple[Callable[[Path], object], int, str]] = {
    "for a GPU": (compiled_for(kind="cuda"), 4, "compiled for cuda"),
    "for another machine": (
        compiled_for(kind="cpu", triple="mips64-linux-gnu"),
        6,
        "was compiled for mips64, and this machine is",
    ),
    "changed": (cut, 1, "tokenizer.json is not the file that was compiled"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", DAMAGED)
def test_an_artifact_that_cannot_run(name: str, artifacts: Path, tmp_path: Path) -> None:
    damage, code, message = DAMAGED[name]
    folder = Path(shutil.copytree(artifacts / "decoder", tmp_path / "model"))
    damage(folder)
    done = invoke("bench", folder, "--rounds", 1, "--threads", 1)
    assert done.exit_code == code
    assert message in " ".join(done.stderr.split())


@pytest.mark.long
def test_a_model_of_images(tmp_path: Path) -> None:
    """Measure its functions at their least sizes: it has no first token."""
    made(written(tmp_path / "model", "ViT-classifier"))
    done = invoke("bench", tmp_path / "compiled", "--rounds", 1, "--threads", 1, "--quiet")
    assert done.exit_code == 0, done.output
    assert "forward batch=1" in done.output
    assert "first" not in done.output
