"""The tokenizer of an artifact, and the texts that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import BadInput, DoesNotFit, MachineLacks, TooLong, last_line
from .manifest import Manifest
from .wrong_path import another_task

# A tokenizer takes some fifty bytes of memory for each byte of a text. So it is given no text of
# more bytes for each position of the context than the longest tokens of any vocabulary have, and
# of one that has more than tokens have on average only as much as shows that it is too long.
MOST_BYTES, USUAL_BYTES = 256, 8
STEP = 4  # how much more of a text is tried each time
UNBOUNDED = 1 << 18  # positions of a model that does not say how many it has


def most_bytes(context: int | None) -> int:
    """The bytes of the longest text that a model is given at all."""
    return (context or UNBOUNDED) * MOST_BYTES


def too_long(what: str, context: int | None) -> TooLong:
    """The error to raise where a text is more than the context; ``what`` says how long it is."""
    return TooLong(
        f"{what}, and the context of the model holds {context or UNBOUNDED}",
        hint="shorten it, or compile the model with a larger --context",
    )


def beginning(text: str, context: int | None, count: Callable[[str], int]) -> str:
    """The text; where it is far too long, as much of it as a model with this context can use.

    That has twice the tokens that the context holds, as ``count`` counts them, so that what follows
    does not change those that are used.
    """
    most = context or UNBOUNDED
    size = most * USUAL_BYTES
    while size < len(text):
        if count(text[:size]) > 2 * most:
            return text[:size]
        size *= STEP
    return text


def encode(
    tokenizer: Any,  # noqa: ANN401
    text: str,
    context: int | None,
    what: str,
    *,
    special: bool = False,
) -> list[int]:
    """Token ids of a text, refused where it is too long; messages call it ``what``.

    ``special`` is whether the tokens are there that the tokenizer puts around a text.
    """
    check_length(text, context, what)
    check_tokens(tokenizer, text, context, what)
    return encoded(tokenizer, text, special=special)


def check_tokens(tokenizer: Any, text: str, context: int | None, what: str) -> None:  # noqa: ANN401
    """Refuse a text of many more tokens than the context holds, without reading all of it."""
    used = beginning(text, context, lambda part: len(encoded(tokenizer, part)))
    if len(used) < len(text):
        raise too_long(f"{what} has more than {len(encoded(tokenizer, used))} tokens", context)


def encoded(tokenizer: Any, text: str, *, special: bool = False) -> list[int]:  # noqa: ANN401
    """Token ids of a text, without special tokens around it unless ``special``."""
    with telling_failures():
        ids: list[int] = tokenizer.encode(text, add_special_tokens=special).ids
        return ids


def check_length(text: str, context: int | None, what: str) -> None:
    """Refuse a text that the context cannot hold, whatever its tokens are."""
    if len(text) > most_bytes(context):
        raise too_long(f"{what} has {len(text)} characters", context)


def check_text(text: str, what: str) -> None:
    """Refuse a text with half of a character, as undecodable bytes of a command line are."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise BadInput(f"{what} is not valid text")


def open_tokenizer(manifest: Manifest) -> Any:  # noqa: ANN401 - an optional package
    """A ``tokenizers.Tokenizer`` of its own for each caller."""
    if manifest.task is None:
        raise another_task(manifest.task)
    if manifest.tokenizer_file is None:
        raise DoesNotFit("this artifact has no tokenizer", hint="give --ids instead of text")
    manifest.require_unchanged(manifest.tokenizer_file)
    from .charsmap import find_problem

    try:
        import tokenizers
    except ImportError:
        hint = "pip install tokenizers"
        raise MachineLacks("text needs the tokenizers package", hint=hint) from None
    with telling_failures("the tokenizer cannot be read", manifest.tokenizer_file):
        text = manifest.tokenizer_file.read_bytes()
        if problem := find_problem(text):
            raise BadInput(f"precompiled_charsmap: {problem}")
        tokenizer = tokenizers.Tokenizer.from_buffer(text)
    tokenizer.no_truncation()  # the file has what whoever saved it last cut texts to
    tokenizer.no_padding()
    return tokenizer


@contextmanager
def telling_failures(
    what: str = "the tokenizer failed", file: Path | None = None
) -> Iterator[None]:
    """Report failures of the package as ``BadInput``: some files fail only with a text."""
    try:
        yield
    except BaseException as error:  # a panic of the package is not an Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BadInput(f"{what}: {last_line(error)}", file=file) from None
