"""SentencePiece's map of characters, checked before the tokenizers package reads it.

The package takes memory for as many bytes as the map says its first part has, and ends the process
where there are not so many; what its second part is looked up with is not checked either. The form
is that of ``normalizer.cc``: the size of a trie in bytes, the trie as a double array of 32-bit
units, then the texts that characters become, each ended by a zero.
"""

from __future__ import annotations

import base64
import binascii
import re

import numpy as np

SIZE, UNIT = 4, 4  # bytes
BLOCK = 256  # children of a node are looked up at its offset, changed in the last byte
LEAF, WIDE = 1 << 31, 1 << 9
FIELD = re.compile(rb'"precompiled_charsmap"\s*:\s*"([^"]*)"')


def find_problem(text: bytes) -> str | None:
    """The problem with a map somewhere in a ``tokenizer.json``, or None."""
    problems = (encoded_problem(match[1]) for match in FIELD.finditer(text))
    return next((problem for problem in problems if problem is not None), None)


def encoded_problem(encoded: bytes) -> str | None:
    """The problem with a map as ``tokenizer.json`` has it, or None."""
    try:
        return problem_of(base64.b64decode(encoded, validate=True))
    except binascii.Error as error:
        return f"not base64: {error}"


def problem_of(data: bytes) -> str | None:
    """The problem with a map, or None."""
    size = int.from_bytes(data[:SIZE], "little")
    room = len(data) - SIZE
    if room < 0 or not 0 < size <= room or size % (UNIT * BLOCK):
        return f"a trie of {size} bytes in a map of {len(data)}"
    units = np.frombuffer(data, "<u4", size // UNIT, SIZE).astype(np.int64)
    texts = data[SIZE + size :]
    inner = units & LEAF == 0
    offsets = (units >> 10) << np.where(units & WIDE, 8, 0)
    reached = (np.arange(len(units)) ^ offsets)[inner]
    if reached.size and int(reached.max()) >= len(units):
        return "a trie whose nodes are not all in it"
    values = (units & (LEAF - 1))[~inner]
    if values.size and int(values.max()) >= len(texts):
        return "a trie that leads behind the texts"
    return _text_problem(texts)


def _text_problem(texts: bytes) -> str | None:
    if texts and not texts.endswith(b"\0"):
        return "texts without an end"
    try:
        texts.decode()
    except UnicodeDecodeError as error:
        return f"texts that are not UTF-8: {error.reason}"
    return None
