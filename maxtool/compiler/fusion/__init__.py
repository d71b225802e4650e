"""Fusions: nodes of a graph replaced by fewer, before they are lowered."""
