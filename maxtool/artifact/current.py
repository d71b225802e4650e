"""Comparison of an artifact that is there with what a compilation would give."""

from __future__ import annotations

import json

from maxtool.artifact import build_record
from maxtool.artifact.beside import CountBytes
from maxtool.artifact.planned import Planned
from maxtool.runtime.loader.errors import RunError
from maxtool.runtime.loader.manifest import Manifest


def is_current(planned: Planned, progress: CountBytes) -> bool:
    """Return whether the output is there, whole, and made by the same build for the same machine.

    Sources and files of the artifact are hashed; ``progress`` is told their bytes.
    """
    request, contents = planned.request, planned.contents
    try:
        manifest = Manifest(request.output)
        root = manifest.root
        if root.get("target") != json.loads(json.dumps(contents.target.manifest)):
            return False
        read = build_record.hashed(contents.sources, progress)
        sources = {**read, **build_record.hashed_text(contents.executed)}
        described = build_record.described(request, contents, sources)
        if root.get("build") != json.loads(json.dumps(described)):
            return False
        return not any(manifest.differences(progress, again=True))
    except RunError:  # there is none, or what is there cannot be loaded
        return False
