"""Place for what may be lost: the folder of maxtool below the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "MAXTOOL_CACHE"


def user_cache() -> Path:
    """Return the folder, which may not be there yet: the one that ``MAXTOOL_CACHE`` names, if any.

    Raises:
        RuntimeError: If it is not known where the user's home is.
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # what is not, is to be ignored (XDG Base Directory Specification)
        base = Path.home() / ".cache"
    return base / "maxtool"
