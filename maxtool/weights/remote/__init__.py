"""Checkpoints behind URLs: their headers, read by range requests."""

from maxtool.weights.remote.headers import FetchedHeaders, fetch, original_named
from maxtool.weights.remote.url import is_url, redacted

__all__ = ["FetchedHeaders", "fetch", "is_url", "original_named", "redacted"]
