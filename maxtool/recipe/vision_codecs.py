"""Codecs of the sizes of vision transformers, which follow from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values, is_number

# The largest share of the width that is looked for when a size is written as one.
MOST_TIMES = 64
LARGEST = 1 << 31


def _patches(_raws: Raws, values: Values) -> int:
    """The patches of a square image; rows and columns that fill none are not looked at."""
    return int((values["image_size"] // values["patch_size"]) ** 2)


def _no_key(value: int, values: Values) -> Raws:
    if value != _patches((), values):
        raise Unspellable
    return ()


def plain(width: int, times: float) -> int:
    """The inner width of a plain MLP."""
    return int(width * times)


def gated(width: int, times: float) -> int:
    """The inner width of DINOv2's gated MLP: two thirds of the plain one's, in eights."""
    return (int(plain(width, times) * 2 / 3) + 7) // 8 * 8


def _times_width(inner: Callable[[int, float], int]) -> Codec:
    """An inner width that is kept as how many times the width it is."""

    def read(raws: Raws, values: Values) -> Any:  # noqa: ANN401
        times, width = raws[0], values["hidden_size"]
        if not is_number(times):
            return times
        if not 0 < times * width < LARGEST:
            raise Undefined(f"{times} times {width} is no size")
        return inner(width, times)

    def write(value: int, values: Values) -> Raws:
        width = values["hidden_size"]
        times = next((n for n in range(1, MOST_TIMES) if inner(width, n) == value), None)
        if times is None:
            raise Unspellable
        return (times,)

    return Codec(read, write, ("int",), needs={"hidden_size": NUMBER})


VISION_CODECS: Mapping[str, Codec] = {
    "patches_of_image": Codec(
        read=_patches,
        write=_no_key,
        types=("int",),
        keys=(),
        needs={"image_size": NUMBER, "patch_size": NUMBER},
    ),
    "times_width": _times_width(plain),
    "times_width_gated": _times_width(gated),
}
