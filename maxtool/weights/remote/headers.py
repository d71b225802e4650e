"""Headers of a remote checkpoint, copied into sparse files that any reader takes for the real ones.

A copy has the size of its original and the bytes of its header; payloads are holes. So everything
that is checked of a local checkpoint is checked of a remote one, by the same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from maxtool.errors import InputError, MalformedFile, MaxtoolError, MissingFile
from maxtool.urls import HTTP, beside, file_name, inside, redacted, scheme
from maxtool.weights import locate
from maxtool.weights.cursor import Cursor
from maxtool.weights.formats import HEADERS, Format, gguf
from maxtool.weights.names import check_file_name
from maxtool.weights.remote.filesystem import FilesystemStore
from maxtool.weights.remote.http import HttpStore
from maxtool.weights.remote.store import Store

# The first request takes this much, and each further one twice as much as there is.
FIRST_BYTES = 1 << 18
MAX_HEADER_BYTES = 100_000_000
MAX_JSON_BYTES = 50_000_000
# Files whose headers are fetched side by side.
AT_ONCE = 8

USUAL_NAMES = ("model.safetensors.index.json", "model.safetensors")
ONLY = "from a distance only safetensors and GGUF headers are read: download the file"


@dataclass(frozen=True, slots=True)
class FetchedHeaders:
    """The headers of a remote checkpoint, copied.

    Attributes:
        path: The copy to open.
        urls: What each copy was made from, as it may be printed.
        sizes: Bytes of each original.
        requests: How many ranges were asked for.
        nbytes: How many bytes were transferred.
    """

    path: Path
    urls: Mapping[Path, str]
    sizes: Mapping[Path, int]
    requests: int
    nbytes: int


@contextmanager
def original_named(urls: Mapping[Path, str]) -> Iterator[None]:
    """Name in errors the URL that a copy was made from."""
    try:
        yield
    except MaxtoolError as error:
        if error.file:
            error.file = redacted(urls.get(Path(error.file), error.file))
        raise


def fetch(url: str, folder: Path, store: Store | None = None) -> FetchedHeaders:
    """Copy the headers of the checkpoint behind ``url`` into an empty folder.

    Args:
        url: A safetensors or GGUF file, an index of shards, or a folder with files of usual names.
        folder: The folder.
        store: What to read with; chosen by the scheme if it is not given.
    """
    store = store or (HttpStore() if scheme(url) in HTTP else FilesystemStore())
    copier = _Copier(folder, store)
    with original_named(copier.urls):
        names_a_file = Path(file_name(url)).suffix in {".safetensors", ".gguf", ".json"}
        path = copier.file(url) if names_a_file else copier.usual_file(url)
    urls = {copy: redacted(source) for copy, source in copier.urls.items()}
    return FetchedHeaders(path, urls, copier.sizes, store.requests, store.nbytes)


class _Copier:
    """Copies headers into one folder."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder = folder
        self.store = store
        self.urls: dict[Path, str] = {}
        self.sizes: dict[Path, int] = {}

    def usual_file(self, url: str) -> Path:
        """The file in a remote folder that stands for its checkpoint."""
        for name in USUAL_NAMES:
            try:
                return self.file(inside(url, name))
            except MissingFile as error:
                if error.file != redacted(inside(url, name)):
                    raise  # one of its shards
                last = error
        what = f"{last.what}: {' or '.join(USUAL_NAMES)}"
        raise MissingFile(what, file=redacted(url), hint="name a .safetensors or .gguf file")

    def file(self, url: str) -> Path:
        """One file and whatever belongs to it: its shards or parts, its config.json."""
        name = file_name(url)
        check_file_name(name, redacted(url))
        if name.endswith(".json"):
            copy = self._whole(url, name)
            self._headers({shard: beside(url, shard) for shard in locate.named_shards(copy)})
        else:
            parts = {part: beside(url, part) for part in locate.named_parts(name)}
            self._headers(parts | {name: url})
            copy = self.folder / name
        if name.endswith((".json", ".safetensors")):
            with suppress(MissingFile):
                self._whole(beside(url, "config.json"), "config.json")
        return copy

    def _headers(self, urls: Mapping[str, str]) -> None:
        """Headers of several files, side by side; when one fails, nobody waits for the others."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            started = [pool.submit(self._header, name, url) for name, url in urls.items()]
            try:
                for future in as_completed(started):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.store.stop()
                raise

    def _header(self, name: str, url: str) -> None:
        check_file_name(name, redacted(url))
        first, total = self.store.read(url, 0, FIRST_BYTES)
        copy = self._sparse(name, url, total)
        if not total:
            return
        cursor = _RemoteCursor(first, copy, url, self.store, total)
        HEADERS[_kind(first, name, url)](cursor)
        with copy.open("r+b") as stream:
            stream.write(cursor.data)

    def _whole(self, url: str, name: str) -> Path:
        """A small file, all of it."""
        first, total = self.store.read(url, 0, FIRST_BYTES)
        if total > MAX_JSON_BYTES:
            what = f"{total} bytes of JSON; at most {MAX_JSON_BYTES} are fetched"
            raise MalformedFile(what, file=redacted(url))
        rest = total - len(first)
        data = first + (self.store.read(url, len(first), rest).data if rest > 0 else b"")
        copy = self._sparse(name, url, total)
        copy.write_bytes(data)
        return copy

    def _sparse(self, name: str, url: str, size: int) -> Path:
        """An empty copy of a file's size."""
        copy = self.folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open("wb") as stream:
            try:
                stream.truncate(size)
            except (OSError, ValueError, OverflowError):
                what = f"the server says it has {size} bytes, more than any file can have here"
                raise InputError(what, file=redacted(url)) from None
        self.urls[copy], self.sizes[copy] = url, size
        return copy


def _kind(first: bytes, name: str, url: str) -> Format:
    if first[:4] == gguf.MAGIC or name.endswith(".gguf"):
        return "gguf"
    if first[8:9] == b"{" or name.endswith(".safetensors"):
        return "safetensors"
    raise InputError("the format was not recognised", file=redacted(url), hint=ONLY)


class _RemoteCursor(Cursor):
    """Fetches the bytes that it comes to, from the start without gaps."""

    data: bytearray

    def __init__(self, first: bytes, file: Path, url: str, store: Store, total: int) -> None:
        super().__init__(bytearray(first), file, end=total)
        self.url = url
        self.store = store

    def _fetch(self, needed: int) -> None:
        if needed > MAX_HEADER_BYTES:
            self.fail(f"a header of more than {MAX_HEADER_BYTES} bytes, which is not fetched")
        end = min(max(needed, 2 * self.ready), self.end, MAX_HEADER_BYTES)
        piece = self.store.read(self.url, self.ready, end - self.ready)
        if piece.total != self.end:
            what = f"the file had {self.end} bytes and now has {piece.total}"
            raise InputError(what, file=redacted(self.url))
        self.data += piece.data
        self.ready = end
