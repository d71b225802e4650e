"""onnxruntime in a process of its own, which some calls end, as an LSTM of no batch does."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

# Without VNNI, sums of products of bytes saturate, unless one asks for exact ones; which it then
# lacks for some operators.
EXACT = {"session.x64quantprecision": "1"}
FATAL = 4
"""Of the severities of onnxruntime's log the one that says nothing of what is refused anyway."""


class Refusal(Exception):
    """Refusal of a call or a model by onnxruntime, with its reason."""


class OnnxruntimeProcess:
    """A model that onnxruntime runs in a process beside this one, until this one ends.

    Raises:
        Refusal: If it does not load the model.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begin()

    def _begin(self) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._file, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._answer()

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array]) -> list[Array]:
        """The outputs of a call.

        Raises:
            Refusal: If onnxruntime refuses it, or does not survive it.
        """
        if not self._process.is_alive():
            self._begin()
        self._connection.send(([*outputs], {**inputs}))
        return self._answer()

    def _answer(self) -> list[Array]:
        try:
            answer: list[Array] | str = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            raise Refusal(f"its process ended with {self._process.exitcode}") from None
        if isinstance(answer, str):
            raise Refusal(answer)
        return answer


def _serve(file: Path, connection: Connection) -> None:
    """Answer calls with their outputs, or with a text on what is wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends this one
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where it says what ends it, without a reason
    try:
        session = _session(file)
    except Exception as error:
        connection.send(str(error))
        return
    connection.send([])
    while True:
        try:
            outputs, inputs = connection.recv()
        except EOFError:
            return
        try:
            connection.send(session.run(outputs, inputs))
        except Exception as error:
            connection.send(str(error))


def _session(file: Path) -> Any:  # noqa: ANN401 - onnxruntime is optional
    try:
        return _opened(file, EXACT)
    except Exception:
        return _opened(file, {})


def _opened(file: Path, entries: Mapping[str, str]) -> Any:  # noqa: ANN401 - likewise
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL
    for entry in entries.items():
        options.add_session_config_entry(*entry)
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
