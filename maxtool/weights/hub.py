"""Names of repositories of the Hugging Face Hub, which users give where files are meant."""

from __future__ import annotations

import re
from pathlib import Path

# ORGANISATION/MODEL as the Hub allows them, but not the name of a file of weights in a folder.
_FILE = r"(?!.*\.(?:safetensors|gguf|json|onnx|npz|npy|pth|pt|bin)$)"
_REPOSITORY = re.compile(rf"\w[\w.-]{{0,95}}/{_FILE}\w[\w.-]{{0,95}}", re.ASCII)
_URL = re.compile(r"(?:https?://(?:huggingface\.co|hf\.co)|hf:/)/([\w.-]+/[\w.-]+)")


def looks_like_repository(path: Path) -> bool:
    """Return whether a path at which nothing is may be meant as a repository."""
    return _REPOSITORY.fullmatch(path.as_posix()) is not None and not path.parent.exists()


def behind(url: str) -> str | None:
    """The repository that a URL leads into, None if it leads elsewhere."""
    match = _URL.match(url)
    return None if match is None else match[1]


def download(repository: str) -> str:
    """The command to type to download a repository."""
    folder = repository.rpartition("/")[2]
    return f"hf download {repository} --local-dir {folder} (pip install huggingface_hub)"
