"""Compiled models behind HTTP, in the form of OpenAI's API (``maxtool serve``).

One thread drives each model (``worker.py``); the event loop reads requests, and tells of tokens as
they come. What a request may ask for stands in tables (``completion_fields.py``).
"""
