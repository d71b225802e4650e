"""``maxtool embed``: what the ``run.py`` of an artifact that makes embeddings does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maxtool.cli import options
from maxtool.cli.output import Output
from maxtool.cli.programs import execute, integers


def embed(
    out: Output,
    folder: options.Artifact,
    text: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A text; may be repeated.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A file with a text on each line; - is stdin."),
    ] = None,
    ids: Annotated[str | None, typer.Option(help="The token ids of a text, such as 1,2,3.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="NPY", help="Where the vectors go, if not to stdout."
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Texts in one call.")] = 32,
    device: options.Device = None,
    force: Annotated[bool, options.flag("--force", help="Replace an existing --output.")] = False,
    no_verify: Annotated[bool, options.flag("--no-verify", help="Skip the checksums.")] = False,
) -> None:
    """Make a vector of each text with a compiled encoder."""
    from maxtool.runtime import loader

    asked = loader.EmbedOptions(
        folder=folder,
        texts=text or None,
        file=file,
        ids=None if ids is None else integers(ids),
        output=output,
        batch=batch,
        force=force,
        verify=not no_verify,
        device=device,
        json=out.json_mode,
        quiet=out.quiet,
    )
    execute(asked)
