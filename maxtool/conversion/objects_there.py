"""Objects that an output in an object store would replace, and rules for which of them it may."""

from __future__ import annotations

import re

from maxtool.conversion.layout import Layout, family
from maxtool.conversion.replaceable import strange_names
from maxtool.conversion.request import Request
from maxtool.errors import OutputExists, UsageError
from maxtool.object_storage import Destination, bucket
from maxtool.urls import redacted
from maxtool.weights.names import listed

HINT = "pass --force to replace it"


def check_objects(request: Request, layout: Layout) -> None:
    """Check that the objects of an output may be written.

    Raises:
        OutputExists: If there are some and ``--force`` was not given.
        UsageError: If they are not of a checkpoint, or are the source.
    """
    destination = _destination(request)
    _check_source(request, destination)
    present = sorted(present_objects(request, layout))
    if present and not request.force:
        where = redacted(url_of(request, present[0]))
        raise OutputExists("the output exists", file=where, hint=HINT)
    if request.target != "hf":
        return
    if bucket.described(destination.url) is not None:
        what = "an object has the name of the folder that would be written"
        raise UsageError(what, file=destination.shown)
    if present and (found := strange_names(present)):
        what = "the output folder holds objects that do not belong to a checkpoint"
        hint = "choose another --output, or remove the folder yourself"
        raise UsageError(
            f"{what}; it is not replaced", file=destination.shown, problems=listed(found), hint=hint
        )


def present_objects(request: Request, layout: Layout) -> set[str]:
    """The names of the objects that are there of such an output; with ``--force`` of any number."""
    destination = _destination(request)
    if request.target == "hf":
        return {*bucket.below(destination.url)}
    own = layout.replaced or re.compile(re.escape(layout.entry))
    names = (family(request) if request.force else None) or own
    folder = destination.url.rpartition("/")[0]
    return {
        name for name in bucket.names_in(folder) if names.fullmatch(name) or own.fullmatch(name)
    }


def url_of(request: Request, name: str) -> str:
    """The URL of a file of an output."""
    destination = _destination(request)
    inside = request.target == "hf"
    return f"{destination.url}/{name}" if inside else destination.beside(name)


def _destination(request: Request) -> Destination:
    """The destination, which requests that come here have."""
    if request.destination is None:
        raise UsageError("the output is not in an object store", file=request.output)
    return request.destination


def _check_source(request: Request, destination: Destination) -> None:
    """Refuse an output that is, holds or lies in the source."""
    source = str(request.origin.get("name", "")).rstrip("/")
    output = destination.shown
    if source and any(
        one == other or one.startswith(f"{other}/")
        for one, other in ((source, output), (output, source))
    ):
        what = "the output would overwrite the source or lie inside it"
        raise UsageError(what, file=output, hint="choose another --output")
