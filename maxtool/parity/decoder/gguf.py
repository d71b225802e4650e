"""Decoder settings from a GGUF file's metadata and tensors, a row for each architecture.

A file says less than a config.json: which projections have biases, whether the head is tied and
which layers have experts is told by the tensors, and the activation by the architecture. What
llama.cpp takes for a key that is absent is taken here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from maxtool.parity.decoder import names
from maxtool.parity.decoder.gguf_rope import read_rope
from maxtool.parity.decoder.names import Names
from maxtool.parity.decoder.rope import Rope
from maxtool.parity.decoder.settings import (
    EVERY,
    QKV,
    Experts,
    Settings,
    Sizes,
    check,
    layer_count,
)
from maxtool.parity.raw_config import Reader
from maxtool.weights.checkpoint import Checkpoint

Options = dict[str, Any]
RMS_EPS, LAYER_EPS = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"


@dataclass(frozen=True, slots=True)
class Row:
    """How the files of one architecture are read.

    Attributes:
        fixed: Settings that all its models have in common.
        eps: Key of what norms add under their root.
        pattern: Every so many layers there is one without a window; 1 for a window in all.
        window: The window where no key says it, None for none.
        without_rope: Every so many layers there is one that does not rotate; 0 for none.
        rope: Whether heads rotate.
        local_rope: Whether layers with a window have a base of their own, without scaling.
        more: Further settings, from the metadata, the sizes and the checkpoint.
    """

    fixed: Options = field(default_factory=dict)
    eps: str = RMS_EPS
    pattern: int = 1
    window: int | None = None
    without_rope: int = 0
    rope: bool = True
    local_rope: bool = False
    more: Callable[[Reader, Sizes, Checkpoint], Options] | None = None


def read_settings(checkpoint: Checkpoint, architecture: str) -> Settings:
    """The settings of a GGUF file.

    Raises:
        ConfigurationError: Listing everything that is missing, wrong or not supported.
    """
    row, problems = ROWS[architecture], list[str]()
    read = Reader(checkpoint.metadata, problems, prefix=f"{architecture}.")
    sizes = _sizes(read, checkpoint)
    experts = _experts(read, sizes, checkpoint)
    windows = _windows(read, row, sizes.layers)
    options: Options = {
        "names": _names(checkpoint, experts, gated=row.fixed.get("gated", True)),
        "sizes": sizes,
        "eps": read.number(row.eps),
        "ropes": _ropes(read, row, sizes, windows, checkpoint),
        "windows": windows,
        "biased": _biased(checkpoint),
        "tied": "output.weight" not in checkpoint.tensors,
        "experts": experts,
    }
    options |= row.fixed | (row.more(read, sizes, checkpoint) if row.more else {})
    return check(Settings(**options), problems, checkpoint.path)


def _sizes(read: Reader, checkpoint: Checkpoint) -> Sizes:
    heads, hidden = read.integer("attention.head_count"), read.integer("embedding_length")
    head_dim = read.integer("attention.key_length", hidden // heads or 1)
    read.only("attention.value_length", head_dim)
    return Sizes(
        vocab=_rows("token_embd.weight", checkpoint),
        hidden=hidden,
        inner=read.integer("feed_forward_length"),
        layers=layer_count(read.integer("block_count"), checkpoint, read.problems),
        heads=heads,
        kv_heads=read.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
    )


def _rows(name: str, checkpoint: Checkpoint) -> int:
    """Rows of an embedding: ``vocab_size`` may be absent; 1 stands in for no tensor."""
    found = checkpoint.tensors.get(name)
    return found.shape[0] if found and found.shape else 1


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


def _names(checkpoint: Checkpoint, experts: Experts | None, *, gated: bool) -> Names:
    """The names, with what this file joins."""
    roles, tensors = dict(names.GGUF.roles), checkpoint.tensors
    if "blk.0.attn_qkv.weight" in tensors:
        roles |= names.GGUF_QKV
    if gated and experts is None and "blk.0.ffn_gate.weight" not in tensors:
        roles |= names.GGUF_GATE_UP
    return replace(names.GGUF, roles=roles)


def _biased(checkpoint: Checkpoint) -> frozenset[str]:
    """Roles that have a bias in any layer."""
    ends = tuple(
        name.partition("{}.")[2] + ".bias" for name in (names.GGUF_QKV["qkv"], *_projections())
    )
    found = {name.partition(".")[2].partition(".")[2] for name in checkpoint.tensors}
    roles = dict(zip(ends[1:], EVERY, strict=True))
    joined = QKV if ends[0] in found else ()
    return frozenset((*joined, *(role for end, role in roles.items() if end in found)))


def _projections() -> tuple[str, ...]:
    return tuple(names.GGUF.roles[role] for role in EVERY)


def _windows(read: Reader, row: Row, layers: int) -> tuple[int | None, ...]:
    """For each layer its window; the key's 0 means none."""
    size = row.window
    if (stated := read.get("attention.sliding_window")) is not None:
        size = read.integer("attention.sliding_window") if stated else None
    pattern = read.get("attention.sliding_window_pattern")
    if isinstance(pattern, list | tuple | np.ndarray) and len(pattern) == layers:
        sliding = tuple(map(bool, pattern))
    else:
        every = read.integer("attention.sliding_window_pattern", row.pattern)
        sliding = tuple(every == 1 or (layer + 1) % every != 0 for layer in range(layers))
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


