"""The small files of a Hugging Face folder: configuration, generation defaults, tokenizer."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maxtool.conversion import pair_files, suppressed_tokens
from maxtool.conversion.output_types import main_type
from maxtool.dtype import DType
from maxtool.recipe import Plan, sentence_transformers, written_keys
from maxtool.recipe.naming import HF_NAME, own_name
from maxtool.recipe.score_codecs import LABELS
from maxtool.tokenizer import Tokenizer, write_hf
from maxtool.tokenizer.huggingface import CARRIED, additional
from maxtool.weights import TensorSpec
from maxtool.weights.source_file import whole_file
from maxtool.weights.text_tables import said_of_texts

CONFIG = "config.json"
# What models take besides texts, which are prepared for them.
PREPARED = frozenset({"pixel_values", "input_features"})
GENERATION = "generation_config.json"
# What prepares images, sounds and videos for a model, in transformers' classes.
PROCESSORS = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
ID_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
# How transformers calls classes that write texts, and those that tell classes of texts apart.
WRITES, TELLS = "ForCausalLM", "ForSequenceClassification"
DTYPE_KEYS = ("dtype", "torch_dtype")


def from_huggingface(
    plan: Plan, specs: Sequence[TensorSpec], name: str | None = None
) -> dict[str, bytes]:
    """Every small file of the source folder as it stands; only the element type is told anew."""
    config = dict(plan.checkpoint.config or {})
    if plan.recipe.section and not plan.recipe.language_model:  # more is described than written
        said = {key: said_of_texts(config, key) for key in ID_KEYS}
        ids = {key: value for key, value in said.items() if value is not None}
        config = nested(written_keys(plan.recipe, "hf", plan.config)) | ids
        config.pop(sentence_transformers.TABLE, None)  # of which there are files
    config |= {HF_NAME: name} if name else {}
    present = [key for key in DTYPE_KEYS if key in config] or DTYPE_KEYS[:1]
    config.update(dict.fromkeys(present, dtype_name(specs)))
    files = {CONFIG: _json(config)}
    beside = sentence_transformers.carried(plan.checkpoint.folder)
    folder = plan.checkpoint.folder
    for name in (GENERATION, *CARRIED, *additional(folder), *beside, *_processors(plan)):
        file = folder / name
        if file.is_file():
            files[name] = whole_file(file)
    return files


def _processors(plan: Plan) -> tuple[str, ...]:
    """The files of processors, of a model that takes more than texts as it is written."""
    inputs = {name for entry in plan.recipe.entries.values() for name in entry}
    return PROCESSORS if PREPARED & inputs else ()


def from_gguf(
    plan: Plan,
    specs: Sequence[TensorSpec],
    tokenizer: Tokenizer | None,
    name: str | None = None,
) -> dict[str, bytes]:
    """The small files that say what a GGUF file's key/values say."""
    ids = {} if tokenizer is None else _token_ids(tokenizer)
    config = nested(written_keys(plan.recipe, "hf", plan.config))
    beside = config.pop(sentence_transformers.TABLE, {})
    name = name or own_name(plan)
    config |= {"dtype": dtype_name(specs), **ids, **({HF_NAME: name} if name else {})}
    if plan.config.get("scored_by") == LABELS:
        config["architectures"] = [one.replace(WRITES, TELLS) for one in config["architectures"]]
    files = {CONFIG: _json(config)}
    if beside:
        files |= sentence_transformers.files(beside, int(plan.config["hidden_size"]))
    if pair_files.scores_by_tokens(plan):
        tokenizer, pairs = pair_files.hf_files(tokenizer)
        files |= pairs
    said = ids | suppressed_tokens.hf_keys(plan.checkpoint.metadata)
    if said:
        files[GENERATION] = _json({"_from_model_config": True, **said})
    if tokenizer is None:
        return files
    with tempfile.TemporaryDirectory() as folder:
        return files | {path.name: path.read_bytes() for path in write_hf(tokenizer, Path(folder))}


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as tables within tables."""
    root: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        table = root
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return root


def _token_ids(tokenizer: Tokenizer) -> dict[str, Any]:
    """The ids that config.json carries, by its own names."""
    ends = tokenizer.eos_token_ids
    ids = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": ends[0] if len(ends) == 1 else list(ends) or None,
        "pad_token_id": tokenizer.special_ids.get("pad"),
    }
    return {key: value for key, value in ids.items() if value is not None}


def dtype_name(specs: Sequence[TensorSpec]) -> str:
    """The type that config.json names: that of most elements of matrices."""
    main = main_type(specs)
    return main.value if isinstance(main, DType) else DType.float32.value


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()
