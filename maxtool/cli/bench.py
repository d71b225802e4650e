"""``maxtool bench``: how fast compiled models are, and how near that is to what the machine can."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maxtool.cli import options
from maxtool.cli.output import Output
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from maxtool.benchmark.results import Benchmark


def bench(
    out: Output,
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...",
            help="Folders that maxtool compile wrote; several take turns.",
            show_default=False,
        ),
    ],
    prompt: Annotated[
        list[int] | None,
        typer.Option(
            "--prompt",
            metavar="N",
            help="Tokens of a prompt, 512 if absent; of each text of an encoder, 128. "
            "May be repeated.",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", metavar="N", help="Tokens to make behind a prompt, 64 if absent."),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            "--batch",
            metavar="N",
            help="Texts in a call: of an encoder, 1 and 8 if absent; of a decoder with --batch, "
            "1, 2, 4 and so on. May be repeated.",
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="NAME=N",
            help="Of a module: a size of its inputs, the least if absent. May be repeated.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", help="How often everything is measured.")
    ] = 5,
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", help="Threads to use; one per core if absent."),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE.svg",
            help="List the kernels by the time that they take, and draw them into this file.",
        ),
    ] = None,
    force: options.Force = False,
    markdown: Annotated[
        bool, options.flag("--markdown", help="Print tables to paste into a Markdown file.")
    ] = False,
) -> None:
    """Measure how fast compiled models are on this machine.

    Time to load and to the first token, memory, tokens or texts a second, and what share that is
    of the memory bandwidth and arithmetic of this machine, measured in turns with the models.
    """
    if markdown and out.json_mode:
        raise UsageError("--markdown and --json do not go together")
    if profile is not None:
        _check_picture(profile, folders, force=force)
    from maxtool.benchmark.cases import Settings
    from maxtool.benchmark.rounds import run
    from maxtool.cli import bench_report

    settings = Settings(
        prompts=prompt or (),
        tokens=tokens,
        batches=batch or (),
        sizes=dict(map(_size, size or ())),
        rounds=rounds,
        threads=threads,
        profile=profile is not None,
    )
    with out.progress("reading manifests") as meter:
        benchmark = run(folders, settings, meter.stage)
    if profile is not None:
        _draw(benchmark, profile, force=force)
    bench_report.show(out, benchmark, markdown=markdown)


def _check_picture(file: Path, folders: list[Path], *, force: bool) -> None:
    """Refuse a picture that cannot be written before anything is measured."""
    from maxtool.files import check_output

    options.local_output(str(file))
    if file.suffix.lower() != ".svg":
        raise UsageError("the picture is an SVG file", file=file, hint="call it NAME.svg")
    check_output(file, force=force, sources=tuple(folders))


def _draw(benchmark: Benchmark, file: Path, *, force: bool) -> None:
    """Write the picture of the kernels."""
    from maxtool.cli.pages.kernel_chart import draw
    from maxtool.files import staged

    with staged(file, replace=force) as path:
        path.write_text(draw(benchmark), encoding="utf-8")


def _size(text: str) -> tuple[str, int]:
    """Parse a size of a module."""
    name, _, number = text.partition("=")
    if not name or not number.isascii() or not number.isdigit():
        raise UsageError(f"--size {text!r:.80} is not NAME=N, such as n=64")
    return name, int(number[:18])
