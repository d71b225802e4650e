"""Names of repositories of the Hugging Face Hub: ``hf://ORG/MODEL[@REVISION][/FILE]``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from maxtool.errors import UsageError
from maxtool.weights.names import stays_inside

SCHEME = "hf://"
DEFAULT_REVISION = "main"
# ORGANISATION/MODEL as the Hub allows them, but not the name of a file of weights in a folder.
_PART = r"\w[\w.-]{0,95}"
_FILE = r"(?!.*\.(?:safetensors|gguf|json|onnx|npz|npy|pth|pt|bin)$)"
# Of a revision's name only these have slashes: of pull requests and converted weights.
_REVISION = r"(?:refs/(?:pr|convert)/)?[^/\s@?#]{1,255}"
_BARE = re.compile(rf"{_PART}/{_FILE}{_PART}(?:@{_REVISION})?", re.ASCII)
_NAME = re.compile(
    rf"hf://(?:models/)?(?P<repository>{_PART}/{_PART})(?:@(?P<revision>{_REVISION}))?"
    r"(?:/(?P<file>.*))?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_URL = re.compile(r"(?:https?://(?:huggingface\.co|hf\.co)|hf:/)/([\w.-]+/[\w.-]+)")
# What else has names on the Hub; they begin with this, and hold no models.
_OTHERS = ("datasets/", "spaces/", "buckets/", "kernels/")


class HubName(NamedTuple):
    """A name of a repository's files.

    Attributes:
        repository: ``ORG/MODEL``.
        revision: A branch, a tag or a commit; None for the default branch.
        file: A file or folder in it; empty for all of it.
    """

    repository: str
    revision: str | None = None
    file: str = ""

    @property
    def url(self) -> str:
        """The name as it is printed and recorded."""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{SCHEME}{self.repository}{revision}{'/' if self.file else ''}{self.file}"


def is_hub_url(text: str) -> bool:
    """Return whether a text begins as a name with a scheme does."""
    return text[: len(SCHEME)].lower() == SCHEME


def parse(url: str) -> HubName:
    """Read a name that begins with ``hf://``; ``UsageError`` if it is malformed."""
    match = _NAME.fullmatch(url)
    file = "" if match is None else (match["file"] or "").strip("/")
    if url[len(SCHEME) :].startswith(_OTHERS):
        raise UsageError("models are read from the Hub, and this names something else", file=url)
    if match is None or (file and not stays_inside(file)):
        hint = "write hf://ORG/MODEL, hf://ORG/MODEL@REVISION or hf://ORG/MODEL/FILE"
        raise UsageError("not the name of a repository of the Hub", file=url, hint=hint)
    revision = match["revision"] and unquote(match["revision"])
    return HubName(match["repository"], revision, file)


def is_bare_name(path: Path) -> bool:
    """Return whether a path is ``ORG/MODEL`` or ``ORG/MODEL@REVISION``."""
    return _BARE.fullmatch(path.as_posix()) is not None


def looks_like_repository(path: Path) -> bool:
    """Return whether a path at which nothing is may be meant as a repository.

    Not where there is a folder ``ORG``: then it is taken for a mistyped path into that.
    """
    return is_bare_name(path) and not Path(path.parts[0]).exists()


def behind(url: str) -> str | None:
    """The repository that a URL leads into, None if it leads elsewhere."""
    match = _URL.match(url)
    return None if match is None else match[1]


def download(repository: str) -> str:
    """The command to type to download a repository."""
    folder = repository.rpartition("/")[2]
    return f"hf download {repository} --local-dir {folder} (pip install huggingface_hub)"
