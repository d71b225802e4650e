"""The files beside an ONNX model that hold payloads, none of which may lie outside its folder."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from maxtool.errors import InputError, MissingFile
from maxtool.weights.names import stays_inside
from maxtool.weights.source_file import SourceFile, Stamp, cut_off, unreadable
from maxtool.weights.tensor_info import TensorInfo, TensorSpec

MAX_FILES = 1024
_NUMBER = re.compile(r"[0-9]{1,19}")


class ExternalFiles:
    """The files that a model's tensors name, relative to its folder; each is looked at once."""

    def __init__(self, source: SourceFile) -> None:
        self.source, self.model = source, source.path
        self._stamps: dict[str, Stamp] = {}

    @property
    def files(self) -> dict[Path, Stamp]:
        """Every file that was found, as it was."""
        return {self.model.parent / location: seen for location, seen in self._stamps.items()}

    def find(self, spec: TensorSpec, entries: Mapping[str, str], at: int) -> TensorInfo:
        """Return the tensor described ``at`` an offset, by the entries of its ``external_data``."""
        location = entries.get("location", "")
        if location not in self._stamps:
            self._stamps[location] = self._open(location, spec.name, at)
        size = self._stamps[location].size
        offset = self._number(entries, "offset", 0, spec.name, at)
        length = self._number(entries, "length", size - offset, spec.name, at)
        nbytes = spec.nbytes
        if length != nbytes or offset + nbytes > size:
            what = f"the tensor needs {nbytes} bytes; the model names {max(length, 0)} bytes at"
            what = f"{what} {offset} of {location!r}, which has {size}"
            missing = offset + nbytes - size
            hint = cut_off(missing) if nbytes == length and missing > 0 else None
            self.source.fail(what, at, spec.name, hint)
        return spec.at(self.model.parent / location, offset)

    def _number(
        self, entries: Mapping[str, str], key: str, default: int, tensor: str, at: int
    ) -> int:
        text = entries.get(key)
        if text is None:
            return default
        if not _NUMBER.fullmatch(text):
            what = f"the {key} of external data is {text[:40]!r}, not a whole number"
            self.source.fail(what, at, tensor)
        return int(text)

    def _open(self, location: str, tensor: str, at: int) -> Stamp:
        """Check a location; returns what its file is now."""
        if not stays_inside(location):
            what = f"the external data {location!r} is not a plain path in the model's folder"
            raise InputError(what, file=self.model, tensor=tensor, offset=at)
        if len(self._stamps) >= MAX_FILES:
            what = f"external data in more than {MAX_FILES} files"
            self.source.fail(what, at, tensor)
        file = self.model.parent / location
        try:
            inside = self._is_inside(file)
            status = file.stat()
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise unreadable(file, error, hint=f"{self.model.name} keeps weights in it") from error
        if not inside or (status.st_nlink > 1 and file.resolve() != self.model.resolve()):
            what = f"the external data {location!r} is a link that may lead outside the folder"
            hint = "replace it by a copy if that is intended"
            raise InputError(what, file=self.model, tensor=tensor, offset=at, hint=hint)
        if not stat.S_ISREG(status.st_mode):
            raise MissingFile("not a regular file", file=file, tensor=tensor)
        return Stamp.of(status)

    def _is_inside(self, file: Path) -> bool:
        """Return whether a file lies in the model's folder, or in that of the linked model.

        The Hugging Face cache keeps model and data in one folder and links both of them.
        """
        real = file.resolve(strict=True)
        folders = {self.model.parent.resolve(), self.model.resolve().parent}
        return any(folder in real.parents for folder in folders)
