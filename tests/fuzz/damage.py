"""Every seed of a target cut short and changed at every byte, under a limit of memory.

Run in a process of its own, since the limit is one of the whole process.
"""

from __future__ import annotations

import importlib
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from harness import MOST_BYTES, MOST_SECONDS, OURS, Target


def damaged(seed: bytes, most: int) -> Iterator[bytes]:
    """Truncations and changed bytes; at evenly spread places where there are more than ``most``."""
    for at in range(0, len(seed), -(-len(seed) // most)):
        yield seed[:at]
        for change in (1, 255):
            yield seed[:at] + bytes([seed[at] ^ change]) + seed[at + 1 :]


def limit_memory() -> None:
    """Fail every allocation that takes the process ``MOST_BYTES`` beyond its present memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def accepts(target: Target, data: bytes) -> bool:
    """Return whether an input is read and not refused; what it takes too long over is shown."""
    started = time.process_time()
    try:
        target.read(data)
        accepted = True
    except OURS:
        accepted = False
    except BaseException:
        sys.stderr.write(f"the input was {data!r}\n")
        raise
    if time.process_time() - started > MOST_SECONDS:
        raise TimeoutError(f"the input was {data!r}")
    return accepted


def main(name: str, most: int) -> None:
    """Print how many inputs were tried and how many of them were read."""
    target: Target = importlib.import_module(f"fuzz_{name}").TARGET
    for seed in target.seeds():
        target.read(seed)
    limit_memory()
    read = [accepts(target, data) for seed in target.seeds() for data in damaged(seed, most)]
    sys.stdout.write(f"{len(read)} {sum(read)}\n")
