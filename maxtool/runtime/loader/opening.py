"""The model that the programs run."""

from __future__ import annotations

from .model import Model, load
from .options import CommonOptions
from .terminal import bar


def open_model(options: CommonOptions) -> Model:
    """Open the artifact on the device that is asked for, with a bar while weights are copied."""
    with bar(options, hidden=False) as show:
        return load(options.folder, check=options.verify, device=options.device, progress=show)
