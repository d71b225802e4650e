"""The tokenizer of an artifact, and the texts that it takes."""

from __future__ import annotations

from typing import Any

from .errors import BadInput, DoesNotFit, MachineLacks, last_line
from .manifest import Manifest


def check_text(text: str, what: str) -> None:
    """Refuse a text with half of a character, as undecodable bytes of a command line are.

    Args:
        text: The text.
        what: What the message calls it.

    Raises:
        BadInput: If it is one.
    """
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise BadInput(f"{what} is no valid text")


def open_tokenizer(manifest: Manifest) -> Any:  # noqa: ANN401 - an optional package
    """A ``tokenizers.Tokenizer`` of its own for each caller.

    Raises:
        DoesNotFit: If the artifact has none.
        MachineLacks: If the package is not installed.
        BadInput: If the file cannot be read.
    """
    if manifest.tokenizer_file is None:
        raise DoesNotFit("this artifact has no tokenizer; give --ids instead of text")
    try:
        import tokenizers
    except ImportError:
        raise MachineLacks("text needs the tokenizers package: pip install tokenizers") from None
    try:
        found = tokenizers.Tokenizer.from_file(str(manifest.tokenizer_file))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the package is no Exception
        raise BadInput(f"cannot read {manifest.tokenizer_file}: {last_line(error)}") from None
    found.no_truncation()  # the file has what whoever saved it last cut texts to
    found.no_padding()
    return found
