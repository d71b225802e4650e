"""Options of ``maxtool convert`` in groups, by what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class FileOptions:
    """The files of the output."""

    shard_size: Annotated[
        str | None,
        typer.Option(
            "--shard-size",
            metavar="SIZE",
            help="Tensors of a shard of safetensors at most: 5GB, 500MiB, ...",
        ),
    ] = None
    split_max_size: Annotated[
        str | None,
        typer.Option(
            "--split-max-size",
            metavar="SIZE",
            help="Tensors of a split of GGUF at most: 2G, 500M, ...",
        ),
    ] = None
