"""Names of sources: paths, repositories of the Hugging Face Hub, and URLs."""

from maxtool.sources.bringing import Needed, Source, bring
from maxtool.sources.naming import caches, local
from maxtool.sources.outline import open_named, outlined

__all__ = ["Needed", "Source", "bring", "caches", "local", "open_named", "outlined"]
