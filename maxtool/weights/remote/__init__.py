"""Checkpoints behind URLs: their headers, read by range requests."""

from maxtool.weights.remote.headers import FetchedHeaders, fetch, original_named

__all__ = ["FetchedHeaders", "fetch", "original_named"]
