"""What differs from layer to layer: windows, and how queries and keys are rotated."""

from __future__ import annotations

from collections.abc import Callable

from maxtool.parity.decoder.huggingface.rope import RopeKeys, read_rope
from maxtool.parity.decoder.huggingface.row import Row
from maxtool.parity.decoder.rope import Rope
from maxtool.parity.decoder.settings import Sizes
from maxtool.parity.raw_config import Reader

SLIDING, FULL = KINDS = ("sliding_attention", "full_attention")
GEMMA3_GLOBAL = RopeKeys(default_theta=1e6)
GEMMA3_LOCAL = RopeKeys(theta="rope_local_base_freq")


def sliding_layers(read: Reader, row: Row, layers: int) -> tuple[bool, ...]:
    """For each layer whether it is of the kind that sees a window."""
    windows = row.windows
    if windows is None:
        return (False,) * layers
    kinds = read.get("layer_types") if windows.listed else None
    if kinds is None:
        return tuple(windows.rule(read, layer) for layer in range(layers))
    if isinstance(kinds, list) and len(kinds) == layers and all(k in KINDS for k in kinds):
        return tuple(kind == SLIDING for kind in kinds)
    read.problems.append(f"layer_types does not name the kind of {layers} layers")
    return (False,) * layers


def window_sizes(read: Reader, row: Row, sliding: tuple[bool, ...]) -> tuple[int | None, ...]:
    """For each layer its window; null is none, and the family says what an absent key is."""
    windows = row.windows
    if windows is None or (windows.switch and not read.flag("use_sliding_window")):
        return (None,) * len(sliding)
    absent = "sliding_window" not in read.values
    window = windows.default if absent else read.get("sliding_window")
    size = None if window is None else read.integer("sliding_window", windows.default)
    return tuple(size if slides else None for slides in sliding)


def one_rope(
    read: Reader, row: Row, sizes: Sizes, sliding: tuple[bool, ...]
) -> tuple[Rope | None, ...]:
    """The same rotation in every layer."""
    if row.rope is None:
        return (None,) * len(sliding)
    context = read.integer(row.key("context"))
    rope = read_rope(read, row.rope, head_dim=sizes.head_dim, context=context)
    return (rope,) * len(sliding)


def gemma3_ropes(
    read: Reader, row: Row, sizes: Sizes, sliding: tuple[bool, ...]
) -> tuple[Rope | None, ...]:
    """A base for the layers with a window, another one, scaled, for those without."""
    context, nested = read.integer(row.key("context")), read.get("rope_parameters") is not None
    unscaled = {key: value for key, value in read.values.items() if key != "rope_scaling"}
    local = Reader(unscaled, read.problems)
    ropes = {
        slides: read_rope(
            local if slides else read,
            GEMMA3_LOCAL if slides else GEMMA3_GLOBAL,
            head_dim=sizes.head_dim,
            context=context,
            section=kind if nested else None,
        )
        for slides, kind in ((False, FULL), (True, SLIDING))
    }
    return tuple(ropes[slides] for slides in sliding)


def smollm3_ropes(
    read: Reader, row: Row, sizes: Sizes, sliding: tuple[bool, ...]
) -> tuple[Rope | None, ...]:
    """No rotation in some of the layers."""
    listed = read.get("no_rope_layers")
    if listed is not None and not (isinstance(listed, list) and len(listed) == sizes.layers):
        read.problems.append(f"no_rope_layers is not a list of {sizes.layers} numbers")
    ropes = one_rope(read, row, sizes, sliding)
    return tuple(rope if rotates(read, layer) else None for layer, rope in enumerate(ropes))


def rotates(read: Reader, layer: int) -> bool:
    """Whether a layer of SmolLM3 rotates: its list of layers says 1 for those that do."""
    listed = read.get("no_rope_layers")
    if listed is None:
        return (layer + 1) % read.integer("no_rope_layer_interval", 4) != 0
    return isinstance(listed, list) and layer < len(listed) and bool(listed[layer])


def still(read: Reader, layer: int) -> bool:
    """Whether a layer of SmolLM3 has a window where no list says it: if it does not rotate."""
    return read.flag("use_sliding_window") and not rotates(read, layer)


def late(read: Reader, layer: int) -> bool:
    """Whether a layer of Qwen comes after those that see everything."""
    return read.get("max_window_layers") == 0 or layer >= read.integer("max_window_layers", 28)


def not_every(default: int) -> Callable[[Reader, int], bool]:
    """All layers but every so many have a window."""
    return lambda read, layer: (layer + 1) % read.integer("sliding_window_pattern", default) != 0
