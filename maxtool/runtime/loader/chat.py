"""A conversation as a chat template writes it: its text, and its token ids."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bounded import answer_of
from .errors import BadInput, DoesNotFit, MachineLacks, reading
from .manifest import Manifest
from .tokens import check_length, check_text, check_tokens, encoded, most_bytes, too_long

if TYPE_CHECKING:
    from .illustrated import Illustrations

Message = Mapping[str, object]

MAX_TEMPLATE = 1 << 20
SECONDS = 5  # of the processor
# What an answer may take as JSON: a character at most so many bytes, and what is around the text.
BYTES_PER_CHARACTER, ANSWER = 12, 1 << 16
# Around what users wrote that looks like a special token. No text may hold these characters.
OPENED, CLOSED = "\ufdd0", "\ufdd1"


@dataclass(frozen=True)
class ChatTemplate:
    """A model's chat template: Jinja, of the dialect that transformers has."""

    text: str
    file: Path | None  # where it came from, for messages
    variables: Mapping[str, object] = field(default_factory=dict)  # such as ``bos_token``
    seconds: int = SECONDS  # of the processor, that rendering may take

    def render(
        self, messages: Sequence[Message], *, reply: bool = True, context: int | None = None
    ) -> str:
        """The conversation as the model reads it.

        Args:
            messages: Each with ``role`` and ``content``.
            reply: Whether the beginning of a reply follows (``add_generation_prompt``).
            context: Positions of the model, which bound the text.

        Raises:
            DoesNotFit: If the template does something wrong, refuses the conversation, or takes
                more time or memory than rendering may.
            TooLong: If the text is more than the context can hold.
            MachineLacks: If there is no Jinja.
        """
        return self.render_all([messages], reply=reply, context=context)[0]

    def render_all(
        self,
        conversations: Sequence[Sequence[Message]],
        *,
        reply: bool = True,
        context: int | None = None,
    ) -> list[str]:
        """Several conversations, each as :meth:`render` gives it."""
        longest = most_bytes(context)
        variables = {**self.variables, "add_generation_prompt": reply}
        request = {
            "template": self.text,
            "variables": {"tools": None, "documents": None, **variables},
            "each": [{"messages": list(messages)} for messages in conversations],
            "most": longest,
        }
        most = ANSWER + BYTES_PER_CHARACTER * longest * len(conversations)
        try:
            answer = answer_of("template.py", request, seconds=self.seconds, most=most)
        except RecursionError:
            raise DoesNotFit("variables of the chat template are nested too deeply") from None
        if "missing" in answer:
            what = f"chat templates need Jinja 3.1.6 or newer, which {answer['missing']}"
            raise MachineLacks(what, hint="pip install 'jinja2>=3.1.6'")
        if "long" in answer:
            raise too_long(f"the conversation has {answer['long']} characters", context)
        if "texts" not in answer:
            line = answer.get("line")
            location = f" in line {line}" if line else ""
            what = f"the chat template fails{location}: {answer.get('error')}"
            raise DoesNotFit(what, file=self.file)
        return [str(text) for text in answer["texts"]]


def open_template(
    manifest: Manifest, file: Path | None = None, variables: Mapping[str, object] | None = None
) -> ChatTemplate:
    """The chat template of an artifact, or that of ``file``.

    It is given ``variables`` besides the special tokens of the artifact.
    """
    template = file or manifest.chat_template
    if template is None:
        what = "this model came without a chat template, so it may not be made for conversations"
        hint = "--prompt continues a text, --chat-template FILE gives it one"
        raise DoesNotFit(what, hint=hint)
    manifest.require_unchanged(template)
    with reading("the chat template", template):
        with template.open("rb") as stream:
            raw = stream.read(MAX_TEMPLATE + 1)
        if len(raw) > MAX_TEMPLATE:
            what = f"a chat template has at most {MAX_TEMPLATE} bytes"
            raise BadInput(what, file=template)
        given = {**manifest.special_tokens, **(variables or {})}
        return ChatTemplate(raw.decode(), template, given)


class ChatEncoder:
    """Token ids of conversations.

    What the template writes is read as it is, special tokens included. Where a message itself holds
    the text of a special token, that is encoded as the characters it is, so that nobody ends their
    turn, or begins another's, by typing its mark (transformers does so when it is told
    ``sanitize_control_tokens=True``).
    """

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: Any,  # noqa: ANN401
        context: int | None = None,
        illustrations: Illustrations | None = None,
    ) -> None:
        """Prepare to encode; ``illustrations`` knows what images are in the template's text."""
        self._illustrations = illustrations
        self._template, self._tokenizer, self._context = template, tokenizer, context
        added = tokenizer.get_added_tokens_decoder().values()
        special = sorted((t.content for t in added if t.special), key=len, reverse=True)
        any_special = "|".join(map(re.escape, special)) or "(?!)"  # which matches nothing
        self._special = re.compile(any_special)
        self._marked = re.compile(f"{OPENED}({any_special}){CLOSED}|[{OPENED}{CLOSED}]")

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a conversation that a reply is to follow."""
        written = self._template.render(self._said(messages), context=self._context)
        check_tokens(self._tokenizer, written, self._context, "the conversation")
        return self._ids(written)

    def encode_all(
        self, conversations: Sequence[Sequence[Message]], *, reply: bool
    ) -> list[list[int]]:
        """The ids of several conversations, however many they are."""
        said = [self._said(messages) for messages in conversations]
        written = self._template.render_all(said, reply=reply, context=self._context)
        return [self._ids(text) for text in written]

    def _said(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with marks around what looks like a special token."""
        return [{key: self._mark(value) for key, value in message.items()} for message in messages]

    def _ids(self, written: str) -> list[int]:
        """The ids of what the template wrote."""
        first, *rest = self._marked.split(written)
        ids = encoded(self._tokenizer, self._with_images(first))
        # The pattern has one group: every second part is a marked token, or None for a lone mark.
        for i, part in enumerate(rest):
            ids += self._within(part, as_text=i % 2 == 0) if part else []
        return ids

    def _with_images(self, text: str) -> str:
        """Text of the template with all tokens of the images in it."""
        if self._illustrations is None:
            return text
        return self._illustrations.written(text, self._tokenizer)

    def _mark(self, value: object) -> object:
        if isinstance(value, list):
            return [self._mark(item) for item in value]
        if isinstance(value, dict):
            return {key: self._mark(item) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        check_text(value, "the message")
        check_length(value, self._context, "the message")
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
        text = text if as_text else self._with_images(text)
        line_end, ids = encoded(tokenizer, "\n"), encoded(tokenizer, f"\n{text}")
        behind = ids[: len(line_end)] == line_end
        return ids[len(line_end) :] if behind else encoded(tokenizer, text)
