"""Outputs in object stores, where an object appears whole or not at all, and nothing is renamed."""

from maxtool.object_storage.destination import Destination
from maxtool.object_storage.object_parts import ObjectParts

__all__ = ["Destination", "ObjectParts"]
