"""``maxtool compare``: compiled models by what they predict, checkpoints tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from maxtool.cli import complete, options
from maxtool.cli.compare_artifacts import TextOptions, compare_artifacts
from maxtool.cli.compare_weights import SORTS, TensorOptions, compare_weights
from maxtool.cli.output import Output
from maxtool.cli.pages.page_file import Page
from maxtool.errors import UsageError


def compare(
    out: Output,
    reference: Annotated[
        str,
        typer.Argument(metavar="REFERENCE", help="A checkpoint, or what maxtool compile made."),
    ],
    candidates: Annotated[
        list[str], typer.Argument(metavar="CANDIDATE", help="Others of the same model.")
    ],
    text: Annotated[
        Path | None,
        typer.Option("--text", metavar="FILE", help="For compiled models: the text, in UTF-8."),
    ] = None,
    tokens: options.Tokens = None,
    context: options.WindowLength = None,
    windows: options.WindowCount = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="The device: cpu, cuda or cuda:1; what each was compiled for if absent.",
            autocompletion=complete.one_of("cpu", "cuda"),
        ),
    ] = None,
    no_verify: options.NoVerify = False,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="GLOB",
            help="For checkpoints: only tensors whose whole name in REFERENCE matches.",
        ),
    ] = None,
    flat: Annotated[
        bool, options.flag("--flat", help="One line per tensor, layers apart.")
    ] = False,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="KEY",
            help=f"Order of the lines: {', '.join(SORTS)}; as in REFERENCE if absent.",
            autocompletion=complete.one_of(*SORTS),
        ),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error",
            metavar="X",
            min=0,
            help="Exit with 1 if a tensor's relative error is above X, such as 0.1.",
        ),
    ] = None,
    html: options.Html = None,
    force: options.Force = False,
) -> None:
    """Compare models: checkpoints tensor by tensor, compiled ones by how they predict a text.

    Of checkpoints, also of a Hugging Face folder and a GGUF file: the error of each tensor beside
    its bits per weight. Of compiled models: perplexity and Kullback-Leibler divergence.
    """
    paths = [options.source(out, path).path for path in (reference, *candidates)]
    page = Page(html, force)
    page.check(paths)
    about_text = TextOptions(text, tokens, context, windows, device, no_verify)
    about_tensors = TensorOptions(pattern, flat, sort, max_error)
    of_text = {
        "--text": text,
        "--tokens": tokens,
        "--context": context,
        "--windows": windows,
        "--device": device,
        "--no-verify": no_verify or None,
    }
    of_tensors = {
        "--filter": pattern,
        "--flat": flat or None,
        "--sort": sort,
        "--max-error": max_error,
    }
    if _are_compiled(paths, expected=text is not None or tokens is not None):
        _refuse(of_tensors, "checkpoints", "these are compiled models")
        compare_artifacts(out, paths, about_text, page)
    else:
        _refuse(of_text, "compiled models", "these are checkpoints")
        compare_weights(out, paths, about_tensors, page)


def _are_compiled(paths: Sequence[Path], *, expected: bool) -> bool:
    """Return whether the paths are compiled models, as ``expected`` where nothing says.

    It is an error if some are and others are checkpoints.
    """
    from maxtool.weights.locate import is_compiled, may_be_checkpoint

    compiled = [path for path in paths if is_compiled(path)]
    others = [path for path in paths if may_be_checkpoint(path)]
    if compiled and others:
        what = f"{compiled[0]} is a compiled model and {others[0]} is not"
        hint = "compiled models are compared by what they predict (--text), checkpoints tensor by "
        hint += "tensor: compile the one, or give what the other was compiled from"
        raise UsageError(what, hint=hint)
    return bool(compiled) or (expected and not others)


def _refuse(given: Mapping[str, object], kind: str, instead: str) -> None:
    """Refuse options that the other kind of comparison has."""
    if wrong := [name for name, value in given.items() if value is not None]:
        raise UsageError(f"{', '.join(wrong)}: for {kind}; {instead}")
