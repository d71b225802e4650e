"""Comparison of outputs that are there with what a conversion would write: ``--if-changed``.

The files of an output have no place to say what they were made of, so that is noted in the user's
cache, by the path of the output: what was asked, and SHA-256 of every file that was read or
written. Nothing else depends on the note; where it is lost, the output is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from maxtool.conversion.resuming import plan_identity
from maxtool.files import present_parts, staged
from maxtool.files.content import MISSING, Contents
from maxtool.files.user_cache import user_cache
from maxtool.quantization.scheme import files_read

if TYPE_CHECKING:
    from maxtool.conversion.engine import Conversion, Report

Progress: TypeAlias = Callable[[int], None]

SCHEMA = "maxtool.converted/1"
FOLDER = "converted"
ROOT = Path("/")  # paths are absolute


class Earlier:
    """Note of how an output was last made.

    Args:
        planned: The conversion, which writes to that output.

    Raises:
        RuntimeError: If no place for a cache is known.
    """

    def __init__(self, planned: Conversion) -> None:
        self._planned = planned
        output = os.fsencode(planned.request.output.absolute())
        name = hashlib.sha256(output).hexdigest()
        self._note = user_cache() / FOLDER / f"{name}.json"
        self._contents = Contents(ROOT, self._note.with_suffix(".hashes"))

    def is_current(self, progress: Progress | None = None) -> bool:
        """Return whether the output is there, whole, and what this conversion would write.

        ``progress`` is told the bytes that are hashed, since the last call.
        """
        self._contents.progress = progress
        try:
            content = json.loads(self._note.read_bytes())
            written = dict(content["written"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return False
        planned = {str(path) for path in self._outputs}
        if content.get("schema") != SCHEMA or not written.keys() == planned == self._there():
            return False
        if content.get("asked") != self._asked() or content.get("read") != self._read():
            return False
        found = self._contents.digests(planned)
        with suppress(OSError):
            self._contents.save()  # the next run need not hash what was new when it was noted
        return MISSING not in written.values() and found == written

    def note(self, report: Report, progress: Progress | None = None) -> None:
        """Note that the conversion was run; a cache that cannot be written is left alone.

        Raises:
            ChangedFile: If a file of the source was written to meanwhile.
        """
        self._contents.progress = progress
        digests = {self._path(name): digest for name, digest in report.sha256.items()}
        written = {
            str(path): digests.get(path) or self._contents.digest(str(path))
            for path in self._outputs
        }
        content = {"asked": self._asked(), "read": self._read(), "written": written}
        self._planned.checkpoint.check_unchanged()  # while it was hashed
        with suppress(OSError):
            self._note.parent.mkdir(parents=True, exist_ok=True)
            self._contents.save()
            with staged(self._note) as path:
                path.write_text(json.dumps({"schema": SCHEMA, **content}))

    def _asked(self) -> Mapping[str, str]:
        planned, request = self._planned, self._planned.request
        asked = plan_identity(request, planned.layout, planned.recipe)
        return {**asked, **({"--verify": "given"} if request.verify else {})}

    def _read(self) -> Mapping[str, str]:
        beside = files_read(self._planned.request.quantize)
        paths = {str(path.absolute()) for path in (*self._planned.read.values(), *beside)}
        return self._contents.digests(sorted(paths))

    @property
    def _outputs(self) -> list[Path]:
        return [self._path(name) for name in self._planned.layout.parts]

    def _there(self) -> set[str]:
        """The files that are part of the output that is there, whether planned or not."""
        output, replaced = self._planned.request.output.absolute(), self._planned.layout.replaced
        if output.is_dir():
            return {*self._contents.below(str(output))}
        if replaced is None:
            return {str(output)}
        return {str(output.with_name(name)) for name in present_parts(output, replaced)}

    def _path(self, name: str) -> Path:
        request = self._planned.request
        output = request.output.absolute()
        return output / name if request.target == "hf" else output.with_name(name)
