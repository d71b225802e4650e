"""An answer while it is made: its jobs, what is told of them, and their end."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from maxtool.serve.answer_forms import Answer, Json, choice, usage
from maxtool.serve.asked import Asked
from maxtool.serve.metrics import Metrics
from maxtool.serve.refusal import Refusal, too_slow
from maxtool.serve.worker import Job, News, Worker


class Answering:
    """Jobs of a request, which begin at once, and the events that their model's thread sends."""

    def __init__(self, asked: Asked, worker: Worker, metrics: Metrics, seconds: float) -> None:
        """Submit the jobs.

        Raises:
            Refusal: If too many wait.
        """
        self._asked, self._worker, self._metrics = asked, worker, metrics
        self._news: asyncio.Queue[News] = asyncio.Queue()
        self._began = time.monotonic()
        self._until = self._began + seconds
        self._jobs = [Job(text, self._teller(), streams=asked.streams) for text in asked.texts]
        self._answer = Answer(asked.form, asked.served.name, int(time.time()))
        self._heard = False
        self._offsets = Counter[Job]()  # characters of the tokens that were told of each
        worker.submit(self._jobs)

    async def whole(self) -> Json:
        """The answer, once all of it is there; a refusal if a text fails."""
        choices: dict[int, Json] = {}
        try:
            async for news in self._events():
                if news.refusal is not None:
                    raise news.refusal
                if news.completion is not None:
                    index, text = news.completion.index, news.completion.text
                    logprobs = self._logprobs(news)
                    said = self._asked.form.said(text)
                    choices[index] = choice(index, said, logprobs, news.completion.stopped)
        finally:
            self.end()
        return self._answer.whole([choices[index] for index in sorted(choices)], self._usage())

    async def pieces(self) -> AsyncIterator[str]:
        """Yield server-sent events, the last of which says ``[DONE]``."""
        form = self._asked.form
        try:
            if (begun := form.begun()) is not None:
                for index in range(len(self._jobs)):
                    yield self._event([choice(index, begun, None, None)])
            async for news in self._events():
                if news.refusal is not None:
                    raise news.refusal
                if choices := self._choices(news):
                    yield self._event(choices)
            if self._asked.counts_usage:
                yield self._event([], self._usage())
        except Refusal as refusal:
            yield _event(refusal.content())
        finally:
            self.end()
        yield "data: [DONE]\n\n"

    def end(self) -> None:
        """Free the places of all that is still running."""
        self._worker.drop(self._jobs)

    def _teller(self) -> Callable[[News], None]:
        loop = asyncio.get_running_loop()

        def tell(news: News) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(self._news.put_nowait, news)

        return tell

    async def _events(self) -> AsyncIterator[News]:
        """Yield what comes, up to the end of the last job, or of the time there is."""
        open_jobs = len(self._jobs)
        while open_jobs:
            left = self._until - time.monotonic()
            try:
                news = await asyncio.wait_for(self._news.get(), left)
            except TimeoutError:
                raise too_slow() from None
            self._observe(news)
            open_jobs -= news.completion is not None or news.refusal is not None
            yield news

    def _observe(self, news: News) -> None:
        name, metrics = self._asked.served.name, self._metrics
        if not self._heard:
            self._heard = True
            metrics.first.labels(name).observe(time.monotonic() - self._began)
        if news.completion is not None:
            metrics.prompt.labels(name).inc(len(news.completion.prompt_ids))
            metrics.cached.labels(name).inc(news.job.text.reused)
            metrics.made.labels(name).inc(len(news.completion.ids))

    def _choices(self, news: News) -> list[Json]:
        """The choices of a piece: what was added, and then the end."""
        index, form = self._jobs.index(news.job), self._asked.form
        logprobs = self._logprobs(news)
        choices = []
        if news.text or news.picked:
            choices.append(choice(index, form.added(news.text), logprobs, None))
        if news.completion is not None:
            choices.append(choice(index, form.ended(), None, news.completion.stopped))
        return choices

    def _logprobs(self, news: News) -> Json | None:
        """Return what is said of how likely tokens are; each news is asked for once."""
        if not self._asked.logprobs:
            return None
        offset = self._offsets[news.job]
        self._offsets[news.job] += sum(len(one.token.text) for one in news.picked)
        return self._asked.form.logprobs(news.picked, offset)

    def _event(self, choices: Sequence[Json], counts: Json | None = None) -> str:
        """Events of a piece each: clients expect one choice in each."""
        counted = self._asked.counts_usage
        groups = [[one] for one in choices] or [[]]
        pieces = [self._answer.piece(group, counts, counted=counted) for group in groups]
        return "".join(map(_event, pieces))

    def _usage(self) -> Json:
        """The tokens of all choices; a prompt is counted once, however many choices it has."""
        texts = [job.text for job in self._jobs]
        first = texts[:: self._asked.choices]
        prompt = sum(len(text.reply.ids) for text in first)
        made = sum(len(text.reply.made) for text in texts)
        return usage(prompt, made, sum(text.reused for text in first))


def _event(content: Json) -> str:
    return f"data: {json.dumps(content)}\n\n"
