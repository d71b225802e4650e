"""A compiled language model that is evaluated: the logits of a window, the tokens of a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import ModelMismatch, NegativeAnswer, translated
from maxtool.runtime.loader import Manifest, Model, RunError, load
from maxtool.runtime.loader.specs import GENERATE
from maxtool.runtime.loader.tokens import encoded
from maxtool.runtime.loader.wrong_path import another_task

ENTRY = "forward"


class LanguageModel:
    """A folder that ``maxtool compile`` wrote, opened.

    Attributes:
        folder: As it was named.
        loaded: The model, as the loader has it.
        vocabulary: The number of logits of a token.
        nbytes: The bytes of all files of the artifact.
        weight_bytes: The bytes of its weights.
        context: The most tokens of a text, if there is a limit.
        bos: The token that texts begin with, if the model expects such.
        has_tokenizer: Whether it reads text, and not only token ids.
    """

    def __init__(self, folder: Path, *, check: bool = True, device: str | None = None) -> None:
        """Open a folder; the options are those of :func:`maxtool.runtime.loader.load`.

        Raises:
            MaxtoolError: If it cannot be opened here, or is not a language model.
        """
        self.folder = folder
        with self._named_in_errors():
            manifest = Manifest(folder)
            if manifest.task != GENERATE:
                raise another_task(manifest.task)
            self.loaded: Model = load(folder, check=check, device=device)
        self.vocabulary = _vocabulary(self.loaded, folder)
        self.nbytes = manifest.path.stat().st_size + sum(manifest.sizes.values())
        self.weight_bytes = sum(manifest.sizes[path] for path in manifest.weights_files)
        self.context, self.bos = manifest.context, manifest.bos
        self.has_tokenizer = manifest.tokenizer_file is not None

    @cached_property
    def pieces(self) -> Mapping[int, str]:
        """The tokenizer's name of each token."""
        pieces = self._tokenizer.get_vocab(with_added_tokens=True)
        return {index: piece for piece, index in pieces.items()}

    def encode(self, text: str) -> NDArray[np.int64]:
        """The tokens of a text of any length, behind the beginning-of-text token if there is one.

        Raises:
            ModelMismatch: If the artifact has no tokenizer.
        """
        tokenizer = self._tokenizer
        with self._named_in_errors():
            ids = encoded(tokenizer, text)
        before = [] if self.bos is None or ids[:1] == [self.bos] else [self.bos]
        return np.array([*before, *ids], np.int64)

    def logits(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """The logits behind each token of a text: float ``[tokens, vocabulary]``, all finite.

        Raises:
            NegativeAnswer: If any is NaN or infinite.
            ModelMismatch: If a token is not in the vocabulary, or there are too many.
        """
        with self._named_in_errors():
            result: NDArray[Any] = self.loaded.run(ENTRY, {"input_ids": ids[None]})["logits"][0]
        if not np.isfinite(result).all():
            raise NegativeAnswer("the model's logits are not finite numbers", file=self.folder)
        return result

    @property
    def _tokenizer(self) -> Any:  # noqa: ANN401 - an optional package
        if not self.has_tokenizer:
            what = "this artifact has no tokenizer"
            raise ModelMismatch(what, file=self.folder, hint="give token ids with --tokens")
        with self._named_in_errors():
            return self.loaded.tokenizer

    @contextmanager
    def _named_in_errors(self) -> Iterator[None]:
        """Raise the loader's errors as those of maxtool, which say of which artifact they speak."""
        try:
            yield
        except RunError as error:
            error.file = error.file or str(self.folder)
            raise translated(error) from error


def _vocabulary(model: Model, folder: Path) -> int:
    """The size of the logits of ``forward``, which must take token ids alone."""
    entry = model.manifest.entries.get(ENTRY)
    if entry is not None and [spec.name for spec in entry.inputs] == ["input_ids"]:
        for spec in entry.outputs:
            if spec.name == "logits" and len(spec.shape) == 3 and isinstance(spec.shape[2], int):
                return spec.shape[2]
    what = f"this is not a language model: no entry {ENTRY!r} from input_ids to logits of each"
    raise ModelMismatch(what, file=folder)
