"""``maxtool embed``: what the ``run.py`` of an artifact that makes embeddings does."""

from __future__ import annotations

from typing import Any

from maxtool.cli import options
from maxtool.cli.output import Output
from maxtool.cli.programs import TABLE, execute, with_options


@with_options(TABLE.EMBEDDING)
def embed(out: Output, folder: options.Artifact, **given: Any) -> None:  # noqa: ANN401
    """Make a vector of each text with a compiled model."""
    from maxtool.runtime import loader

    execute(loader.parse_embedding, folder, TABLE.EMBEDDING, given, out)
