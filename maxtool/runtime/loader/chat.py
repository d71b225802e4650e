"""A conversation as a chat template writes it: its text, and its token ids."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .errors import BadInput, DoesNotFit, MachineLacks
from .manifest import Manifest
from .tokens import check_text

Message = Mapping[str, object]

MAX_TEMPLATE = 1 << 20
SECONDS, CLOCK = 5, 60  # of the processor; by the clock, for systems that do not count the former
MEMORY = 512 << 20
PROGRAM = Path(__file__).with_name("template.py")
# Around what users wrote that looks like a special token. No text may hold these characters.
OPENED, CLOSED = "\ufdd0", "\ufdd1"


@dataclass(frozen=True)
class ChatTemplate:
    """How a model writes a conversation.

    Attributes:
        text: A Jinja template, of the dialect that transformers has.
        file: Where it came from, for messages.
        variables: What it is given besides the conversation, such as ``bos_token``.
        seconds: Time of the processor that rendering may take.
    """

    text: str
    file: Path
    variables: Mapping[str, object] = field(default_factory=dict)
    seconds: int = SECONDS

    def render(self, messages: Sequence[Message], *, reply: bool = True) -> str:
        """The conversation as the model reads it.

        Args:
            messages: Each with ``role`` and ``content``.
            reply: Whether the beginning of a reply follows (``add_generation_prompt``).

        Raises:
            DoesNotFit: If the template does something wrong, refuses the conversation, or takes
                more time or memory than rendering may.
            MachineLacks: If there is no Jinja.
        """
        given = {"messages": list(messages), "add_generation_prompt": reply}
        request = {
            "template": self.text,
            "variables": {"tools": None, "documents": None, **self.variables, **given},
            "seconds": self.seconds,
            "bytes": MEMORY,
        }
        found = self._answer(json.dumps(request).encode())
        if "missing" in found:
            what = f"chat templates need Jinja 3.1.6 or newer, which {found['missing']}"
            raise MachineLacks(f"{what}: pip install 'jinja2>=3.1.6'")
        if "text" not in found:
            line = found.get("line")
            place = f"{self.file}, line {line}" if line else f"{self.file}"
            raise DoesNotFit(f"the chat template fails ({place}): {found.get('error')}")
        return str(found["text"])

    def _answer(self, request: bytes) -> dict[str, Any]:
        """What the program that renders says; none of its limits can be passed here."""
        command = [sys.executable, "-P", "-B", str(PROGRAM)]
        try:
            done = subprocess.run(  # noqa: S603 - our own program, without a shell
                command,
                input=request,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=CLOCK,
                check=False,
            )
            answer = json.loads(done.stdout) if done.returncode == 0 else None
        except subprocess.TimeoutExpired:
            answer = None
        except OSError as error:
            raise MachineLacks(f"cannot start {sys.executable!r}: {error.strerror}") from None
        if not isinstance(answer, dict):
            most = f"{self.seconds} s and {MEMORY >> 20} MiB"
            return {"error": f"it was stopped, as it takes more than {most}, or crashes"}
        return answer


def open_template(
    manifest: Manifest, file: Path | None = None, variables: Mapping[str, object] | None = None
) -> ChatTemplate:
    """The chat template of an artifact, or that of ``file``.

    Args:
        manifest: The artifact's.
        file: A template to use instead of the artifact's.
        variables: What the template is given besides the special tokens of the artifact.

    Raises:
        DoesNotFit: If the artifact has none.
        BadInput: If it cannot be read.
    """
    found = file or manifest.chat_template
    if found is None:
        what = "this model came without a chat template, so it may not be made for conversations"
        raise DoesNotFit(f"{what}; --prompt continues a text, --chat-template FILE gives it one")
    try:
        with found.open("rb") as stream:
            raw = stream.read(MAX_TEMPLATE + 1)
        if len(raw) > MAX_TEMPLATE:
            raise BadInput(f"{found}: a chat template has at most {MAX_TEMPLATE} bytes")
        given = {**manifest.special_tokens, **(variables or {})}
        return ChatTemplate(raw.decode(), found, given)
    except OSError as error:
        raise BadInput(f"cannot read {found}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{found} is no UTF-8 text, at byte {error.start}") from None


class ChatEncoder:
    """Token ids of conversations.

    What the template writes is read as it is, special tokens included. Where a message itself holds
    the text of a special token, that is encoded as the characters it is, so that nobody ends their
    turn, or begins another's, by typing its mark (transformers does so when it is told
    ``sanitize_control_tokens=True``).
    """

    def __init__(self, template: ChatTemplate, tokenizer: Any) -> None:  # noqa: ANN401
        self._template, self._tokenizer = template, tokenizer
        added = tokenizer.get_added_tokens_decoder().values()
        special = sorted((t.content for t in added if t.special), key=len, reverse=True)
        any_special = "|".join(map(re.escape, special)) or "(?!)"  # which matches nothing
        self._special = re.compile(any_special)
        self._marked = re.compile(f"{OPENED}({any_special}){CLOSED}|[{OPENED}{CLOSED}]")

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a conversation that a reply is to follow.

        Raises:
            BadInput: If a message is no valid text.
            DoesNotFit: If the template fails.
            MachineLacks: If there is no Jinja.
        """
        said = [{key: self._mark(value) for key, value in one.items()} for one in messages]
        first, *rest = self._marked.split(self._template.render(said))
        ids = _ids(self._tokenizer, first)
        # The pattern has one group: every second part is a marked token, or None for a lone mark.
        for i, part in enumerate(rest):
            ids += self._within(part, as_text=i % 2 == 0) if part else []
        return ids

    def _mark(self, value: object) -> object:
        if not isinstance(value, str):
            return value
        check_text(value, "the message")
        plain = value.replace(OPENED, "").replace(CLOSED, "")
        return self._special.sub(rf"{OPENED}\g<0>{CLOSED}", plain)

    @cached_property
    def _plain(self) -> Any:  # noqa: ANN401
        """A tokenizer of its own that knows no special tokens; threads may share the other."""
        plain = type(self._tokenizer).from_str(self._tokenizer.to_str())
        plain.encode_special_tokens = True
        return plain

    def _within(self, text: str, *, as_text: bool) -> list[int]:
        """The ids of a part in the middle, without the space that some put before a beginning.

        Behind a line end there is none; the line end is taken off again.
        """
        tokenizer = self._plain if as_text else self._tokenizer
        line_end, ids = _ids(tokenizer, "\n"), _ids(tokenizer, f"\n{text}")
        behind = ids[: len(line_end)] == line_end
        return ids[len(line_end) :] if behind else _ids(tokenizer, text)


def _ids(tokenizer: Any, text: str) -> list[int]:  # noqa: ANN401
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids
