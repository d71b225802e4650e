"""Steps on the nodes of a cluster, which see the folder of the build file under the same path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from maxtool.build.executor import Sent
from maxtool.build.record import made_with
from maxtool.build.step import Step
from maxtool.cluster import Task, Tasks
from maxtool.errors import MachineLacks

# What runs a step on a node: it is given the step, and what it is to be made with.
RemoteWork = Callable[[Step, Mapping[str, str]], Sent]


class ClusterSteps:
    """An executor on a cluster.

    Args:
        tasks: The tasks of this process there, in the folder of the build file.
        work: What a node calls.
        told: What makes JSON of an error.
    """

    def __init__(
        self, tasks: Tasks, work: RemoteWork, told: Callable[[Any], Mapping[str, Any]]
    ) -> None:
        self._tasks, self._work, self._told = tasks, work, told

    def begin(self, step: Step, memory: int) -> None:
        """Begin a step on whichever node has room for it."""
        arguments = (step, made_with(step))
        self._tasks.begin(Task(step.name, self._work, arguments, memory, is_alone=True))

    def ended(self) -> Sequence[tuple[str, Sent]]:
        """Wait until a step has ended: its name, and what it sent."""
        task, ended = self._tasks.next()
        if ended.error is not None:
            return [(task.name, Sent(error=self._told(ended.error)))]
        return [(task.name, ended.value)]

    def stop(self) -> None:
        """Leave all steps to the end of the connection, which cancels them."""


def check_same(step: Step, asked: Mapping[str, str]) -> None:
    """Check that this machine makes of a step what the one that asks would.

    ``MachineLacks`` lists what differs: versions and, where the step is for whatever machine runs
    it, the processor.
    """
    here = made_with(step)
    problems = [
        f"{name}: {'another' if name == 'machine' else here.get(name)} here, "
        f"{'the one that asks' if name == 'machine' else value} there"
        for name, value in asked.items()
        if here.get(name) != value
    ]
    if problems:
        what = f"this node would make something else of {step.name}"
        hint = "install the same versions on all nodes, and name a target: cpu:x86-64-v3"
        raise MachineLacks(what, problems=problems, hint=hint)
