"""An output in an object store, put together of its finished parts.

No store replaces several objects at one moment. Readers begin with one of them, the entry: it goes
away first and appears last, so that whoever looks in between sees no output instead of a mixture.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from maxtool.conversion.engine import Conversion, Report
from maxtool.conversion.layout import checksum_lines
from maxtool.conversion.objects_there import check_objects, present_objects, url_of
from maxtool.conversion.request import Request
from maxtool.errors import MaxtoolError
from maxtool.files import SharedParts
from maxtool.object_storage import ObjectParts, bucket


@contextmanager
def standing_in(request: Request) -> Iterator[Request]:
    """Yield a request with a path of this machine, of which the output in an object store is made.

    Errors name the output and not that path.
    """
    if request.destination is None:
        yield request
        return
    with tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        path = Path(folder) / request.destination.name
        try:
            yield replace(request, output=path)
        except MaxtoolError as error:
            if error.file is not None and error.file.startswith(str(path)):
                error.file = request.destination.shown + error.file.removeprefix(str(path))
            raise


def put_together(
    conversion: Conversion, parts: SharedParts, progress: Callable[[int], None] | None = None
) -> Report:
    """Make the output of the parts that are there.

    Args:
        conversion: All of the conversion.
        parts: Its parts, in the object store of the output.
        progress: What is told the bytes of each part that is in its place.

    Raises:
        OutputExists: If the output was written meanwhile.
        VerificationFailed: If a part is no longer what was uploaded.
    """
    assert isinstance(parts, ObjectParts)  # noqa: S101 - for types; those of folders are renamed
    request, layout = conversion.request, conversion.layout
    report = Report(request.output, conversion.nbytes)
    conversion.checkpoint.check_unchanged()
    if parts.is_direct:
        _place(conversion, parts, layout.entry, {}, report, progress)
        return report
    check_objects(request, layout)
    present = present_objects(request, layout)
    small = _small(conversion, parts)
    if layout.entry in present:
        bucket.remove(url_of(request, layout.entry))
    for name in layout.parts[1:]:
        _place(conversion, parts, name, small, report, progress)
    for name in sorted(present - {*layout.parts}):
        bucket.remove(url_of(request, name))
    _place(conversion, parts, layout.entry, small, report, progress)
    return report


def _small(conversion: Conversion, parts: ObjectParts) -> dict[str, bytes]:
    """The files without tensors, by name."""
    layout = conversion.layout
    found = {file.name: parts.part(file.name) for file in layout.files}
    digests = {name: one.part.sha256 for name, one in found.items() if one is not None}
    digests |= {name: hashlib.sha256(data).hexdigest() for name, data in layout.beside.items()}
    lists = {layout.checksums: checksum_lines(digests)} if layout.checksums else {}
    return {**layout.beside, **lists}


def _place(
    conversion: Conversion,
    parts: ObjectParts,
    name: str,
    small: dict[str, bytes],
    report: Report,
    progress: Callable[[int], None] | None,
) -> None:
    """Put one file of the output into its place."""
    request = conversion.request
    url = url_of(request, name)
    if name in small:
        bucket.write(url, small[name])
        nbytes, digest = len(small[name]), hashlib.sha256(small[name]).hexdigest()
    else:
        part = parts.put(name, url).part
        nbytes, digest = part.nbytes, part.sha256
        report.kept.append(name)
        report.warnings += part.remarks.get("warnings", ())
        report.rounded.update(part.remarks.get("rounded", ()))
    if request.hashed and name != conversion.layout.checksums:
        report.sha256[name] = digest
    if progress is not None:
        progress(nbytes)
