"""Decoder settings from a config.json."""

from __future__ import annotations

from maxtool.parity.decoder.huggingface.classes import CLASSES
from maxtool.parity.decoder.huggingface.families import ROWS
from maxtool.parity.decoder.huggingface.layers import one_rope, sliding_layers, window_sizes
from maxtool.parity.decoder.huggingface.row import Options, Row
from maxtool.parity.decoder.mlp import ACTIVATIONS
from maxtool.parity.decoder.settings import Settings, Sizes, check, layer_count
from maxtool.parity.raw_config import Reader
from maxtool.weights.checkpoint import Checkpoint


def read_settings(checkpoint: Checkpoint) -> Settings:
    """The settings of a Hugging Face folder.

    Its family is told by ``model_type``; where that is another one, by the class of
    transformers that ``architectures`` names.

    Raises:
        ConfigurationError: Listing everything that is missing, wrong or not supported.
    """
    config, problems = dict(checkpoint.config or {}), list[str]()
    row = _row(config)
    if row.section is not None:
        config |= Reader(config, problems).section(row.section)
    config = {row.older.get(key, key): value for key, value in config.items()}
    read = Reader({**row.defaults, **config}, problems)
    for key, allowed in {"quantization_config": (None,), **row.only}.items():
        read.only(key, *allowed)
    sizes = _sizes(read, row, checkpoint)
    sliding = sliding_layers(read, row, sizes.layers)
    options: Options = {
        "names": row.names,
        "sizes": sizes,
        "eps": read.number(row.key("eps")),
        "ropes": (row.ropes or one_rope)(read, row, sizes, sliding),
        "windows": window_sizes(read, row, sliding),
        "biased": _biased(read, row),
        "tied": read.flag("tie_word_embeddings"),
        "activation": read.choice(row.key("activation"), ACTIVATIONS, "silu"),
    }
    options |= row.fixed | (row.more(read, sizes) if row.more else {})
    return check(Settings(**options), problems, checkpoint)


def _row(config: Options) -> Row:
    model_type = str(config.get("model_type"))
    if model_type in ROWS:
        return ROWS[model_type]
    return ROWS[next(CLASSES[name] for name in config["architectures"] if name in CLASSES)]


def _sizes(read: Reader, row: Row, checkpoint: Checkpoint) -> Sizes:
    heads, hidden = read.integer(row.key("heads")), read.integer(row.key("hidden"))
    return Sizes(
        vocab=read.integer("vocab_size"),
        hidden=hidden,
        inner=read.integer(row.key("inner"), 4 * hidden if "inner" in row.keys else None),
        layers=layer_count(read.integer(row.key("layers")), checkpoint, read.problems),
        heads=heads,
        kv_heads=read.integer(row.key("kv_heads"), heads),
        head_dim=read.integer(row.key("head_dim"), hidden // heads or 1),
    )


def _biased(read: Reader, row: Row) -> frozenset[str]:
    chosen = {role for key, roles in row.biases.items() if read.flag(key) for role in roles}
    return frozenset(chosen.union(row.biased))
