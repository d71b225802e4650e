"""Decoder settings from a GGUF file's metadata and tensors.

A file says less than a config.json: which projections have biases, whether the head is tied and
which layers have experts is told by the tensors, and the activation by the architecture.
"""

from __future__ import annotations

from maxtool.parity.decoder.gguf.families import ROWS
from maxtool.parity.decoder.gguf.rope import read_rope
from maxtool.parity.decoder.gguf.row import Options, Row
from maxtool.parity.decoder.gguf.tensors import biased, rows, used_names
from maxtool.parity.decoder.rope import Rope
from maxtool.parity.decoder.settings import Experts, Settings, Sizes, check, layer_count
from maxtool.parity.raw_config import Reader
from maxtool.weights.checkpoint import Checkpoint


def read_settings(checkpoint: Checkpoint) -> Settings:
    """The settings of a GGUF file.

    Raises:
        ConfigurationError: Listing everything that is missing, wrong or not supported.
    """
    architecture, problems = str(checkpoint.metadata["general.architecture"]), list[str]()
    row = ROWS[architecture]
    read = Reader(checkpoint.metadata, problems, prefix=f"{architecture}.")
    sizes = _sizes(read, checkpoint)
    experts = _experts(read, sizes, checkpoint)
    windows = _windows(read, row, sizes.layers)
    options: Options = {
        "names": used_names(checkpoint, gated=row.fixed.get("gated", True)),
        "sizes": sizes,
        "eps": read.number(row.eps),
        "ropes": _ropes(read, row, sizes, windows, checkpoint),
        "windows": windows,
        "biased": biased(checkpoint),
        "tied": "output.weight" not in checkpoint.tensors,
        "experts": experts,
        "scale": read.optional_number("attention.scale"),
    }
    options |= row.fixed | (row.more(read, sizes, checkpoint) if row.more else {})
    return check(Settings(**options), problems, checkpoint)


def _sizes(read: Reader, checkpoint: Checkpoint) -> Sizes:
    heads, hidden = read.integer("attention.head_count"), read.integer("embedding_length")
    head_dim = read.integer("attention.key_length", hidden // heads or 1)
    read.only("attention.value_length", head_dim)
    return Sizes(
        vocab=rows("token_embd.weight", checkpoint),
        hidden=hidden,
        inner=read.integer("feed_forward_length"),
        layers=layer_count(read.integer("block_count"), checkpoint, read.problems),
        heads=heads,
        kv_heads=read.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
    )


def _experts(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Experts | None:
    """The choice of experts; their shares always sum to one in llama.cpp's architectures here."""
    if not read.get("expert_count"):
        return None
    routers = (f"blk.{layer}.ffn_gate_inp.weight" for layer in range(sizes.layers))
    return Experts(
        count=read.integer("expert_count"),
        used=read.integer("expert_used_count"),
        inner=read.integer("expert_feed_forward_length", sizes.inner),
        normalized=True,
        layers=tuple(router in checkpoint.tensors for router in routers),
    )


def _windows(read: Reader, row: Row, layers: int) -> tuple[int | None, ...]:
    """For each layer its window; the key's 0 means none."""
    size = row.window
    if (stated := read.get("attention.sliding_window")) is not None:
        size = read.integer("attention.sliding_window") if stated else None
    pattern = read.get("attention.sliding_window_pattern")
    if isinstance(pattern, list | tuple) and len(pattern) == layers:
        sliding = tuple(map(bool, pattern))
    else:
        every = row.pattern if pattern is None else read.integer("attention.sliding_window_pattern")
        sliding = tuple(not every or (layer + 1) % every != 0 for layer in range(layers))
    return tuple(size if slides else None for slides in sliding)


def _ropes(
    read: Reader,
    row: Row,
    sizes: Sizes,
    windows: tuple[int | None, ...],
    checkpoint: Checkpoint,
) -> tuple[Rope | None, ...]:
    if not row.rope:
        return (None,) * sizes.layers
    rope = read_rope(read, checkpoint, sizes.head_dim)
    local = Rope(rope.dim, read.number("rope.freq_base_swa", 10000.0)) if row.local_rope else rope
    every = row.without_rope or sizes.layers + 1
    return tuple(
        (rope if window is None or not row.local_rope else local) if (layer + 1) % every else None
        for layer, window in enumerate(windows)
    )
