"""A model that is served: its name, its thread, and what conversations with it are written with."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property

from maxtool.runtime.loader import Model
from maxtool.runtime.loader.chat import ChatEncoder, open_template
from maxtool.runtime.loader.specs import EMBED, GENERATE
from maxtool.runtime.loader.wrong_path import another_task
from maxtool.serve.limits import Limits
from maxtool.serve.logprobs import TokenTexts
from maxtool.serve.metrics import Metrics
from maxtool.serve.refusal import refusal_of
from maxtool.serve.vectors import EmbeddingModel
from maxtool.serve.worker import Worker


class Served:
    """A model under a name.

    Attributes:
        name: What requests call it.
        model: The model, which its own thread alone may run.
        created: When it was loaded, in seconds since 1970.
        worker: The thread of a model that continues texts; None of others.
        embedding: The thread of a model that makes vectors; None of others.
    """

    def __init__(self, name: str, model: Model, limits: Limits, metrics: Metrics) -> None:
        self.name, self.model, self.created = name, model, int(time.time())
        self.worker: Worker | None = None
        self.embedding: EmbeddingModel | None = None
        if model.manifest.task == GENERATE:
            observe = metrics.rows.labels(name).observe
            worker = self.worker = Worker(name, model, limits, observe)
            metrics.running.labels(name).set_function(lambda: worker.running)
            metrics.waiting.labels(name).set_function(lambda: worker.waiting)
        elif model.manifest.task == EMBED:
            self.embedding = EmbeddingModel(model, limits.queue)
        else:
            raise another_task(model.manifest.task)

    @property
    def is_well(self) -> bool:
        """Return whether it answers requests."""
        return self.worker is None or self.worker.is_well

    def writer(self) -> Worker:
        """The thread that continues texts, or a refusal."""
        if self.worker is None:
            raise refusal_of(another_task(self.model.manifest.task))
        return self.worker

    def embedder(self) -> EmbeddingModel:
        """The thread that makes vectors, or a refusal."""
        if self.embedding is None:
            raise refusal_of(another_task(self.model.manifest.task))
        return self.embedding

    def stop(self) -> None:
        """Take no more requests; what is being continued goes on."""
        if self.worker is not None:
            self.worker.stop()

    def close(self) -> None:
        """End the threads, after the step that each is in."""
        if self.worker is not None:
            self.worker.join()
        if self.embedding is not None:
            self.embedding.stop()

    @cached_property
    def token_texts(self) -> TokenTexts:
        """Texts of its tokens, one by one."""
        return TokenTexts(self.model)

    @cached_property
    def _encoder(self) -> ChatEncoder:
        return self._encoder_with({})

    def encoder(self, variables: Mapping[str, object]) -> ChatEncoder:
        """Return what makes token ids of conversations; its template is given ``variables`` too."""
        return self._encoder_with(variables) if variables else self._encoder

    def _encoder_with(self, variables: Mapping[str, object]) -> ChatEncoder:
        manifest = self.model.manifest
        template = open_template(manifest, variables=variables)
        return ChatEncoder(template, self.model.tokenizer, manifest.context)

    def facts(self) -> dict[str, object]:
        """Facts for clients: what the model does, and how much at once."""
        manifest = self.model.manifest
        return {"task": manifest.task, "context": manifest.context, "batch": manifest.batch}

    def content(self) -> dict[str, object]:
        """The JSON of ``/v1/models``."""
        fixed = {"object": "model", "created": self.created, "owned_by": "maxtool"}
        return {"id": self.name, **fixed, "maxtool": self.facts()}
