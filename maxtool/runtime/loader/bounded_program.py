"""A program whose time and memory are limited: ``python bounded_program.py FILE``.

It asks the function ``answer`` of the Python file FILE, which imports nothing of its package. The
caller is ``bounded.py``; a request, and its answer, is one JSON object, and the request has
``seconds`` of the processor and ``bytes`` of memory. What cannot be imported is answered with
``{"missing"}``.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location


def limit(seconds: int, nbytes: int) -> None:
    """Limit this process's processor time and memory, and forbid it to write files."""
    try:
        import resource
    except ImportError:  # not Unix: the caller's own clock is what remains
        return
    for what, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, nbytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):  # a system may grant less already
            resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def main(file: str) -> None:
    """Answer the request on stdin, on stdout."""
    request = json.loads(sys.stdin.buffer.read())
    limit(request["seconds"], request["bytes"])
    spec = spec_from_file_location("asked", file)
    if spec is None or spec.loader is None:  # never so for a name that ends in .py
        raise ImportError(file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        found = module.answer(request)
    except ImportError:
        found = {"missing": "is not installed"}
    sys.stdout.buffer.write(json.dumps(found).encode())


if __name__ == "__main__":
    main(sys.argv[1])
