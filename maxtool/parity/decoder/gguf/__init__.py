"""Decoder settings from GGUF files."""
