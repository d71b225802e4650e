"""Decoder settings from Hugging Face configurations, in the spelling of transformers 4 or 5."""
