"""Limits of what clients may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of each request, and of all together.

    Attributes:
        body: Bytes of a request.
        prompt: Tokens of a prompt; the model's context if None.
        tokens: Tokens that are made for a prompt; what the context has room for if None.
        chunk: Tokens of new prompts that are read between two tokens of other texts.
        queue: Texts that may wait for a model, beside those that it is continuing.
        connections: Connections of clients at a time.
        read_seconds: For the head of a request to come, and for its body.
        seconds: From a request to the end of its answer.
        stop_seconds: What is still running may take so long when the server is told to stop.
    """

    body: int = 1 << 20
    prompt: int | None = None
    tokens: int | None = None
    chunk: int = 128
    queue: int = 256
    connections: int = 512
    read_seconds: float = 30.0
    seconds: float = 600.0
    stop_seconds: float = 10.0
