"""Contents of messages: texts, or parts of which some are images."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from maxtool.serve.fields import Reader, mapping, one_of, read, text, within

IMAGE, BYTES = "image", "bytes"
DATA_URL = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.ASCII | re.IGNORECASE)


def image_bytes(value: object) -> bytes:
    """Read an image that is in its own URL: no other server is asked for one."""
    url = text(value)
    begin = DATA_URL.match(url)
    if begin is None:
        raise ValueError("must be of the form data:image/png;base64,...: nothing is fetched here")
    try:
        return base64.b64decode(url[begin.end() :], validate=True)
    except binascii.Error as error:
        raise ValueError(f"must be an image in base64: {error}") from None


# Parts of a message by their type: what they have besides.
PARTS: Mapping[str, Mapping[str, Reader]] = {
    "text": {"text": text},
    "image_url": {
        "image_url": within({"url": image_bytes, "detail": one_of("auto", "low", "high")})
    },
}


def content(value: object) -> str | list[dict[str, Any]]:
    """Read the content of a message: a string, or a list of parts; a string if all are texts."""
    if not isinstance(value, list):
        return text(value)
    parts = [_part(part) for part in value]
    if any(part["type"] == IMAGE for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


def _part(value: object) -> dict[str, Any]:
    """A part as templates know it, and the bytes of an image."""
    said = {"type": mapping(value).get("type")}
    kind = read(said, {"type": one_of(*PARTS)}).get("type", "text")
    part = within({"type": one_of(kind), **PARTS[kind]})(value)
    if kind == "text":
        return {"type": kind, "text": part.get("text", "")}
    if "url" not in part.get("image_url", {}):
        raise ValueError("must have a url in each image_url")
    return {"type": IMAGE, BYTES: part["image_url"]["url"]}
