"""Tokenizers of three kinds, read and written without loss of an id.

A tokenizer comes as a ``tokenizer.json`` (the ``tokenizers`` library), as a ``tokenizer.model``
(SentencePiece) or as the ``tokenizer.ggml.*`` keys of a GGUF file. Each is read into one
:class:`Tokenizer`, from which the other forms are written. Chat templates are carried as text and
never rendered here: they are programs.
"""

from maxtool.tokenizer.fitting import fitted
from maxtool.tokenizer.gguf import from_gguf
from maxtool.tokenizer.gguf_writer import to_gguf
from maxtool.tokenizer.huggingface import read, write_hf
from maxtool.tokenizer.library import to_json
from maxtool.tokenizer.vocabulary import BytePairs, Tokenizer, TokenType, WordPieces

__all__ = [
    "BytePairs",
    "TokenType",
    "Tokenizer",
    "WordPieces",
    "fitted",
    "from_gguf",
    "read",
    "to_gguf",
    "to_json",
    "write_hf",
]
