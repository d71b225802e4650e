"""Codecs of the sizes and options of encoders of images, which follow from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from maxtool.recipe.codec_type import INTEGERS, NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values, is_number

# The largest share of the width that is looked for when a size is written as one.
MOST_TIMES = 64
LARGEST = 1 << 31
# With which ConvNeXt's factors of layers begin where there are any.
USUAL_SCALE = 1e-6


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


def _layers(_raws: Raws, values: Values) -> int:
    """The layers of all stages."""
    return sum(values["depths"])


def _no_key_of_layers(value: int, values: Values) -> Raws:
    if value != _layers((), values):
        raise Unspellable
    return ()


def _read_above_zero(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read whether a number is above 0."""
    (number,) = raws
    return number > 0 if is_number(number) else number


VISION_CODECS: Mapping[str, Codec] = {
    "patches_of_image": Codec(
        read=_patches,
        write=_no_key,
        types=("int",),
        keys=(),
        needs={"image_size": NUMBER, "patch_size": NUMBER},
    ),
    "layers_of_stages": Codec(
        read=_layers,
        write=_no_key_of_layers,
        types=("int",),
        keys=(),
        needs={"depths": INTEGERS},
    ),
    "above_zero": Codec(
        read=_read_above_zero,
        write=lambda value, _: (USUAL_SCALE if value else 0.0,),
        types=("bool",),
    ),
    "times_width": _times_width(plain),
    "times_width_gated": _times_width(gated),
}
