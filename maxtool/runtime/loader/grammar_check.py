"""A grammar tried out, in a process whose limits ``bounded.py`` sets.

A schema may come from a stranger, and some take the compiler of grammars hours, gigabytes, or more
stack than there is. The caller is ``json_schema.py``; a request, and its answer, is one JSON
object::

    {"grammar", "limits"} -> {}, or {"error"}
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

# Threads that compile what has passed have several times as much.
STACK = 1 << 20
BRACE = ord("{")


class Bytes:
    """A vocabulary of the 256 bytes and an end of text, as llguidance asks for it."""

    tokens = (*(bytes([byte]) for byte in range(256)), b"")
    eos_token_id, bos_token_id = 256, None
    special_token_ids = (256,)
    is_tokenizer_wrapper = True

    def __call__(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(text.encode())


def answer(request: Mapping[str, Any]) -> dict[str, object]:
    """Return what is wrong with the grammar of a request, if anything is."""
    import llguidance

    found: list[str] = []

    def compile_it() -> None:
        limits = llguidance.LLParserLimits(**request["limits"])
        tokenizer = llguidance.LLTokenizer(Bytes(), eos_token=256)
        grammar = request["grammar"]
        matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
        # The first step, and that into an object, which may have more properties than a step can
        # have: a text would end there.
        if not matcher.is_error():
            matcher.compute_bitmask()
        if not matcher.is_error() and matcher.validate_tokens([BRACE]):
            matcher.consume_token(BRACE)
            matcher.compute_bitmask()
        found.append(matcher.get_error())

    threading.stack_size(STACK)
    thread = threading.Thread(target=compile_it)
    thread.start()
    thread.join()
    error = found[0] if found else "it cannot be compiled"
    return {"error": error} if error else {}
