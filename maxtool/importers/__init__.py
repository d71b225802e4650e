"""Importers: graphs of other formats as graphs of operations."""
