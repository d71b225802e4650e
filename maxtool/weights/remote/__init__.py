"""Checkpoints behind URLs: their headers, read by range requests."""

from maxtool.weights.remote.headers import Fetched, fetch
from maxtool.weights.remote.url import download, is_url, redacted

__all__ = ["Fetched", "download", "fetch", "is_url", "redacted"]
