"""Queries and documents as the texts that a model scores, by its template for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .chat import ChatEncoder, ChatTemplate, Message
from .errors import DoesNotFit
from .manifest import Manifest

# Two contents of every message: what the texts of both end with is the template's own.
FILLERS = ("0", "1 2 3 4")
# Characters of the texts that are put into the template at once.
MOST_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class PairEncoder:
    """Token ids of a query with each of some documents.

    Attributes:
        encoder: Writes and encodes conversations.
        reply: Whether the beginning of a reply follows the messages.
        context: Positions of the model.
        instruction: What the model is told first; its template may have words of its own for None.
    """

    encoder: ChatEncoder
    reply: bool
    context: int | None
    instruction: str | None

    def encode(self, query: str, documents: Sequence[str]) -> list[tuple[list[int], bool]]:
        """The ids of each pair, and whether they are cut to the context.

        What is cut off is the end of the document: what the template puts behind it stays.

        Raises:
            DoesNotFit: If the template fails, or leaves out the query or the document.
            MachineLacks: If there is no Jinja.
        """
        # What the template does with the fillers tells what of it is always there.
        probes = [self._messages(one, other) for one in FILLERS for other in FILLERS]
        asked = [*probes, *(self._messages(query, document) for document in documents)]
        found = [
            ids
            for some in _in_parts(asked)
            for ids in self.encoder.encode_all(some, reply=self.reply)
        ]
        end = _end(*found[: len(probes)])
        pairs, most = found[len(probes) :], self.context
        if most is None:
            return [(ids, False) for ids in pairs]
        end = end[-most:]
        kept = most - len(end)
        return [(ids[:kept] + end, True) if len(ids) > most else (ids, False) for ids in pairs]

    def _messages(self, query: str, document: str) -> list[Message]:
        told = [{"role": "system", "content": self.instruction}] if self.instruction else []
        said = {"query": query, "document": document}.items()
        return [*told, *({"role": role, "content": content} for role, content in said)]


def _end(
    usual: list[int], other_document: list[int], other_query: list[int], others: list[int]
) -> list[int]:
    """The last tokens of every text, which are the template's own, from those of fillers.

    Raises:
        DoesNotFit: If a text is the same for another query, or another document.
    """
    for what, ids in (("query", other_query), ("document", other_document)):
        if ids == usual:
            raise DoesNotFit(f"the chat template of the model leaves out the {what}")
    shortest = min(len(usual), len(others))
    differing = (count for count in range(shortest) if usual[-1 - count] != others[-1 - count])
    return usual[len(usual) - next(differing, shortest) :]


def _in_parts(asked: Sequence[Sequence[Message]]) -> Iterator[list[Sequence[Message]]]:
    """Yield conversations, so many at once as there is memory for."""
    part: list[Sequence[Message]] = []
    size = 0
    for messages in asked:
        length = sum(len(str(message["content"])) for message in messages)
        if part and size + length > MOST_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(messages)
        size += length
    yield part


def open_pairs(
    manifest: Manifest,
    template: Mapping[str, Any],
    tokenizer: Any,  # noqa: ANN401 - an optional package
    instruction: str | None,
) -> PairEncoder:
    """The encoder of pairs of an artifact, whose manifest has a template for them."""
    given = {**manifest.special_tokens, **template["variables"]}
    written = ChatTemplate(template["text"], manifest.path, given)
    encoder = ChatEncoder(written, tokenizer, manifest.context)
    return PairEncoder(encoder, template["reply"], manifest.context, instruction)
