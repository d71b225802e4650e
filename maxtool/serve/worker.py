"""The thread that drives a model: it continues what requests bring, as many as there are places."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread
from typing import Protocol

from maxtool.runtime.loader import Completion, Model, RunError
from maxtool.runtime.loader.continued_text import Text
from maxtool.runtime.loader.side_by_side import SideBySide
from maxtool.serve.limits import Limits
from maxtool.serve.logprobs import NotingSampler, Picked
from maxtool.serve.one_text import OneText
from maxtool.serve.refusal import SERVER, Refusal, busy, refusal_of, stopping

BROKEN = "the model fails; the server must be started anew"


class Places(Protocol):
    """Places of the texts that a model continues."""

    @property
    def has_room(self) -> bool:
        """Return whether one more text can begin."""

    @property
    def running(self) -> Sequence[Text]:
        """The texts that go on."""

    def begin(self, text: Text) -> None:
        """Take a text, which the next step reads."""

    def step(self) -> None:
        """Make a token of each text."""

    def end(self, text: Text) -> None:
        """Free the place of a text."""


def places_of(model: Model, chunk: int) -> Places:
    """The places that a model was compiled with; each remembers what it has read.

    Where there are several, each step reads ``chunk`` tokens of new texts at most.
    """
    several = model.manifest.batch > 1
    return SideBySide(model, remembers=True, chunk=chunk) if several else OneText(model)


class Job:
    """A text to be continued, and whoever is told of it, in the thread of the model.

    Attributes:
        text: The text.
        is_wanted: Whether anybody waits for it; anyone may set it to false.
    """

    def __init__(self, text: Text, tell: Callable[[News], None], *, streams: bool) -> None:
        self.text, self.is_wanted = text, True
        self._tell, self._streams = tell, streams
        self._shown = self._noted = 0

    def advance(self) -> None:
        """Tell what is new, if anybody wants it before the end, or if this is the end."""
        if self.text.is_over:
            self.end()
        elif self._streams and len(self.text.reply.made) > self._noted:
            self._tell(self._news())

    def end(self) -> None:
        """Tell the rest, and how it ended."""
        completion = self.text.completed()
        error = completion.error
        self._tell(self._news(completion, None if error is None else refusal_of(error)))

    def fail(self, refusal: Refusal) -> None:
        """Tell that it comes to nothing more."""
        self.text.is_over = True
        self._tell(self._news(None, refusal))

    def _news(self, completion: Completion | None = None, refusal: Refusal | None = None) -> News:
        shown, self._shown = self._shown, len(self.text.reply.text)
        noted, choose = self._noted, self.text.choose
        made = len(self.text.reply.made)
        self._noted = made
        picked = choose.picked[noted:made] if isinstance(choose, NotingSampler) else ()
        return News(self, self.text.reply.text[shown:], picked, completion, refusal)


class News:
    """Progress of a job since it was last told.

    Attributes:
        job: The job.
        text: The text that was added.
        picked: The tokens that were, where somebody asked how likely they are.
        completion: The whole, if it is over.
        refusal: What went wrong, if anything did.
    """

    __slots__ = ("completion", "job", "picked", "refusal", "text")

    def __init__(
        self,
        job: Job,
        text: str,
        picked: Sequence[Picked],
        completion: Completion | None,
        refusal: Refusal | None,
    ) -> None:
        self.job, self.text, self.picked = job, text, picked
        self.completion, self.refusal = completion, refusal


class Worker:
    """The thread of one model, and the jobs that wait for it."""

    def __init__(
        self, name: str, model: Model, limits: Limits, observe: Callable[[int], None]
    ) -> None:
        """Start the thread; ``observe`` is told after each step how many texts were in it."""
        self._name, self._chunk = name, limits.chunk
        self._model, self._most, self._observe = model, limits.queue, observe
        self._changed = Condition()
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._places = places_of(model, limits.chunk)
        self._refusal: Refusal | None = None
        self._thread = Thread(target=self._run, name=f"model {name}", daemon=True)
        self._thread.start()

    @property
    def is_well(self) -> bool:
        """Return whether it takes jobs."""
        return self._refusal is None

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of jobs that are continued now."""
        return len(self._running)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take the jobs of a request, all or none; refuses them where too many wait."""
        with self._changed:
            if self._refusal is not None:
                raise self._refusal
            if len(self._waiting) + len(jobs) > self._most:
                raise busy(len(self._waiting), self._most)
            self._waiting.extend(jobs)
            self._changed.notify()

    def drop(self, jobs: Sequence[Job]) -> None:
        """Forget jobs that nobody wants any more: those that wait now, the others after a step."""
        with self._changed:
            for job in jobs:
                job.is_wanted = False
            if any(job in self._waiting for job in jobs):
                self._waiting = deque(job for job in self._waiting if job.is_wanted)
            self._changed.notify()

    def stop(self) -> None:
        """Take no more jobs and refuse those that wait; those in their places go on."""
        self._refuse(stopping())

    def join(self) -> None:
        """Drop what is still running, and wait for the step in progress."""
        self.stop()
        self.drop(list(self._running))
        self._thread.join()

    def _run(self) -> None:
        """Continue texts until it is told to stop; whatever goes wrong, nobody is left waiting."""
        try:
            while self._admit():
                self._step()
        except BaseException as error:
            self._break(error)

    def _admit(self) -> bool:
        """Give free places to jobs that wait, once there is something to do; whether there is."""
        with self._changed:
            while True:
                self._free([job for job in self._running if not job.is_wanted])
                while self._waiting and self._places.has_room:
                    self._begin(self._waiting[0])
                    self._waiting.popleft()
                if self._running or self._refusal is not None:
                    return bool(self._running)
                self._changed.wait()

    def _begin(self, job: Job) -> None:
        if job.text.is_over:  # no tokens were asked for
            job.end()
            return
        self._places.begin(job.text)
        self._running.append(job)

    def _free(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._places.end(job.text)
            self._running.remove(job)

    def _step(self) -> None:
        """Make a token of each text; where the machine fails, its texts end and others may come."""
        try:
            self._places.step()
        except RunError as error:
            self._fail(refusal_of(error))
            self._places = places_of(self._model, self._chunk)
        else:
            self._observe(len(self._running))
            self._tell()

    def _tell(self) -> None:
        for job in self._running:
            job.advance()
        with self._changed:
            self._free([job for job in self._running if job.text.is_over])

    def _fail(self, refusal: Refusal) -> None:
        """Tell all jobs in their places that they come to nothing more."""
        with self._changed:
            failed, self._running = self._running, []
        for job in failed:
            job.fail(refusal)

    def _break(self, error: BaseException) -> None:
        """Tell all of an error that is none of a text, or of the machine: no job is taken again."""
        self._refuse(Refusal(503, BROKEN, SERVER))
        self._fail(Refusal(500, BROKEN, SERVER))
        with suppress(OSError):  # perhaps nobody reads it any more
            sys.stderr.write(f"error: {self._name}: {error!r:.500}\n")

    def _refuse(self, refusal: Refusal) -> None:
        with self._changed:
            self._refusal = self._refusal or refusal
            waiting, self._waiting = self._waiting, deque()
            self._changed.notify()
        for job in waiting:
            job.fail(refusal)
