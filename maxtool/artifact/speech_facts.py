"""Facts for the manifest of a model of speech: the preprocessing, and tokens that steer it.

The tokens are those of ``generation_config.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maxtool.architectures.encoder_decoder import EncoderDecoder
from maxtool.artifact import audio_processor, generation_config, image_processor
from maxtool.errors import ConfigurationError
from maxtool.recipe import Plan
from maxtool.runtime.loader.audio_spec import AudioSpec
from maxtool.runtime.loader.speech_spec import speech_spec

# What the manifest calls tokens and numbers, and the keys.
TOLD = {
    "start": "decoder_start_token_id",
    "end": "eos_token_id",
    "no_timestamps": "no_timestamps_token_id",
    "tasks": "task_to_id",
    "suppressed": "suppress_tokens",
    "suppressed_first": "begin_suppress_tokens",
    "latest_first": "max_initial_timestamp_index",
    "most": "max_length",
}
LANGUAGES, FORCED = "lang_to_id", "forced_decoder_ids"
SUPPRESSED = ("suppressed", "suppressed_first")
# Ways of writing that are not offered, which a file may ask for.
NOT_DONE = (
    "compression_ratio_threshold",
    "condition_on_prev_tokens",
    "do_sample",
    "logprob_threshold",
    "no_repeat_ngram_size",
    "no_speech_threshold",
    "num_beams",
    "penalty_alpha",
    "repetition_penalty",
)


def speech_facts(planned: Plan, module: object) -> tuple[Mapping[str, Any], list[str]]:
    """The facts ``audio`` and ``speech``, those there are; and what to tell."""
    if not isinstance(module, EncoderDecoder) or "n_mels" not in planned.config:
        return {}, []
    facts: dict[str, Any] = {}
    audio = audio_processor.read(planned.checkpoint.folder)
    notes = [] if audio else [_without(image_processor.FILE)]
    if audio is not None:
        _check_size(audio, planned)
        facts["audio"] = asdict(audio)
    file = planned.checkpoint.folder / generation_config.FILE
    if not file.is_file():
        return facts, [*notes, _without(generation_config.FILE)]
    said = generation_config.read(file)
    facts["speech"] = _tokens(said, file, planned.config["vocab_size"])
    left = generation_config.not_done(said, file, NOT_DONE)
    return facts, [*notes, *(f"{line}: tokens are the likeliest" for line in left)]


def _without(file: str) -> str:
    return f"the source has no {file}: the artifact takes spectrograms, not sounds"


def _check_size(audio: AudioSpec, planned: Plan) -> None:
    """Refuse spectrograms of another size than the encoder takes."""
    wanted = (planned.config["n_mels"], 2 * planned.config["source_positions"])
    if (audio.bands, audio.frames) != wanted:
        made = f"{audio.bands} bands and {audio.frames} frames"
        raise ConfigurationError(
            f"spectrograms have {made}, and the model takes {wanted[0]} and {wanted[1]}",
            file=planned.checkpoint.folder / image_processor.FILE,
        )


def _tokens(said: Mapping[str, Any], file: Path, size: int) -> dict[str, Any]:
    """The tokens as the manifest says them.

    Raises:
        ConfigurationError: If one is none of the ``size`` tokens of the model.
    """
    try:
        tokens = _renamed(said, size)
        if (most := max(speech_spec(tokens).tokens)) >= size:
            raise ValueError(f"token {most}, of {size}")
    except (ValueError, TypeError, AttributeError) as error:
        what = f"the tokens that steer the model are malformed: {error}"
        raise ConfigurationError(what, file=file) from None
    return tokens


def _renamed(said: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The tokens by the manifest's names; an error of any kind where they are malformed."""
    tokens = {name: said.get(key) for name, key in TOLD.items()}
    for name in SUPPRESSED:  # files have them for other vocabularies, too
        tokens[name] = [each for each in tokens[name] or () if type(each) is not int or each < size]
    match tokens["end"]:
        case [end]:
            tokens["end"] = end
    tokens["forced"] = [token for _, token in said.get(FORCED) or () if token is not None]
    if said.get("is_multilingual") is not False:
        named = said.get(LANGUAGES) or {}
        tokens["languages"] = {name.strip("<|>"): token for name, token in named.items()}
    return tokens
