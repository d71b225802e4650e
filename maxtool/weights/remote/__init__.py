"""Checkpoints behind URLs: their headers, read by range requests."""

from maxtool.weights.remote.headers import FetchedHeaders, fetch
from maxtool.weights.remote.url import download, is_url, redacted

__all__ = ["FetchedHeaders", "download", "fetch", "is_url", "redacted"]
