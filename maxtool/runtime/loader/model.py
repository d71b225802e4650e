"""A compiled model: its entries, its tokenizer, generation."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .constraint import picker, until_complete
from .entries import EntryRunner
from .errors import BadInput, BadUsage, DoesNotFit
from .manifest import Manifest
from .memory import Array
from .processor import Progress
from .sampling import Sampling
from .session import Session
from .slots import Unread, inputs_of
from .specs import GENERATE, TEXT_TO_TEXT, TRANSCRIBE
from .tokens import check_text, encode, open_tokenizer, telling_failures, too_long
from .wrong_path import another_task

if TYPE_CHECKING:
    from .embedder import Text
    from .json_schema import Grammar, Grammars
    from .placed_images import PlacedImage
    from .rewriting import Rewriter
    from .transcription import Transcriber


class Model(EntryRunner):
    """A compiled model, its tokenizer, generation and embeddings.

    Calling it runs the entry ``forward``; :meth:`run` runs any entry. Arrays go in and come out by
    name. On a CPU weights are mapped from the file, on a GPU they are copied to it. Threads may
    share a model; their calls wait for each other.
    """

    @cached_property
    def tokenizer(self) -> Any:  # noqa: ANN401 - an optional package
        """The ``tokenizers.Tokenizer`` of the artifact."""
        return self.open_tokenizer()

    def open_tokenizer(self) -> Any:  # noqa: ANN401
        """Return a new tokenizer, which the caller may change."""
        return open_tokenizer(self.manifest)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the beginning-of-text token where the model expects it.

        A source, behind which another text is written, has all special tokens that its tokenizer
        puts around a text.

        Raises:
            BadInput: If it holds half of a character, as undecodable bytes of a command line do, or
                the tokenizer fails.
            TooLong: If it is so long that the context cannot hold it.
        """
        check_text(text, "the prompt")
        whole = self.manifest.task == TEXT_TO_TEXT  # with all that a source has around it
        ids = encode(self.tokenizer, text, self.manifest.context, "the prompt", special=whole)
        bos = None if whole else self.manifest.bos
        return ids if bos is None or ids[:1] == [bos] else [bos, *ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out."""
        with telling_failures():
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def illustrated(
        self, text: str, files: Sequence[str | os.PathLike[str]]
    ) -> tuple[list[int], list[PlacedImage]]:
        """Token ids of a text with images, and the images where they stand.

        Each stands where the text has the model's token that begins one, such as
        ``<start_of_image>``; in a text without any, before it.

        Args:
            text: The text.
            files: The files of the images, in their order.

        Raises:
            DoesNotFit: If the model reads no images within texts, or one is of another size.
            BadInput: If a file is no image, or the text has another number of places for them.
            MachineLacks: If Pillow is not here.
        """
        from .illustrated import Illustrations

        paths = [Path(file) for file in files]
        return Illustrations(self).text(text, paths, self.tokenizer, self.encode)

    def generate(
        self,
        ids: Sequence[int],
        max_tokens: int = 100,
        *,
        images: Sequence[PlacedImage] = (),
        grammar: Grammar | None = None,
        **sampling: Any,  # noqa: ANN401
    ) -> Iterator[int]:
        """Continue a sequence of token ids, one token at a time.

        Ends after ``max_tokens``, before an end-of-text token, when the context is full, or when
        nothing can be added to what follows the grammar.

        Args:
            ids: The tokens so far.
            max_tokens: How many to make at most.
            images: Those that stand among them, as :meth:`illustrated` gives both.
            grammar: What their text follows, if anything.
            sampling: What :class:`Sampling` takes: ``temperature``, ``top_k``, ``top_p``,
                ``min_p``, ``repetition_penalty``, ``seed``.

        Raises:
            BadUsage: If an option is out of range.
            BadInput: If there are no ids.
            DoesNotFit: If they are more than the context, or outside the vocabulary.
        """
        constraint = None if grammar is None else grammar.constraint()
        choose = picker(Sampling(**sampling), constraint)
        count = self.check_prompt(ids, max_tokens)
        if images:  # which sources have none of
            tokens = Session(self).generate(ids, count, choose, images)
        else:
            tokens = self.session().generate(ids, count, choose)
        return until_complete(tokens, constraint)

    def session(self) -> Session | Rewriter:
        """Return the memory of a text and of what is written behind it."""
        if self.manifest.task != TEXT_TO_TEXT:
            return Session(self)
        from .rewriting import Rewriter

        return Rewriter(self)

    def grammar(self, schema: Mapping[str, object]) -> Grammar:
        """The grammar of the JSON that follows a schema; the last ones are kept.

        Args:
            schema: A JSON schema; keywords that llguidance does not know are refused.

        Raises:
            BadInput: If it is no schema, asks for what is not supported, or is too complex.
            DoesNotFit: If the model has no tokenizer.
            MachineLacks: If there is no llguidance.
        """
        if self.manifest.task != GENERATE:
            raise another_task(self.manifest.task)
        return self._grammars.grammar(schema)

    def knows_schema(self, schema: Mapping[str, object]) -> bool:
        """Return whether the grammar of a schema, or what is wrong with it, is known already.

        Raises:
            BadInput: If it is none whose grammar could be known.
            DoesNotFit: If the model has no tokenizer.
        """
        return self._grammars.knows(schema)

    @cached_property
    def _grammars(self) -> Grammars:
        from .json_schema import Grammars

        outputs = {spec.name: spec for spec in self.entry("decode").outputs}
        count = int(outputs["logits"].shape[-1])
        return Grammars(self.tokenizer, count, self.manifest.eos)

    def check_prompt(self, ids: Sequence[int], max_tokens: int) -> int:
        """Refuse what cannot be continued; how many tokens can be made, at most ``max_tokens``."""
        if self.manifest.task not in (GENERATE, TEXT_TO_TEXT):
            raise another_task(self.manifest.task)
        if max_tokens < 0:
            raise BadUsage(f"max-tokens is {max_tokens}")
        if not len(ids):
            raise BadInput("the prompt is empty")
        if len(ids) > (self.manifest.context or sys.maxsize):
            what = f"the prompt has {len(ids)} tokens"
            raise too_long(what, self.manifest.context)
        if self.manifest.task == TEXT_TO_TEXT:
            from .rewriting import check_source

            check_source(self, ids)
            return min(max_tokens, self.room(len(ids)))
        for name in ("prefill", "decode"):
            if "logits" not in {spec.name for spec in self.entry(name).outputs}:
                raise DoesNotFit(f"{name} gives no logits: this is not a language model")
        self.binder.bind(self.entry("prefill"), inputs_of(self.manifest, [Unread(0, ids, 0)]))
        return min(max_tokens, self.room(len(ids)))

    def embed(
        self, texts: str | Iterable[Text], batch: int = 32, prompt: str | None = None
    ) -> Array:
        """Vectors of texts, with the model's own pooling and normalisation.

        Args:
            texts: Texts, or lists of token ids; longer ones are cut to the context.
            batch: Texts in one call, padded to the longest.
            prompt: The name of the model's prompt to put before each text, ``none`` for nothing;
                by default its usual one, if it has one. Token ids are taken as they are.

        Returns:
            float32 ``[texts, hidden]``.

        Raises:
            DoesNotFit: If the model makes no embeddings or has no such prompt, or ids are outside
                the vocabulary.
            BadInput: If a text has no tokens, or is not valid text.
        """
        from .embedder import Embedder

        embedder = Embedder(self, batch, prompt=prompt)
        wanted = [texts] if isinstance(texts, str) else texts
        return np.concatenate([np.zeros((0, embedder.width), np.float32), *embedder.stream(wanted)])

    def classify(
        self,
        texts: str | Iterable[Text],
        query: str | None = None,
        batch: int = 32,
        *,
        prompt: str | None = None,
        instruction: str | None = None,
    ) -> Array:
        """Scores of texts for each label, as transformers' pipeline makes them of logits.

        Args:
            texts: Texts, or lists of token ids; longer ones are cut to the context.
            query: The text that each is read as the second of a pair with, as rerankers do.
            batch: Texts in one call, padded to the longest.
            prompt: The name of the model's prompt that is its instruction, ``none`` for that of
                its template; by default its usual one.
            instruction: What the model is to judge by, in words, in the place of a prompt.

        Returns:
            float64 ``[texts, labels]``, in the order of ``manifest.labels``.

        Raises:
            DoesNotFit: If the model has no classifier, or ids are outside the vocabulary; if its
                template fails, or it has none and there is an instruction.
            BadInput: If a text has no tokens, or is not valid text, or a query is missing.
            MachineLacks: If the model has a template, and there is no Jinja.
        """
        from .classifier import Classifier

        classifier = Classifier(self, batch, prompt=prompt, instruction=instruction)
        wanted = [texts] if isinstance(texts, str) else texts
        logits = [np.zeros((0, classifier.width), np.float32), *classifier.stream(wanted, query)]
        return classifier.scores(np.concatenate(logits))

    def transcriber(self) -> Transcriber:
        """Return what writes down speech, and the memory of one sound.

        Raises:
            DoesNotFit: If the model is none of speech, or does not say how sounds are prepared.
        """
        if self.manifest.task != TRANSCRIBE:
            raise another_task(self.manifest.task)
        from .transcription import Transcriber

        _ = self.tokenizer  # one that is missing is told before anything is computed
        return Transcriber(self, self.decode)

    def room(self, length: int) -> int:
        """Tokens that can be generated behind ``length`` others: the last is not read again.

        Behind a source a text begins anew, with a token of its own.
        """
        context = self.manifest.context
        behind = 1 if self.manifest.task == TEXT_TO_TEXT else length
        return sys.maxsize if context is None else context - behind + 1

    @property
    def usual_tokens(self) -> int:
        """Tokens that are made at most where no number is asked for."""
        from .prompts import MAX_TOKENS

        writing = self.manifest.writing
        return MAX_TOKENS if writing is None or writing.most is None else writing.most


def load(
    path: str | os.PathLike[str],
    *,
    check: bool = True,
    device: str | None = None,
    progress: Progress = lambda _share: None,
) -> Model:
    """Open the artifact in the folder ``path``.

    Args:
        path: The folder.
        check: Whether every file must be the one that was compiled. Large ones are hashed once:
            the user's cache notes which did not change since.
        device: ``cpu``, ``cuda`` or ``cuda:1``; what it was compiled for if None.
        progress: Told the share of the weights that is in the memory of the device, from 0 to 1.
    """
    manifest = Manifest(Path(path))
    if check:
        manifest.verify()
    return Model(manifest, verified=check, device=device, progress=progress)
