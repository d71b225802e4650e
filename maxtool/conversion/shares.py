"""Conversions in shares: each writes some files of the output, wherever and whenever it runs.

What the files are follows from the source and the options alone, so that each share plans the same
output. Share 3 of 16 has the files 3, 19, 35 and so on. The shares put them into a folder beside
the output (:class:`~maxtool.files.PartFolder`); the finishing step makes the output of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from maxtool.conversion.engine import Conversion, Report, convert, write_part
from maxtool.conversion.layout import TensorFile
from maxtool.conversion.object_output import put_together
from maxtool.conversion.part_places import folder_of
from maxtool.errors import MaxtoolError, MissingFile
from maxtool.files import FinishedPart, PartFolder, SharedPart, SharedParts, check_space, kept_parts
from maxtool.quantization import accelerated
from maxtool.weights.names import listed

Progress = Callable[[int], None] | None


@dataclass(frozen=True)
class Share:
    """One share of so many, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        """Share 3 of 16 is ``3/16``."""
        return f"{self.number}/{self.of}"

    def part_of(self, conversion: Conversion) -> Conversion:
        """The conversion of the share's files alone."""
        layout = conversion.layout
        files = layout.files[self.number - 1 :: self.of]
        own = replace(layout, files=files, beside={}, checksums=None)
        tensors = [pair for file in files for pair in file.tensors]
        return replace(conversion, tensors=tensors, layout=own)


def write_share(
    conversion: Conversion, share: Share, folder: SharedParts, progress: Progress = None
) -> Report:
    """Write the files of a share; those that are there already, and whole, are kept.

    Args:
        conversion: All of the conversion.
        share: The share.
        folder: Where its files go.
        progress: What is told the bytes written since the last call.

    Raises:
        UsageError: If other shares were written by other options, or from another source.
        ChangedFile: If the source changes meanwhile.
        OutputExists: If the output was finished meanwhile.
    """
    own = share.part_of(conversion)
    folder.begin()
    report = Report(conversion.request.output, own.nbytes)
    lacking = [
        file for file in own.layout.files if not _is_kept(folder, own, file, report, progress)
    ]
    nbytes = [own.files[file.name] for file in lacking]
    alone = conversion.request.destination is not None  # each is removed once it is uploaded
    check_space(conversion.request.output, max(nbytes, default=0) if alone else sum(nbytes))
    with accelerated(own.quantized_elements, report.warnings.append):
        for file in lacking:
            _write(conversion, share, folder, file, report, progress)
    return report


def finish(conversion: Conversion, folder: SharedParts, progress: Progress = None) -> Report:
    """Make the output of the parts that shares have written, and remove their folder.

    Args:
        conversion: All of the conversion.
        folder: Where the parts are.
        progress: What is told the bytes that were checked since the last call.

    Raises:
        MissingFile: If parts are not there; it lists them, with their shares.
        VerificationFailed: If a part is not what was written.
        UsageError: If the shares were written by other options, or from another source.
    """
    check_parts_of(conversion, folder)
    if isinstance(folder, PartFolder):
        report = convert(conversion, progress, folder)
    else:
        report = put_together(conversion, folder, progress)
    folder.remove()
    return report


def write_all(conversion: Conversion, progress: Progress = None, sent: Progress = None) -> Report:
    """Write an output in an object store by one process, file by file.

    Nothing of it stays if that fails, but with ``--resume`` finished files do.

    Args:
        conversion: The conversion.
        progress: What is told the bytes written since the last call.
        sent: What is told the bytes uploaded since the last call.

    Raises:
        MaxtoolError: What :func:`write_share` and :func:`finish` raise, and uploads.
    """
    folder = folder_of(conversion, sent)
    if not conversion.request.resume:
        folder.remove()
    try:
        written = write_share(conversion, Share(1, 1), folder, progress)
        report = finish(conversion, folder)
    except BaseException:
        if not conversion.request.resume:
            with suppress(MaxtoolError):
                folder.remove()
        raise
    report.kept = written.kept
    report.warnings = [*dict.fromkeys([*written.warnings, *report.warnings])]
    return report


def check_parts_of(conversion: Conversion, folder: SharedParts) -> None:
    """Check that all parts of an output are there; ``MissingFile`` lists those that are not."""
    folder.check()
    files = [file.name for file in conversion.layout.files]
    found = {name: folder.part(name) for name in files}
    counts = {one.share.partition("/")[2] for one in found.values() if one is not None}
    of = int(counts.pop()) if len(counts) == 1 else 0  # how many shares there are, if all agree
    missing = [
        f"{name}: share {number % of + 1}/{of}" if of else name
        for number, name in enumerate(files)
        if found[name] is None
    ]
    if missing:
        what = f"{len(missing)} of {len(files)} files are not there"
        hint = "run the shares that lack; what is there is kept"
        raise MissingFile(what, file=folder.shown, problems=listed(missing), hint=hint)


def kept_files(conversion: Conversion) -> int:
    """The number of finished files that are kept of a conversion that was interrupted."""
    request = conversion.request
    if request.in_shares or (request.destination and request.resume):
        folder = folder_of(conversion)
        return sum(folder.part(file.name) is not None for file in conversion.layout.files)
    return len(kept_parts(request.output)) if request.resume else 0


def _is_kept(
    folder: SharedParts, own: Conversion, file: TensorFile, report: Report, progress: Progress
) -> bool:
    """Return whether a file was written before, and is whole."""
    found = folder.part(file.name)
    if found is None or (own.request.verify and not found.verified):
        return False
    read = 0

    def advance(nbytes: int) -> None:
        nonlocal read
        read += nbytes
        if progress is not None:
            progress(nbytes)

    if not folder.is_whole(found, advance):
        advance(-read)
        report.warnings.append(f"{file.name} was damaged since it was written; it is written anew")
        return False
    report.kept.append(file.name)
    report.sha256[file.name] = found.part.sha256
    return True


def _write(
    conversion: Conversion,
    share: Share,
    folder: SharedParts,
    file: TensorFile,
    report: Report,
    progress: Progress,
) -> None:
    with folder.writing(file.name) as path:
        digest, made = write_part(conversion, file, path, progress)
        nbytes = path.stat().st_size
    remarks = {"warnings": made.warnings, "rounded": sorted(made.rounded)}
    part = FinishedPart(file.name, nbytes, digest, remarks)
    folder.add(SharedPart(part, str(share), conversion.request.verify))
    report.warnings += made.warnings
    report.sha256[file.name] = digest
