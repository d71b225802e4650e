"""Process that measures: orders come from stdin, answers go to stdout, a line of JSON each."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from maxtool.errors import MachineLacks, MaxtoolError, translated
from maxtool.runtime.loader.errors import FIELDS, RunError

Answer: TypeAlias = Mapping[str, object]
Orders: TypeAlias = Mapping[str, Callable[..., Answer]]

# Worker threads of a pool spin for some time before they sleep: until then they would disturb what
# is measured next. A process is at rest when it uses less than a tenth of a core.
NAP, IDLE, LONGEST_REST = 0.02, 0.1, 2.0


def serve(orders: Orders) -> None:
    """Obey orders until stdin ends: ``{"order": NAME, ...}``, the rest of it by keyword.

    An answer is what the order returns, or ``{"error": ...}`` as ``--json`` has it. It comes when
    the process is at rest, and has the seconds until then as ``rested``. Whoever gave the orders
    ends the process when it is interrupted.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # what libraries print is not an answer
        for line in sys.stdin:
            order = json.loads(line)
            answer = _answer(orders[order.pop("order")], order)
            answers.write(json.dumps({**answer, "rested": rest()}) + "\n")
            answers.flush()


def _answer(obey: Callable[..., Answer], arguments: Mapping[str, Any]) -> Answer:
    try:
        return obey(**arguments)
    except RunError as error:
        return {"error": _as_json(translated(error))}
    except MaxtoolError as error:
        return {"error": _as_json(error)}
    except MemoryError:
        return {"error": _as_json(MachineLacks("the machine has too little memory for this"))}


def _as_json(error: MaxtoolError) -> Answer:
    fields = {field: getattr(error, field) for field in FIELDS}
    return {"class": type(error).__name__, **fields, "problems": list(error.problems)}


def rest() -> float:
    """Wait until the threads of this process sleep; the seconds that took."""
    began, used = time.perf_counter(), LONGEST_REST
    while used > IDLE * NAP and time.perf_counter() - began < LONGEST_REST:
        before = time.process_time()
        time.sleep(NAP)
        used = time.process_time() - before
    return time.perf_counter() - began
