"""Names of sources: paths, repositories of the Hugging Face Hub, and URLs."""

from maxtool.sources.naming import Source, bring, hub_name, open_named

__all__ = ["Source", "bring", "hub_name", "open_named"]
