"""Facts for the manifest of a model that continues texts: the tokens that it does not write.

They are those of ``generation_config.json``, of ``config.json`` where there is no such file, or of
a GGUF file. What else these ask for, by which transformers would write another text, is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from maxtool.artifact import generation_config
from maxtool.errors import ConfigurationError
from maxtool.recipe import Plan
from maxtool.runtime.loader.specs import GENERATE

# What the manifest calls the tokens, and the keys; GGUF has one of them.
TOLD = {"ever": "suppress_tokens", "first": "begin_suppress_tokens"}
GGUF = "tokenizer.ggml.suppress_tokens"
# Ways of writing that are not offered, which a file may ask for.
NOT_DONE = (
    "bad_words_ids",
    "constraints",
    "dola_layers",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "guidance_scale",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "penalty_alpha",
    "sequence_bias",
)
# Tokens that are written whatever the model makes of them; 0 and 1 are some, too.
FORCED = ("forced_bos_token_id", "forced_eos_token_id")
# What is done for those who ask for it, and how they do.
ASKED = {"repetition_penalty": "--repetition-penalty", "stop_strings": "--stop"}


def generation_facts(planned: Plan, task: str | None) -> tuple[Mapping[str, Any], list[str]]:
    """The fact ``unwritten``, if there are such tokens, and what to tell."""
    if task != GENERATE:
        return {}, []
    said, file = generation_config.said_of(planned)
    if planned.checkpoint.config is None:
        said = {TOLD["ever"]: planned.checkpoint.metadata.get(GGUF)}
    size = planned.config["vocab_size"]
    found = {name: _tokens(said.get(key), key, size, file) for name, key in TOLD.items()}
    there = {name: tokens for name, tokens in found.items() if tokens}
    return ({"unwritten": there} if there else {}), [*_notes(said, file)]


def _notes(said: Mapping[str, Any], file: Path) -> Iterator[str]:
    """Lines about what the file asks for and is not done, or not by itself."""
    yield from generation_config.not_done(said, file, NOT_DONE)
    yield from generation_config.not_done(said, file, FORCED, usual=(None, []))
    for key, option in ASKED.items():
        for line in generation_config.not_done(said, file, [key]):
            yield f"{line} unless it is asked for: {option}"


def _tokens(value: Any, key: str, size: int, file: Path) -> list[int]:  # noqa: ANN401 - as it is said
    """The tokens that a key lists, without those that the model does not have.

    Raises:
        ConfigurationError: If it is not a list of whole numbers.
    """
    listed = [] if value is None else value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(listed, list) or not all(type(token) is int for token in listed):
        what = f"{key} = {value!r:.60} is not a list of tokens"
        raise ConfigurationError(what, file=file, hint=f"name tokens by number, or leave out {key}")
    return sorted({token for token in listed if 0 <= token < size})
