"""Steps in processes of this machine, one for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from maxtool.build.executor import Sent
from maxtool.build.step import Step

# What runs a step in a process of its own: it is given the folder of the build file, the step, and
# where to send what came of it, a ``Sent``.
Work = Callable[[Path, Step, Connection], None]
LOST = {"what": "the process ended without a word", "exit_code": 5, "problems": [], "hint": None}


class Processes:
    """An executor on this machine.

    Args:
        folder: The folder of the build file.
        work: What a process calls.
    """

    def __init__(self, folder: Path, work: Work) -> None:
        self._folder, self._work = folder, work
        self._running: dict[str, tuple[BaseProcess, Connection]] = {}

    def begin(self, step: Step, _memory: int) -> None:
        """Begin a step in a process of its own."""
        context = get_context("forkserver")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=self._work, args=(self._folder, step, sender))
        process.start()
        sender.close()
        self._running[step.name] = (process, receiver)

    def ended(self) -> Sequence[tuple[str, Sent]]:
        """Wait until processes have ended: the names of their steps, and what they sent."""
        ready = connection.wait([receiver for _, receiver in self._running.values()])
        names = [name for name, (_, receiver) in self._running.items() if receiver in ready]
        return [(name, _received(*self._running.pop(name))) for name in names]

    def stop(self) -> None:
        """End all processes."""
        for process, _ in self._running.values():
            process.terminate()
        for process, _ in self._running.values():
            process.join()


def _received(process: BaseProcess, receiver: Connection) -> Sent:
    """Return what a process sent, or an error that it ended without."""
    with closing(receiver):
        try:
            sent: Sent = receiver.recv()
        except EOFError:
            sent = Sent(error=LOST)
    process.join()
    return sent
