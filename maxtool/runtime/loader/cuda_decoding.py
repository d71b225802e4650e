"""Tokens drawn on a GPU, one step after the other, without the host in between."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .cuda_graph import RecordedGraph
from .cuda_memory import CudaMemory
from .cuda_runtime import STREAM, TO_HOST, WITHIN, Event, Pinned
from .errors import RunError
from .memory import Array, nbytes_of
from .processor import Compiled, State
from .sampling import NOT_FINITE, Sampling

SLOTS = 2  # tokens on their way to the host: the one that is read, and the one being made
WORTH_RECORDING = 4  # steps that are still to come


class CudaDecoder:
    """Decoder of one text by the entries ``sample_prefill`` and ``sample_decode``.

    A step reads the token and the position that the step before left in the memory of the GPU. From
    the third step on it is one recorded graph. The ``state`` is of batch size 1.
    """

    def __init__(self, gpu: CudaMemory, compiled: Compiled, state: State, context: int) -> None:
        self._gpu, self._compiled, self._state = gpu, compiled, state
        self._graph: RecordedGraph | None = None
        self._plain = True  # steps are called, not recorded
        self._steps = self._made = self._read = 0
        with gpu.running():
            self._token, self._position = gpu.empty((1, 1), "int64"), gpu.empty((1,), "int32")
            self._draws, self._settings = (gpu.empty((n,), "float32") for n in (context, 5))
            self._slots = Pinned(gpu.cuda, 8 * SLOTS)
            self._events = [Event(gpu.cuda) for _ in range(SLOTS)]
        self._tokens = np.frombuffer(self._slots.view, np.int64)

    def begin(self, ids: Sequence[int], start: int, draws: Array, sampling: Sampling) -> None:
        """Ask for the token behind ``ids``, of which the state holds the first ``start``.

        ``draws`` are float32 ``[steps]``, from 0 up to but not 1: for this token and those to come.
        """
        places = np.zeros(self._draws.shape, np.float32)
        places[start] = draws[0]  # a call uses the one at its position
        places[len(ids) : len(ids) + len(draws) - 1] = draws[1:]
        seen = np.zeros(self._state.tensor("seen").shape, np.int8)
        seen[:, list(ids[:start])] = 1

        def work() -> None:
            write = self._gpu.write
            write(self._draws, places)
            write(self._settings, settings(sampling))
            write(self._state.tensor("seen"), seen)
            write(self._position, np.array([start], np.int32))
            inputs = self._gpu.tensor("token", np.array([ids[start:]], np.int64))
            self._call("sample_prefill", inputs, STREAM)
            self._fetch()

        self._made = self._read = 0
        self._guarded("sample_prefill", work)

    def step(self, more: int) -> None:
        """Ask for the token behind the last that was asked for; ``more`` steps will follow."""

        def work() -> None:
            self._advance(more)
            self._fetch()

        self._guarded("sample_decode", work)

    def read(self) -> int:
        """The oldest token that was asked for and not read."""
        slot = self._read % SLOTS
        self._events[slot].wait()
        self._read += 1
        token = int(self._tokens[slot])
        if token < 0:
            raise RunError(NOT_FINITE)
        return token

    def _advance(self, more: int) -> None:
        """One step: called, called and recorded, or launched."""
        self._steps += 1

        def work(stream: ctypes.c_void_p) -> None:
            self._call("sample_decode", self._token, stream)

        if self._graph is not None:
            self._graph.launch()
        elif self._plain and self._steps > 1 and more >= WORTH_RECORDING:
            self._record(work)
        else:
            work(STREAM)

    def _record(self, work: Callable[[ctypes.c_void_p], object]) -> None:
        """Run a step and record it; a step that cannot be recorded is called every time."""
        self._plain = False
        done: list[ctypes.c_void_p] = []

        def counted(stream: ctypes.c_void_p) -> None:
            work(stream)
            done.append(stream)

        try:
            self._graph = RecordedGraph(self._gpu.cuda, self._compiled.machine, counted)
        except (RuntimeError, RunError):
            if not done:  # not even the call itself
                raise
            self._gpu.cuda.forget_failure()

    def _call(self, name: str, token: Any, stream: ctypes.c_void_p) -> None:  # noqa: ANN401
        """Call an entry; its outputs go to where the next step reads them."""
        function = self._compiled.functions[name]
        inputs = token, self._position, self._draws, self._settings
        with self._gpu.on_stream(stream):
            results = list(function(*inputs, self._state.parts[0], self._compiled.weights))
        for target, source in zip((self._token, self._position), results, strict=True):
            places = target.data_ptr(), source.data_ptr()
            self._gpu.cuda.copy(*places, nbytes_of(target), WITHIN, stream)

    def _fetch(self) -> None:
        """Send the token to the host."""
        slot = self._made % SLOTS
        address = self._slots.address + 8 * slot
        self._gpu.cuda.copy(address, self._token.data_ptr(), 8, TO_HOST)
        self._events[slot].record()
        self._made += 1

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            with self._compiled.lock, self._gpu.running():
                work()
        except (RuntimeError, ValueError, TypeError) as error:
            raise self._gpu.refused(name, str(error)) from None


def settings(sampling: Sampling) -> Array:
    """Return the sampling settings that kernels take: 0 for those that are off, 1 for factors."""
    found = (
        sampling.temperature,
        sampling.top_k or 0,
        1.0 if sampling.top_p is None else sampling.top_p,
        sampling.min_p or 0.0,
        sampling.repetition_penalty,
    )
    return np.array(found, np.float32)
