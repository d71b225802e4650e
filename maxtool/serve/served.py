"""A model that is served: its name, its thread, and what conversations with it are written with."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from maxtool.runtime.loader import Model
from maxtool.runtime.loader.chat import ChatEncoder, open_template
from maxtool.runtime.loader.illustrated import Illustrations
from maxtool.runtime.loader.specs import DUAL_ENCODER, EMBED, GENERATE
from maxtool.runtime.loader.wrong_path import another_task
from maxtool.serve.limits import Limits
from maxtool.serve.logprobs import TokenTexts
from maxtool.serve.metrics import Metrics
from maxtool.serve.refusal import refusal_of
from maxtool.serve.reranking import Ranks
from maxtool.serve.turns import Turns
from maxtool.serve.vectors import Vectors
from maxtool.serve.worker import Worker


class Served:
    """A model under a name.

    Attributes:
        name: What requests call it.
        model: The model, which its own thread alone may run.
        created: When it was loaded, in seconds since 1970.
        worker: The thread of a model that continues texts; None of others.
        turns: The thread of a model that makes vectors, or scores; None of others.
    """

    def __init__(self, name: str, model: Model, limits: Limits, metrics: Metrics) -> None:
        self.name, self.model, self.created = name, model, int(time.time())
        self.worker: Worker | None = None
        self.turns: Turns | None = None
        if model.manifest.task == GENERATE:
            observe = metrics.rows.labels(name).observe
            worker = self.worker = Worker(name, model, limits, observe)
            metrics.running.labels(name).set_function(lambda: worker.running)
            metrics.waiting.labels(name).set_function(lambda: worker.waiting)
        elif model.manifest.task in (EMBED, DUAL_ENCODER):
            self.turns = Turns("embedding", limits.queue)
            self._vectors, self._ranks = Vectors(name, model), Ranks(name, model)
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

    async def vectors(self, content: Mapping[str, Any], seconds: float) -> dict[str, object]:
        """The JSON with vectors of texts, or a refusal."""
        turns = self._turns()
        return await turns.answer(self._vectors.made, content, seconds)

    async def ranks(self, content: Mapping[str, Any], seconds: float) -> dict[str, object]:
        """The JSON with the order of documents, or a refusal."""
        turns = self._turns()
        return await turns.answer(self._ranks.made, content, seconds)

    def _turns(self) -> Turns:
        if self.turns is None:
            raise refusal_of(another_task(self.model.manifest.task))
        return self.turns

    def stop(self) -> None:
        """Take no more requests; what is being continued goes on."""
        if self.worker is not None:
            self.worker.stop()

    def close(self) -> None:
        """End the threads, after the step that each is in."""
        if self.worker is not None:
            self.worker.join()
        if self.turns is not None:
            self.turns.stop()

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
        tokenizer = self.model.tokenizer
        return ChatEncoder(template, tokenizer, manifest.context, self.illustrations)

    @cached_property
    def illustrations(self) -> Illustrations | None:
        """Return what prepares images within texts; None where the model reads none."""
        return Illustrations(self.model) if self.reads_images else None

    @property
    def reads_images(self) -> bool:
        """Return whether images may stand within the texts of its conversations."""
        return self.model.manifest.image_tokens is not None

    def facts(self) -> dict[str, object]:
        """Facts for clients: what the model does, and how much at once."""
        manifest = self.model.manifest
        sizes = {"context": manifest.context, "batch": manifest.batch}
        return {"task": manifest.task, **sizes, "images": self.reads_images}

    def content(self) -> dict[str, object]:
        """The JSON of ``/v1/models``."""
        fixed = {"object": "model", "created": self.created, "owned_by": "maxtool"}
        return {"id": self.name, **fixed, "maxtool": self.facts()}
