"""Images within texts: the tokens that they become, and the entry that reads one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .image_entries import PIXELS
from .image_spec import image_spec
from .manifest_fields import given
from .manifest_parser import ManifestParser
from .manifest_rule import Rule
from .specs import GENERATE, LOOK, EntrySpec

SEEN = "image_embeds"
MOST_AROUND = 16  # characters around an image
# What follows the pixels: names, types, numbers of dimensions.
FURTHER = ["position int32 1"]
SLOTTED = [*FURTHER, "slot int32 1"]


@dataclass(frozen=True)
class ImageTokens:
    """Tokens of an image in a text, as the manifest says them."""

    count: int  # of an image
    token: int  # what stands for each of them
    begin: int  # before them; a text that has it alone has an image there
    end: int  # behind them
    around: str  # the text before and behind all of this

    @property
    def ids(self) -> tuple[int, int, int]:
        """The tokens that are named."""
        return self.token, self.begin, self.end


def image_tokens(item: Mapping[str, Any]) -> ImageTokens:
    """The tokens that a manifest says; ValueError that names what is wrong."""
    numbers = {name: given(item, name, _is_number) for name in ("count", "token", "begin", "end")}
    return ImageTokens(**numbers, around=given(item, "around", _is_around))


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_around(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MOST_AROUND


def _looks(manifest: ManifestParser) -> Iterator[str]:
    """Check that an image becomes as many tokens as the entry reads, all of which exist."""
    entry, item = manifest.entries.get(LOOK), manifest.image_tokens
    if manifest.task != GENERATE or (entry is None and item is None):
        return
    if entry is None or item is None:
        yield f"{LOOK!r} and 'image_tokens' go together, and there is one alone"
        return
    yield from _shaped(entry, slotted=manifest.batch > 1)
    try:
        tokens = image_tokens(item)
        steps = None if manifest.image is None else image_spec(manifest.image)
    except ValueError as error:
        yield f"of images, {error}"
        return
    limit = manifest.limits.get("input_ids")
    if not isinstance(limit, tuple) or max(tokens.ids) > limit[1]:
        yield f"'image_tokens' names token {max(tokens.ids)}, and the limit is {limit}"
    if entry.outputs and entry.outputs[0].shape[1:2] != (tokens.count,):
        yield f"an image is {tokens.count} tokens, and {LOOK!r} gives {entry.outputs[0]}"
    if steps is not None and entry.inputs[0].shape[1:] != (3, *(steps.result or ())):
        yield f"'image' makes {steps.result}, and {LOOK!r} takes {entry.inputs[0]}"


def _shaped(entry: EntrySpec, *, slotted: bool) -> Iterator[str]:
    """Check that pixels, and where they are read, give vectors of tokens."""
    pixels, *further = entry.inputs or (None,)
    said = [f"{spec.name} {spec.dtype} {len(spec.shape)}" for spec in further if spec]
    is_image = pixels is not None and (pixels.name, pixels.dtype) == (PIXELS, "float32")
    sizes = () if pixels is None else tuple(map(type, pixels.shape[1:]))
    if not is_image or sizes != (int, int, int) or said != (SLOTTED if slotted else FURTHER):
        yield f"{LOOK!r} is not from {PIXELS}[images, channels, height, width] and a position"
    outputs = [(spec.name, tuple(map(type, spec.shape[1:]))) for spec in entry.outputs]
    if outputs != [(SEEN, (int, int))] or not entry.state:
        yield f"{LOOK!r} does not give {SEEN}[images, tokens, size] alone, or has no state"


IMAGE_TOKEN_RULES: tuple[Rule, ...] = (_looks,)
