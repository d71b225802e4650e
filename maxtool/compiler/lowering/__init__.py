"""Lowering: our graphs as a Relax module."""
