"""Tokens that a model never writes: a key of generation_config.json, and one of GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.errors import ConfigurationError
from maxtool.recipe import Plan
from maxtool.weights.jsonfile import read_object

GENERATION, HF = "generation_config.json", "suppress_tokens"
GGUF = "tokenizer.ggml.suppress_tokens"
MOST = 1 << 20  # bytes
KINDS = frozenset({"gemma4_unified"})
"""The kinds of models of whose folders llama.cpp's converter reads them."""


def gguf_keys(plan: Plan) -> dict[str, Any]:
    """The key of a GGUF file for a Hugging Face folder that lists such tokens.

    Raises:
        ConfigurationError: If what it lists are no tokens.
        CheckpointError: If the file is malformed, or larger than such files are.
    """
    file = plan.checkpoint.folder / GENERATION
    kind = (plan.checkpoint.config or {}).get("model_type")
    if kind not in KINDS or not file.is_file():
        return {}
    tokens = read_object(file, most=MOST).get(HF)
    if not tokens:
        return {}
    if not _are_tokens(tokens, int(plan.config["vocab_size"])):
        what = f"{HF} = {tokens!r:.60} is not a list of tokens"
        raise ConfigurationError(what, file=file, hint=f"name tokens by number, or leave out {HF}")
    return {GGUF: tokens}


def hf_keys(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The key of generation_config.json for a GGUF file that lists such tokens."""
    tokens = metadata.get(GGUF)
    return {} if tokens is None else {HF: [int(token) for token in tokens]}


def _are_tokens(listed: object, size: int) -> bool:
    return isinstance(listed, list) and all(
        type(token) is int and 0 <= token < size for token in listed
    )
