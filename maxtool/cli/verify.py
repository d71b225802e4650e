"""``maxtool verify``: every file of a compiled model, held against its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxtool.cli import options, units
from maxtool.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from maxtool.runtime.loader.manifest import Manifest

SCHEMA = "maxtool.verify/1"


def verify(out: Output, folder: options.Artifact) -> None:
    """Check that every file of a compiled model is the one that was compiled.

    Exits with 1 when a file differs or was added, with 3 when one is missing.
    """
    from typer import Exit

    from maxtool.errors import NegativeAnswer, translated
    from maxtool.runtime.loader.errors import RunError
    from maxtool.runtime.loader.manifest import Manifest

    try:
        manifest = Manifest(folder)
        total = sum(manifest.sizes.values())
        with out.progress("reading", total) as meter:
            differences = [error.what for error in manifest.differences(meter, again=True)]
    except RunError as error:
        raise translated(error) from None
    differences += [f"{path} is not one of its files" for path in _added(manifest)]
    count = len(manifest.files)
    if out.json_mode:
        content = {"folder": str(folder), "files": count, "bytes": total}
        out.data(SCHEMA, {**content, "differences": differences})
    else:
        for difference in differences:
            out.say(difference)
        checked = f"{units.plural(count, 'file')}, {units.binary_size(total)}"
        verdict = units.plural(len(differences), "difference") if differences else "as compiled"
        out.say(f"{folder}: {checked}: {verdict}")
    if differences:
        raise Exit(NegativeAnswer.exit_code)


def _added(manifest: Manifest) -> Iterator[Path]:
    """Yield the files in the folder that the manifest does not list."""
    known = {path.resolve() for path in (manifest.path, *manifest.files)}
    for path in sorted(manifest.folder.rglob("*")):
        if not path.is_dir() and path.absolute() not in known:
            yield path.relative_to(manifest.folder)
