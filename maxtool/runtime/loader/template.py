"""A chat template rendered: a program of its own, so that a limit or a crash ends only it.

A chat template is code that came with a model. Jinja's sandbox keeps it from Python's internals,
but not from looping for ever or making a text of many gigabytes; the limits of a process do. The
caller is ``chat.py``; a request, and its answer, is one JSON object::

    {"template", "variables", "seconds", "bytes", "most"}
        -> {"text"}, or {"long"} if it has more than "most" characters, or {"error", "line"}

What a template is given is what transformers gives it (``utils/chat_template_utils.py``), so that
it renders the same text.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

# Earlier releases have known ways out of the sandbox.
OLDEST_JINJA = (3, 1, 6)
MOST_SAID = 1000  # characters of an error
NAME = "<template>"  # what Jinja calls the file of a template that has none


def render(template: str, variables: Mapping[str, object]) -> str:
    """The text of a template, in this process: sandboxed, but with no limits."""
    return str(_environment().from_string(template).render(**variables))


def _environment() -> Any:  # noqa: ANN401 - an optional package
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}``, which marks an assistant's text for training, renders its body."""

        tags = {"generation"}  # noqa: RUF012 - as the base class has it

        def parse(self, parser: Any) -> Any:  # noqa: ANN401
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    extensions = [Generation, "jinja2.ext.loopcontrols"]
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=extensions
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it stands: Jinja's own filter writes ``<`` as an escape, for web pages."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: object) -> NoReturn:
    raise Refusal(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


class Refusal(Exception):
    """Error that a template's ``raise_exception`` raises."""


def answer(request: Mapping[str, Any]) -> dict[str, object]:
    """The text of a request, or what is wrong and the template's line where it is."""
    try:
        text = render(request["template"], request["variables"])
        if len(text) <= request["most"]:
            text.encode()  # half a character is not text
    except Refusal as error:
        said = f"it refuses the conversation: {error!s:.{MOST_SAID}}"
        return {"error": said, "line": _line(error)}
    except MemoryError:
        return {"error": "it takes too much memory", "line": None}
    except Exception as error:  # a template can raise anything
        return {"error": f"{type(error).__name__}: {error!s:.{MOST_SAID}}", "line": _line(error)}
    return {"text": text} if len(text) <= request["most"] else {"long": len(text)}


def _line(error: BaseException) -> int | None:
    """The line of the template where it went wrong."""
    said = getattr(error, "lineno", None)  # of a syntax error, which has run no line
    if isinstance(said, int):
        return said
    steps = traceback.extract_tb(error.__traceback__)
    return next((step.lineno for step in reversed(steps) if step.filename == NAME), None)


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


def main() -> None:
    """Answer the request on stdin, on stdout."""
    request = json.loads(sys.stdin.buffer.read())
    limit(request["seconds"], request["bytes"])
    try:
        import jinja2
    except ImportError:
        found: dict[str, object] = {"missing": "is not installed"}
    else:
        version = tuple(int(part) for part in jinja2.__version__.split(".")[:3] if part.isdigit())
        old = version < OLDEST_JINJA
        found = {"missing": f"is {jinja2.__version__}"} if old else answer(request)
    sys.stdout.buffer.write(json.dumps(found).encode())


if __name__ == "__main__":
    main()
