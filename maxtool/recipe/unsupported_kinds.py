"""Kinds of models that no recipe can describe, with what the architectures here lack for them."""

from __future__ import annotations

from collections.abc import Mapping

INDEXED = "it attends to the positions that an indexer chooses"
STREAMS = "its layers read and write several residual streams by learned weights"
DRAFTS = "it drafts for another model, whose hidden states, keys and values it reads"
CYCLES = "it reads each token with two stacks of layers, several times, with other keys each time"
_DEEPSEEK_V4 = f"it attends to runs of positions compressed into one, and {STREAMS}"
_DOTS3_NOTE = f"{INDEXED}, and latents of layers with a window have another size"
_HY_V4 = f"{INDEXED}, and {STREAMS}"
_QWEN4_EXP = f"{INDEXED}, {STREAMS}, and some of them look up runs of tokens"
LACKING: Mapping[str, str] = {
    "deepseek4": _DEEPSEEK_V4,
    "deepseek_v4": _DEEPSEEK_V4,
    "dots3_note": _DOTS3_NOTE,
    "dots3_note_text": _DOTS3_NOTE,
    "dots3note": _DOTS3_NOTE,
    "gemma4-assistant": DRAFTS,
    "gemma4_assistant": DRAFTS,
    "gemma4_unified_assistant": DRAFTS,
    "hrm_text": CYCLES,
    "hy_v4": _HY_V4,
    "qwen4_exp": _QWEN4_EXP,
    "qwen4_exp_text": _QWEN4_EXP,
    "qwen4exp": _QWEN4_EXP,
}
"""The reasons, by ``model_type`` or ``general.architecture``."""


def lacking(kind: object) -> str | None:
    """The reason why no recipe describes models of a kind, if one is known."""
    return LACKING.get(kind) if isinstance(kind, str) else None
