"""The file of a page: checked before work begins, and written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from maxtool.cli import options
from maxtool.errors import UsageError

SUFFIXES = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class Page:
    """The page that a command was asked to draw, if it was."""

    file: Path | None
    force: bool = False

    @property
    def wanted(self) -> bool:
        """Return whether there is to be one."""
        return self.file is not None

    def check(self, sources: Sequence[Path | str]) -> None:
        """Refuse a page that cannot be written, before anything is read or computed."""
        if self.file is None:
            return
        from maxtool.files import check_output
        from maxtool.urls import is_url

        options.local_output(str(self.file))
        if self.file.suffix.lower() not in SUFFIXES:
            raise UsageError("the page is an HTML file", file=self.file, hint="call it NAME.html")
        local = tuple(Path(source) for source in sources if not is_url(str(source)))
        check_output(self.file, force=self.force, sources=local)

    def write(self, content: str) -> None:
        """Write the page."""
        if self.file is None:
            return
        from maxtool.files import staged

        with staged(self.file, replace=self.force) as path:
            path.write_text(content, encoding="utf-8")
