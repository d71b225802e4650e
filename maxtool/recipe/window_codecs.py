"""A codec of how wide windows are, where perhaps no layer has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.codec_type import FLAGS_OR_NULL, NUMBER, Codec, Raws
from maxtool.recipe.expressions import Undefined, Values


def _read_window(raws: Raws, values: Values) -> Any:  # noqa: ANN401 - the field's type decides
    """Read a width; null stands for the context, unless some layer has a window."""
    if raws[0] is None and any(values["sliding_layers"] or ()):
        raise Undefined("null, and there are layers with a window")
    return values["context_length"] if raws[0] is None else raws[0]


WINDOW_CODECS: Mapping[str, Codec] = {
    "window_of_layers": Codec(
        read=_read_window,
        write=lambda value, _: (value,),
        types=("int",),
        keys=("any",),
        needs={"sliding_layers": FLAGS_OR_NULL, "context_length": NUMBER},
    ),
}
