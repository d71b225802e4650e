"""Facts for the manifest of a model that writes a text behind another: the tokens around it.

They are those of ``generation_config.json``, or of ``config.json`` where there is no such file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maxtool.artifact import generation_config
from maxtool.errors import ConfigurationError
from maxtool.recipe import Plan
from maxtool.runtime.loader.specs import TEXT_TO_TEXT
from maxtool.runtime.loader.writing_spec import WritingSpec, writing_spec
from maxtool.tokenizer import Tokenizer

# What the manifest calls tokens and numbers, and the keys.
TOLD = {
    "start": "decoder_start_token_id",
    "ends": "eos_token_id",
    "forced_first": "forced_bos_token_id",
    "forced_last": "forced_eos_token_id",
    "suppressed": "suppress_tokens",
    "suppressed_first": "begin_suppress_tokens",
    "no_repeat": "no_repeat_ngram_size",
    "least": "min_length",
    "most": "max_length",
}
LISTS = ("ends", "forced_last", "suppressed", "suppressed_first")
# Numbers that mean nothing where they are 0.
COUNTS = ("no_repeat", "least", "most")
INSTEAD, ASKED = "bos_token_id", "max_new_tokens"
# Ways of writing that are not offered, which a file may ask for.
NOT_DONE = (
    "bad_words_ids",
    "constraints",
    "do_sample",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "min_new_tokens",
    "num_beam_groups",
    "num_beams",
    "penalty_alpha",
    "repetition_penalty",
    "sequence_bias",
)


def writing_facts(
    planned: Plan, task: str | None, tokenizer: Tokenizer | None
) -> tuple[Mapping[str, Any], list[str]]:
    """The fact ``writing``, if texts can be begun, and what to tell."""
    if task != TEXT_TO_TEXT:
        return {}, []
    said, file = generation_config.said_of(planned)  # GGUF says nothing but the first token
    found = _renamed(said)
    if file.name == generation_config.FILE:
        usual = {"start": said.get(INSTEAD)}
    else:
        last = planned.config["last_token"]
        usual = {"forced_last": [] if last is None else [last]}
    usual = {"start": planned.config["start_token"]} | _there(usual)
    found |= {name: value for name, value in usual.items() if not found[name] and found[name] != 0}
    if not found["ends"] and tokenizer is not None:
        found["ends"] = [*tokenizer.eos_token_ids]
    if found["start"] is None:
        files = f"neither {generation_config.FILE} nor the configuration"
        what = "says what token texts begin with: the artifact takes arrays, not text"
        return {}, [f"{files} {what}"]
    spec = _checked(found, file, planned.config["vocab_size"])
    told = {name: value for name, value in asdict(spec).items() if value not in (None, ())}
    return {"writing": told}, [*generation_config.not_done(said, file, NOT_DONE)]


def _there(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _renamed(said: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens by the manifest's names."""
    found = {name: said.get(key) for name, key in TOLD.items()}
    for name in LISTS:
        value = found[name]
        found[name] = value if isinstance(value, list) else [] if value is None else [value]
    found |= {name: None for name in COUNTS if found[name] == 0}
    most = found["most"]
    if type(most) is int:  # the token before all is counted
        found["most"] = max(1, most - 1)
    return found | ({"most": said[ASKED]} if said.get(ASKED) is not None else {})


def _checked(found: Mapping[str, Any], file: Path, size: int) -> WritingSpec:
    """The tokens, each of which is one of the model's ``size``."""
    try:
        spec = writing_spec(found)
        if (most := max(spec.tokens)) >= size:
            raise ValueError(f"token {most}, of {size}")
    except ValueError as error:
        what = f"the tokens around what is written are malformed: {error}"
        raise ConfigurationError(what, file=file) from None
    return spec
