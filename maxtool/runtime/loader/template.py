"""A chat template rendered, in a process whose limits ``bounded.py`` sets.

A chat template is code that came with a model. Jinja's sandbox keeps it from Python's internals,
but not from looping for ever or making a text of many gigabytes; the limits of a process do. The
caller is ``chat.py``; a request, and its answer, is one JSON object::

    {"template", "variables", "each", "most"}
        -> {"texts"}, one for each of the variables that differ, or {"long"} if one of them has
           more than "most" characters, or {"error", "line"}, or {"missing"} where Jinja is, or is
           too old

What a template is given is what transformers gives it (``utils/chat_template_utils.py``), so that
it renders the same text. Many templates of models that see or hear write no content but that of
lists of parts, and nothing at all of a text: those are given lists.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

# Earlier releases have known ways out of the sandbox.
OLDEST_JINJA = (3, 1, 6)
MOST_SAID = 1000  # characters of an error
NAME = "<template>"  # what Jinja calls the file of a template that has none


def render(
    template: str, variables: Mapping[str, object], each: Sequence[Mapping[str, object]] = ({},)
) -> list[str]:
    """The texts of a template, in this process: sandboxed, but with no limits.

    There is one for each item of ``each``, which are further variables.
    """
    compiled = _environment().from_string(template)
    return [_rendered(compiled, {**variables, **further}) for further in each]


def _rendered(compiled: Any, given: Mapping[str, Any]) -> str:  # noqa: ANN401 - an optional package
    """The text of a template, whose messages are texts, or lists of parts where it drops texts."""
    text = str(compiled.render(given))
    messages = given.get("messages")
    if not isinstance(messages, list) or _has_users_words(text, messages):
        return text
    parted = str(compiled.render({**given, "messages": [_in_parts(each) for each in messages]}))
    is_read = _has_users_words(parted, messages) and "'type':" not in parted
    return parted if is_read else text


def _has_users_words(text: str, messages: Sequence[Any]) -> bool:
    """Return whether a text has what users said, as far as that is text."""
    users = (each for each in messages if isinstance(each, dict) and each.get("role") == "user")
    said = (user.get("content") for user in users)
    return all(words.strip() in text for words in said if isinstance(words, str))


def _in_parts(message: Any) -> Any:  # noqa: ANN401 - of a request
    """A message whose content is a list of one text."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), str):
        return message
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


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
    """The texts of a request, or what is wrong and the template's line where it is."""
    if missing := _missing():
        return {"missing": missing}
    try:
        texts = render(request["template"], request["variables"], request["each"])
        longest = max(map(len, texts), default=0)
        if longest <= request["most"]:
            "".join(texts).encode()  # half a character is not text
    except Refusal as error:
        said = f"it refuses the conversation: {error!s:.{MOST_SAID}}"
        return {"error": said, "line": _line(error)}
    except MemoryError:
        return {"error": "it takes too much memory", "line": None}
    except Exception as error:  # a template can raise anything
        return {"error": f"{type(error).__name__}: {error!s:.{MOST_SAID}}", "line": _line(error)}
    return {"texts": texts} if longest <= request["most"] else {"long": longest}


def _missing() -> str | None:
    """Return what is wrong with Jinja, if anything is; ``ImportError`` where there is none."""
    import jinja2

    version = tuple(int(part) for part in jinja2.__version__.split(".")[:3] if part.isdigit())
    return f"is {jinja2.__version__}" if version < OLDEST_JINJA else None


def _line(error: BaseException) -> int | None:
    """The line of the template where it went wrong."""
    said = getattr(error, "lineno", None)  # of a syntax error, which has run no line
    if isinstance(said, int):
        return said
    steps = traceback.extract_tb(error.__traceback__)
    return next((step.lineno for step in reversed(steps) if step.filename == NAME), None)
