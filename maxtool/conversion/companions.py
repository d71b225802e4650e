"""Files that an earlier output of the same name, in another number of files, left beside it.

Readers would pick them up: an index finds old shards, a folder is searched for splits. Only names
that such outputs have are looked for; and none where one of the files is the source.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from maxtool.conversion.layout import Layout, family
from maxtool.conversion.request import Request
from maxtool.files import present_parts
from maxtool.weights.names import first_of


def replacing_companions(
    layout: Layout, request: Request, sources: tuple[Path, ...]
) -> tuple[Layout, list[str]]:
    """The layout that replaces these files too if ``--force`` is given, and a note that says so."""
    pattern = family(request)
    if pattern is None or not request.force or not request.output.parent.is_dir():
        return layout, []
    own = layout.replaced or re.compile(re.escape(layout.entry))
    there = [request.output.with_name(name) for name in present_parts(request.output, pattern)]
    files = [path for path in there if path.is_symlink() or path.is_file()]
    stale = [path.name for path in files if not own.fullmatch(path.name)]
    read = {source.resolve() for source in sources}
    if not stale or any(path.resolve() in read for path in files):
        return layout, []
    names = re.compile("|".join([own.pattern, *map(re.escape, stale)]))
    what = "--force removes files of an earlier output of this name:"
    said = first_of(sorted(stale, key=lambda name: ("-of-" in name, name)))
    return replace(layout, replaced=names), [f"{what} {said}"]
