"""The place of an output's parts: a folder of a file system, or of an object store."""

from __future__ import annotations

from collections.abc import Callable

from maxtool.conversion.engine import Conversion
from maxtool.conversion.resuming import made_of
from maxtool.files import PartFolder, SharedParts
from maxtool.files.shared_parts import MARK
from maxtool.object_storage import ObjectParts
from maxtool.object_storage.object_parts import ALONE


def folder_of(conversion: Conversion, uploaded: Callable[[int], None] | None = None) -> SharedParts:
    """The folder of an output's parts; ``uploaded`` is told bytes sent to an object store."""
    request, layout = conversion.request, conversion.layout
    made = made_of(request, layout, conversion.recipe, conversion.checkpoint.seen)
    if request.destination is None:
        return PartFolder(request.output, made)
    return ObjectParts(
        request.destination,
        made,
        scratch=request.output.parent,
        mark=MARK if request.in_shares else ALONE,
        is_direct=len(layout.parts) == 1 and not request.in_shares,
        again=request.verify,
        uploaded=uploaded,
    )
