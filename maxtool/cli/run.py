"""``maxtool run``: what an artifact's own ``run.py`` does, with the same options."""

from __future__ import annotations

from typing import Any

from maxtool.cli import options
from maxtool.cli.output import Output
from maxtool.cli.programs import TABLE, execute, with_options


@with_options(TABLE.GENERATION)
def run(out: Output, folder: options.Artifact, **given: Any) -> None:  # noqa: ANN401
    """Run a compiled model on text or on arrays."""
    from maxtool.runtime import loader

    execute(loader.parse, folder, TABLE.GENERATION, given, out)
