"""Work for strangers in a process of its own, so that a limit or a crash ends only that."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from .errors import MachineLacks

CLOCK = 60  # seconds by the clock, for systems that do not count those of the processor
MEMORY = 512 << 20
PROGRAM = Path(__file__).with_name("bounded_program.py")


def answer_of(
    name: str, request: Mapping[str, object], *, seconds: int, most: int
) -> dict[str, Any]:
    """The answer of a file of this package, whose function ``answer`` is given a request.

    Args:
        name: The file, which imports nothing of the package.
        request: What JSON can hold.
        seconds: Of the processor, that it may take.
        most: Bytes of the answer, as JSON.

    Returns:
        What the function gives; its ``error`` says so where it is stopped, or crashes.

    Raises:
        MachineLacks: If no process can be started.
        RecursionError: If the request is nested too deeply.
    """
    asked = json.dumps({**request, "seconds": seconds, "bytes": MEMORY}).encode()
    command = [sys.executable, "-P", "-B", str(PROGRAM), str(PROGRAM.with_name(name))]
    try:
        said = output_of(command, asked, most)
        answer = None if said is None else json.loads(said)
    except ValueError:
        answer = None
    except OSError as error:
        raise MachineLacks(f"cannot start {sys.executable!r}: {error.strerror}") from None
    if not isinstance(answer, dict):
        bounds = f"{seconds} s and {MEMORY >> 20} MiB"
        return {"error": f"it was stopped, as it takes more than {bounds}, or crashes"}
    return answer


def output_of(command: Sequence[str], request: bytes, most: int) -> bytes | None:
    """The output of a program on stdout; None if it fails, takes too long or writes too much."""
    with subprocess.Popen(  # noqa: S603 - our own program, without a shell
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        clock = threading.Timer(CLOCK, child.kill)
        clock.start()
        try:
            with suppress(BrokenPipeError), cast("IO[bytes]", child.stdin) as asked:
                asked.write(request)  # it may end without reading
            said = cast("IO[bytes]", child.stdout).read(most + 1)
            if len(said) <= most and child.wait() == 0:
                return said
        finally:
            clock.cancel()
            child.kill()  # which does nothing to one that has ended
    return None
