"""Running of steps: side by side as far as cores and memory go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maxtool.build.executor import Executor, Sent
from maxtool.build.record import Record, Records, made_with, recorded_words
from maxtool.build.step import Kind, Step
from maxtool.files.content import Contents


@dataclass(slots=True)
class Outcome:
    """Outcome of a step: up to date, done, failed or skipped; in a dry run, would run."""

    step: Step
    status: str
    why: str = ""
    record: Record | None = None
    error: Mapping[str, Any] | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what runs side by side: processes, and the bytes of memory that they take."""

    jobs: int
    memory: int


@dataclass(frozen=True, slots=True)
class _Running:
    step: Step
    began: float
    began_ns: int
    memory: int
    why: str


class Building:
    """A build while it runs.

    Args:
        steps: What to do, each step behind those that it depends on.
        kinds: The kinds of these.
        contents: The files.
        records: What was done before.
        executor: What runs a step.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        kinds: Mapping[str, Kind],
        contents: Contents,
        records: Records,
        executor: Executor,
    ) -> None:
        self._kinds, self._contents, self._records = kinds, contents, records
        self._executor = executor
        self._waiting = {step.name: step for step in steps}
        self._names = frozenset(self._waiting)
        self._running: dict[str, _Running] = {}
        self._outcomes: dict[str, Outcome] = {}

    def run(
        self,
        limits: Limits,
        told: Callable[[Outcome], None],
        *,
        force: bool = False,
        dry_run: bool = False,
        keep_going: bool = False,
    ) -> list[Outcome]:
        """Run what is not up to date; ``told`` hears of each step as it ends.

        Args:
            limits: How much runs at the same time.
            told: What is called with each outcome.
            force: Whether steps run that are up to date.
            dry_run: Whether nothing runs.
            keep_going: Whether steps run after another, that they do not depend on, failed.
        """
        try:
            while self._waiting or self._running:
                failed = any(one.status == "failed" for one in self._outcomes.values())
                halted = failed and not keep_going
                began = self._decided(limits, told, force=force, dry_run=dry_run, halted=halted)
                if self._running and not began:
                    self._ended(told)
        finally:
            self._executor.stop()
            if not dry_run:
                self._contents.save()
        return list(self._outcomes.values())

    def _decided(
        self,
        limits: Limits,
        told: Callable[[Outcome], None],
        *,
        force: bool,
        dry_run: bool,
        halted: bool,
    ) -> bool:
        """Decide on one step that waits for nothing; False if there is none that could begin."""
        for step in self._waiting.values():
            if any(name in self._waiting or name in self._running for name in step.after):
                continue
            before = [self._outcomes[name] for name in step.after if name in self._outcomes]
            outcome = self._without_running(
                step, before, force=force, dry_run=dry_run, halted=halted
            )
            if outcome.status != "due":
                self._note(outcome, told)
            elif self._fits(step, limits):
                self._begin(step, outcome.why)
            else:
                continue
            del self._waiting[step.name]
            return True
        return False

    def _without_running(
        self, step: Step, before: Sequence[Outcome], *, force: bool, dry_run: bool, halted: bool
    ) -> Outcome:
        """Return what is known of a step before it runs; it is ``due`` if it has to."""
        if lost := [one.step.name for one in before if one.status in ("failed", "skipped")]:
            return Outcome(step, "skipped", f"{lost[0]} is not there")
        if halted:
            return Outcome(step, "skipped", "another step failed")
        planned = [one.step.name for one in before if one.status == "would run"]
        record = self._records.read(step.name)
        why = "it never ran" if record is None else record.stale(step, self._contents)
        why = "--force" if force else why or (f"{planned[0]} would run" if planned else None)
        if why is None:
            return Outcome(step, "up to date", record=record)
        return Outcome(step, "would run" if dry_run else "due", why, record)

    def _fits(self, step: Step, limits: Limits) -> bool:
        """Return whether a step may begin beside those that run; alone it always may."""
        if not self._running:
            return True
        beside = [running.step for running in self._running.values()]
        alone = any(self._kinds[one.kind].is_alone for one in (step, *beside))
        taken = sum(running.memory for running in self._running.values())
        is_room = taken + self._memory(step) <= limits.memory
        return len(self._running) < limits.jobs and is_room and not alone

    def _memory(self, step: Step) -> int:
        """The memory that a step takes: as it did before, or what its source has and some more."""
        record = self._records.read(step.name)
        if record is not None and record.peak_bytes:
            return record.peak_bytes
        files = (self._contents.folder / path for path in self._contents.below(step.source))
        size = sum(file.stat().st_size for file in files if file.is_file())
        return self._kinds[step.kind].base_bytes + size

    def _begin(self, step: Step, why: str) -> None:
        memory = self._memory(step)
        self._running[step.name] = _Running(step, time.monotonic(), time.time_ns(), memory, why)
        self._executor.begin(step, memory)

    def _ended(self, told: Callable[[Outcome], None]) -> None:
        """Wait until a step has ended, and note what came of it."""
        for name, sent in self._executor.ended():
            self._note(self._outcome(self._running.pop(name), sent), told)

    def _outcome(self, running: _Running, sent: Sent) -> Outcome:
        """Return what came of a step that ran; it is recorded where it did not fail."""
        step = running.step
        if sent.error is not None:
            return Outcome(step, "failed", running.why, error=sent.error, said=sent.said)
        record = Record(
            recorded_words(step.argv),
            step.output,
            made_with(step),
            self._read(sent, running.began_ns),
            self._contents.names(step.source),
            sent.outputs,
            sum(self._size(path) for path in sent.outputs),
            time.monotonic() - running.began,
            sent.peak_bytes,
        )
        self._records.write(step.name, record)
        return Outcome(step, "done", running.why, record, said=sent.said)

    def _read(self, sent: Sent, began_ns: int) -> dict[str, str]:
        """The digests of what a step read."""
        digests = self._contents.digests(sent.brought)
        return {path: digests.get(path) or self._unchanged(path, began_ns) for path in sent.inputs}

    def _unchanged(self, path: str, began_ns: int) -> str:
        """The digest of an input; nothing has it where the file was changed since the start.

        A time that is still to come is of a clock that was set back.
        """
        file = self._contents.folder / path
        if file.is_file() and began_ns <= file.stat().st_ctime_ns <= time.time_ns():
            return "written while it was read"
        return self._contents.digest(path)

    def _size(self, path: str) -> int:
        file = self._contents.folder / path
        return file.stat().st_size if file.is_file() else 0

    def _note(self, outcome: Outcome, told: Callable[[Outcome], None]) -> None:
        self._outcomes[outcome.step.name] = outcome
        told(outcome)
