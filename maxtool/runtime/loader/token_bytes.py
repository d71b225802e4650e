"""Bytes of tokens: what each adds to a text, as the tokenizer decodes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from .tokens import telling_failures

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # of bytes that are a part of a character
NEVER = 0xFF  # a byte that no UTF-8 has; to llguidance it begins special tokens
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
BEFORE = "a"  # some decoders drop a space at the beginning; nothing is at the beginning behind this


def bytes_of_tokens(tokenizer: Any, count: int) -> list[bytes]:  # noqa: ANN401
    """The bytes that each of ``count`` tokens adds behind others; none where that is not known.

    Those are special tokens, which decoding leaves out, numbers that no token has, and parts of
    characters that are written neither as byte-level vocabularies write them nor as ``<0x0A>``.
    """
    pieces = [str(tokenizer.id_to_token(token) or "") for token in range(count)]
    with telling_failures():
        before = tokenizer.encode(BEFORE, add_special_tokens=False).ids
        begins = tokenizer.decode(before, skip_special_tokens=True)
        known = [token for token in range(count) if pieces[token]]
        texts = tokenizer.decode_batch(
            [[*before, token] for token in known], skip_special_tokens=True
        )
    result = [b""] * count
    for token, text in zip(known, texts, strict=True):
        if text.startswith(begins):
            result[token] = _bytes(pieces[token], text.removeprefix(begins))
    return result


def _bytes(piece: str, text: str) -> bytes:
    """The bytes of a token that is written ``piece`` and decoded as ``text``."""
    if REPLACEMENT not in text:
        return text.encode()
    table = byte_level()
    if match := BYTE.fullmatch(piece):
        raw = bytes.fromhex(match[1])
    elif table.keys() >= {*piece}:
        raw = bytes(table[char] for char in piece)
    else:
        raw = piece.encode()
    known = raw.decode("utf-8", "replace") == text and NEVER not in raw
    return raw if known else b""


@cache
def byte_level() -> Mapping[str, int]:
    """Bytes by the characters that byte-level vocabularies write for them.

    Printable characters of Latin-1 stand for themselves, the others follow from U+0100 on
    (``bytes_to_unicode`` of GPT-2's ``encoder.py``).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted({*range(256)} - {*printable})
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}