def _gemma(layers_of_27b: int) -> Callable[[Reader, Sizes, Checkpoint], Options]:
    """Scales of Gemma: no key says that the model of 27 billion has another one for scores."""

    def more(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:  # noqa: ARG001
        large = sizes.layers == layers_of_27b
        divisor = sizes.hidden // sizes.heads if large else sizes.head_dim
        return {"embed_scale": sizes.hidden**0.5, "scale": divisor**-0.5}

    return more


def _gemma2(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:
    return _gemma(46)(read, sizes, checkpoint) | {
        "attention_cap": read.number("attn_logit_softcapping", 50.0),
        "logits_cap": read.number("final_logit_softcapping", 30.0),
    }


def _gemma3(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:
    cap = read.optional_number("final_logit_softcapping")
    return _gemma(62)(read, sizes, checkpoint) | {"logits_cap": cap}


def _granite(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:  # noqa: ARG001
    read.only("rope.scaling.finetuned", True)
    return {
        "scale": read.optional_number("attention.scale"),
        "embed_scale": read.number("embedding_scale", 1.0),
        "residual_scale": read.number("residual_scale", 1.0),
        "logits_scale": 1 / read.number("logit_scale", 1.0),
    }


def _gpt2(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:  # noqa: ARG001
    return {"positions": _rows("position_embd.weight", checkpoint)}


def _gpt_neox(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:  # noqa: ARG001
    parallel = read.flag("use_parallel_residual", default=True)
    return {"block": "parallel" if parallel else "pre"}


def _falcon(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:  # noqa: ARG001
    if "blk.0.attn_norm_2.weight" not in checkpoint.tensors:
        return {"block": "parallel_shared"}
    found = _names(checkpoint, None, gated=False)
    two = replace(found, roles={**found.roles, **names.GGUF_TWO_NORMS})
    return {"block": "parallel", "names": two}


PAIRS: Options = {"pairs": True}
GEMMA: Options = {"block": "sandwich", "activation": "gelu_pytorch_tanh"}
PLAIN: Options = {"norm": "layer", "gated": False}

ROWS: Mapping[str, Row] = {
    "llama": Row(PAIRS),
    "qwen2": Row(),
    "qwen3": Row({"qk_norm": "head"}),
    "qwen3moe": Row({"qk_norm": "head"}),
    "gemma2": Row(GEMMA, pattern=2, window=4096, more=_gemma2),
    "gemma3": Row(GEMMA | {"qk_norm": "head"}, pattern=6, local_rope=True, more=_gemma3),
    "phi3": Row(),
    "gpt2": Row(PLAIN | {"activation": "gelu_new"}, LAYER_EPS, rope=False, more=_gpt2),
    "gptneox": Row(PLAIN | {"activation": "gelu"}, LAYER_EPS, more=_gpt_neox),
    "starcoder2": Row(PLAIN | {"activation": "gelu_pytorch_tanh"}, LAYER_EPS),
    "olmo2": Row({"block": "post", "qk_norm": "full"}),
    "granite": Row(PAIRS, more=_granite),
    "smollm3": Row(PAIRS, without_rope=4),
    "falcon": Row(PLAIN | {"activation": "gelu"}, LAYER_EPS, more=_falcon),
}
"""How each ``general.architecture`` is read."""
