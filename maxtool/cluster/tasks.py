"""Tasks on a cluster: begun, waited for, tried again where a worker is lost, and cancelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maxtool.cluster import remote
from maxtool.errors import MachineLacks

# Of a task: after so many, the worker is not what is wrong.
ATTEMPTS = 4


@dataclass(frozen=True)
class Task:
    """One task: a function that may run anywhere, and again.

    Attributes:
        name: What it is called in messages.
        function: The function, of a module of maxtool.
        arguments: Its arguments.
        memory: The bytes of memory that are reserved for it.
        is_alone: Whether the process that ran it ends with it.
        attempt: Which attempt this is, counted from 1.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    memory: int
    is_alone: bool = False
    attempt: int = 1


@dataclass
class Tasks:
    """The tasks of this process on the cluster that it is connected to; a core is for each.

    Those that still run when it disconnects are cancelled: Ray ends the workers of a driver that is
    gone. Ray 2.60 crashes a driver that cancels one at the moment at which it ends.

    Attributes:
        warn: What is told of workers that were lost.
        folder: The folder that paths are relative to, on all nodes.
    """

    warn: Callable[[str], None]
    folder: Path = field(default_factory=Path.cwd)
    _running: dict[Any, Task] = field(default_factory=dict, init=False)
    _widest: int = field(default=0, init=False)  # memory that a node has, or was told of

    def __len__(self) -> int:
        """Return the number of tasks that have not ended."""
        return len(self._running)

    @property
    def cores(self) -> int:
        """The cores of the cluster."""
        import ray

        return int(ray.cluster_resources().get("CPU", 0))

    def begin(self, task: Task) -> None:
        """Begin a task, on whichever node has room for it."""
        import ray

        self._tell_if_too_wide(task)
        remotely = ray.remote(
            num_cpus=1,
            memory=task.memory,
            max_retries=0,  # they are told of, and counted, here
            max_calls=1 if task.is_alone else 0,
            scheduling_strategy="SPREAD",
        )(remote.run)
        call = remote.Call(task.function, task.arguments, self.folder)
        self._running[remotely.options(name=task.name).remote(call)] = task

    def next(self) -> tuple[Task, remote.Ended]:
        """Wait for a task to end: it, and how it ended.

        A task whose worker is lost is begun again; one that was lost too often, or that does not
        run on the cluster at all, ends with ``MachineLacks``.
        """
        import ray

        while True:
            done, _ = ray.wait([*self._running], num_returns=1)
            task = self._running.pop(done[0])
            try:
                return task, ray.get(done[0])
            except ray.exceptions.RayError as error:
                if lack := self._lacking(task, error):
                    return task, remote.Ended(None, lack, "")

    def _lacking(self, task: Task, error: Exception) -> MachineLacks | None:
        """Begin a task whose worker was lost again; what the cluster lacks if that is in vain."""
        from ray import exceptions as of

        why = _reason(error)
        lost = (of.WorkerCrashedError, of.NodeDiedError, of.OutOfMemoryError, of.ObjectLostError)
        if not isinstance(error, lost):
            hint = "the nodes need the same versions of maxtool, Ray and Python as this machine"
            return MachineLacks(f"{task.name} did not run on the cluster: {why}", hint=hint)
        if task.attempt == ATTEMPTS:
            what = f"{task.name} lost its worker {ATTEMPTS} times: {why}"
            hint = "what is done stays; see the memory of the nodes, and Ray's logs"
            return MachineLacks(what, hint=hint)
        self.warn(
            f"{task.name} lost its worker and is tried again "
            f"(attempt {task.attempt + 1} of {ATTEMPTS}): {why}"
        )
        self.begin(replace(task, attempt=task.attempt + 1))
        return None

    def _tell_if_too_wide(self, task: Task) -> None:
        """Tell once of memory that no node has: one may be added, which Ray waits for."""
        if task.memory <= self._widest:
            return
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = max([node.get("memory", 0) for node in nodes if node.get("CPU", 0) >= 1], default=0)
        self._widest = max(task.memory, int(room))
        if task.memory > room:
            needed = f"a core and {task.memory >> 20} MiB of memory"
            self.warn(f"{task.name} waits for a node with {needed}, which none has yet")


def _reason(error: Exception) -> str:
    """Return what Ray says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1] if type(error).__name__.startswith("RayTask") else (lines or [""])[0]
    return said[:300] or type(error).__name__
