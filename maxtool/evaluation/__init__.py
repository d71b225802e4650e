"""Measures of compiled language models: how well they predict a text, how far they are apart."""
