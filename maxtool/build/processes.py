"""Steps in processes of this machine, one for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from maxtool.build.executor import Sent
from maxtool.build.step import Step

# What runs a step in a process of its own: it is given the folder of the build file, the step, and
# where to send what came of it, a ``Sent``; before that, lines on how far it is.
Work = Callable[[Path, Step, Connection], None]
LOST = {"what": "the process ended without a word", "exit_code": 5, "problems": [], "hint": None}


class Processes:
    """An executor on this machine.

    Args:
        folder: The folder of the build file.
        work: What a process calls.
        told: What hears the name of a step, and how far it is.
    """

    def __init__(
        self, folder: Path, work: Work, told: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        self._folder, self._work, self._told = folder, work, told
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
        while True:
            ready = connection.wait([receiver for _, receiver in self._running.values()])
            names = [name for name, (_, receiver) in self._running.items() if receiver in ready]
            received = {name: _received(self._running[name][1]) for name in names}
            for name, line in received.items():
                if isinstance(line, str):
                    self._told(name, line)
            ended = [(name, sent) for name, sent in received.items() if isinstance(sent, Sent)]
            for name, _ in ended:
                process, receiver = self._running.pop(name)
                receiver.close()
                process.join()
            if ended:
                return ended

    def stop(self) -> None:
        """End all processes."""
        for process, _ in self._running.values():
            process.terminate()
        for process, _ in self._running.values():
            process.join()


def _received(receiver: Connection) -> Sent | str:
    """Return what a process sent, or an error that it ended without."""
    try:
        sent: Sent | str = receiver.recv()
    except EOFError:
        sent = Sent(error=LOST)
    return sent
