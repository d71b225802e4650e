"""Images in the messages of a conversation, where they stand in its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from maxtool.runtime.loader.chat import ChatEncoder, Message
from maxtool.runtime.loader.illustrated import no_images
from maxtool.runtime.loader.placed_images import PlacedImage
from maxtool.serve.message_parts import BYTES
from maxtool.serve.refusal import refusal_of
from maxtool.serve.served import Served


def encoded(
    served: Served, encoder: ChatEncoder, messages: Sequence[Message]
) -> tuple[list[int], Sequence[PlacedImage]]:
    """Ids of a conversation, and the images in it where they stand.

    Raises:
        Refusal: If the model reads no images, or one of them is none.
        TooLong: If there is no room for them: that is known before one is decoded.
    """
    images = [*_images(messages)]
    if not images:
        return encoder.encode(messages), ()
    if served.illustrations is None:
        raise refusal_of(no_images())
    ids = encoder.encode([_without_bytes(message) for message in messages])
    served.model.check_prompt(ids, 0)
    return ids, served.illustrations.placed(ids, served.illustrations.pixels(images))


def _images(messages: Sequence[Message]) -> Iterator[bytes]:
    for message in messages:
        if isinstance(message["content"], list):
            yield from (part[BYTES] for part in message["content"] if BYTES in part)


def _without_bytes(message: Message) -> Message:
    """The message as templates are given it."""
    said = message["content"]
    if not isinstance(said, list):
        return message
    parts = [{key: value for key, value in part.items() if key != BYTES} for part in said]
    return {**message, "content": parts}
