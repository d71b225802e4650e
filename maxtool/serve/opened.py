"""Models opened to be served, under names that requests use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from maxtool.errors import UsageError, translated
from maxtool.runtime import loader
from maxtool.serve.limits import Limits
from maxtool.serve.metrics import Metrics
from maxtool.serve.served import Served


def names_of(folders: Sequence[Path]) -> Mapping[str, Path]:
    """The folders by the names that requests use: their own, without the path.

    Raises:
        UsageError: If two have the same.
    """
    names: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in names:
            hint = "rename one; requests name models by their folders"
            raise UsageError(f"two folders are called {name!r}", file=folder, hint=hint)
        names[name] = folder
    return names


def opened(
    names: Mapping[str, Path],
    limits: Limits,
    metrics: Metrics,
    *,
    device: str | None,
    check: bool,
    progress: Callable[[str], None],
) -> list[Served]:
    """Load models, each with its thread; ``progress`` is told which is next.

    Raises:
        MaxtoolError: The loader's, where a model cannot be loaded.
    """
    models = []
    for name, folder in names.items():
        progress(f"loading {name}")
        try:
            model = loader.load(folder, check=check, device=device)
            models.append(Served(name, model, limits, metrics))
        except loader.RunError as error:
            raise translated(error) from error
    return models
