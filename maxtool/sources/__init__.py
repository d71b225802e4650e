"""Names of sources: paths, repositories of the Hugging Face Hub, and URLs."""

from maxtool.sources.naming import Source, bring, local, open_named

__all__ = ["Source", "bring", "local", "open_named"]
