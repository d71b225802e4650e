"""Names of sources: paths, repositories of the Hugging Face Hub, and URLs."""

from maxtool.sources.naming import Source, bring, caches, local, open_named, outlined

__all__ = ["Source", "bring", "caches", "local", "open_named", "outlined"]
