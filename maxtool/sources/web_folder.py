"""A folder of a web server, which lists nothing: files are asked for by their usual names."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from urllib.parse import quote

from maxtool.errors import MissingFile
from maxtool.recipe import sentence_transformers
from maxtool.sources.announced import announced
from maxtool.sources.origin import Listed
from maxtool.sources.patience import patiently
from maxtool.sources.selection import BESIDE, MAIN
from maxtool.sources.url_origin import UrlOrigin
from maxtool.weights import hub
from maxtool.weights.remote.http import HttpStore
from maxtool.weights.remote.url import file_name, inside, redacted

NOT_THERE = "HTTP 404"
AT_ONCE = 8  # requests side by side
# What may lie in a folder; of a file that is named, what lies beside it.
BELOW = (f"{sentence_transformers.POOLING_FOLDER}/config.json",)
FILES = (*MAIN, *BESIDE, *BELOW)
# Endings of files with weights, and of what lists them: any other URL is a folder's.
ENDINGS = frozenset(
    (".safetensors", ".gguf", ".json", ".bin", ".pth", ".pt", ".onnx", ".npz", ".npy")
)


class WebFolder(UrlOrigin):
    """Files of a web server that lie in one folder."""

    store: HttpStore

    def __init__(self, url: str, *, is_file: bool = False) -> None:
        name = file_name(url)
        is_file = is_file or Path(name).suffix.lower() in ENDINGS
        super().__init__(url, name if is_file else "", HttpStore(math.inf))
        if is_file:
            self._look(name)

    def look_around(self) -> None:
        """List what may belong to a model; ``MissingFile`` if no weights are there."""
        if self.asked:
            names: Sequence[str] = () if self.asked.endswith(".gguf") else (*BESIDE, *BELOW)
        else:
            names = FILES
        problems = self._look_all([name for name in names if name not in self.listing])
        if not self.asked and not self.listing.keys() & {*MAIN}:
            telling = [error for error in problems if NOT_THERE not in error.what] or problems
            what = telling[0].what if telling else "no weights are there"
            repository = hub.behind(self.name)
            hint = f"asked for: {', '.join(MAIN)}; name another file by its own URL"
            hint = f"name it {hub.SCHEME}{repository}" if repository else hint
            raise MissingFile(what, file=self.name, hint=hint)

    def look_for(self, files: Iterable[str]) -> None:
        """Ask for these files too."""
        self._look_all([file for file in files if file not in self.listing])

    def url(self, file: str) -> str:
        """The URL of a file; that of the file which was named is as it was given."""
        return self.given if file == self.asked else inside(self.folder_url, quote(file))

    def _look_all(self, files: Sequence[str]) -> list[MissingFile]:
        """Ask for files side by side; return why some cannot be had."""

        def look(file: str) -> MissingFile | None:
            try:
                self._look(file)
            except MissingFile as error:
                return error
            return None

        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                return [error for error in pool.map(look, files) if error is not None]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.store.stop()
                raise

    def _look(self, file: str) -> None:
        """List a file if it is there."""
        url = self.url(file)
        told = patiently(lambda: self.store.describe(url), Event(), where_asked=True)
        if told.headers.get("content-type", "").startswith("text/html"):
            what = "the server sends a page of HTML, perhaps to log in, and not the file"
            raise MissingFile(what, file=redacted(url))
        checksum = announced(told.headers, told.first, told.size)
        self.listing[posixpath.normpath(file)] = Listed(told.size, checksum, told.version)
