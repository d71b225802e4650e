"""Files held against recorded checksums, and the lists of these that ``sha256sum`` reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from maxtool.errors import MalformedFile, MissingFile
from maxtool.files.hashing import sha256

# A digest, a blank, a blank or an asterisk, a name; sha256sum escapes names only with a backslash
# before the digest, and names with line breaks are nowhere written here.
LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
MAX_LIST_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A file as it was when it was written: its name, SHA-256 and, if it is known, its bytes."""

    name: str
    sha256: str
    nbytes: int | None = None

    def difference(self, folder: Path, progress: Callable[[int], None]) -> str | None:
        """Describe how the file in a folder differs; None if it does not."""
        path = folder / self.name
        if not path.is_file():
            return f"{self.name} is missing"
        size = path.stat().st_size
        if sha256(path, progress) == self.sha256:
            return None
        same = self.nbytes is None or size == self.nbytes
        why = "its SHA-256 is another" if same else f"it had {self.nbytes} bytes and has {size}"
        return f"{self.name} is not the file that was written: {why}"


def differences(
    folder: Path, files: Iterable[RecordedFile], progress: Callable[[int], None]
) -> Iterator[str]:
    """Yield what differs in a folder, a sentence for each file that does."""
    found = (file.difference(folder, progress) for file in files)
    return (difference for difference in found if difference is not None)


def read_list(path: Path) -> list[RecordedFile]:
    """The files that a list of checksums names.

    Raises:
        MissingFile: If the list cannot be read.
        MalformedFile: If a line is no checksum, or a name leads out of the folder.
    """
    try:
        with path.open("rb") as stream:
            lines = stream.read(MAX_LIST_BYTES).decode(errors="replace").splitlines()
    except OSError as error:
        raise MissingFile(f"cannot be read: {error.strerror}", file=path) from None
    matches = [LINE.fullmatch(line) for line in lines]
    problems = [
        f"line {number} is not a checksum and the name of a file in this folder"
        for number, match in enumerate(matches, 1)
        if match is None or not is_inside(match[2])
    ]
    if problems or not lines:
        raise MalformedFile("the list of checksums is malformed", file=path, problems=problems[:20])
    return [RecordedFile(match[2], match[1].lower()) for match in matches if match]


def is_inside(name: str) -> bool:
    """Return whether a recorded name stays in the folder of the record."""
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name
