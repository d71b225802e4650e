"""Fields read from a GGUF file without one of its keys, or with another value of one.

llama.cpp's converter made the file; what it means without a key is what llama.cpp takes it for.
Fields that this changes, or that the file is refused, are in ``tests/data/gguf_keys.json``, written
by this module and reviewed as the data that it is::

    python -m tests.variants.gguf_keys
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from maxtool.errors import MaxtoolError
from maxtool.recipe import Recipe, resolve_config
from maxtool.weights import Checkpoint
from tests.variants.crashes import crashes_refuse

FILE = Path(__file__).resolve().parents[1] / "data" / "gguf_keys.json"
Config = dict[str, Any]

# Keys after the architecture's name, and whole ones, with some values.
VALUES: Config = {
    "attention.causal": [True, False],
    "attention.head_count": [2],
    "attention.head_count_kv": [2],
    "attention.key_length": [6],
    "attention.layer_norm_epsilon": [0.1],
    "attention.layer_norm_rms_epsilon": [0.1],
    "attention.scale": [0.3],
    "attention.sliding_window": [0, 5],
    "attention.sliding_window_pattern": [2, 3],
    "attention.value_length": [6],
    "attn_logit_softcapping": [2.0],
    "block_count": [2],
    "context_length": [6],
    "embedding_length": [24],
    "embedding_scale": [0.3],
    "expert_count": [0, 2],
    "expert_feed_forward_length": [20],
    "expert_used_count": [0, 2],
    "feed_forward_length": [24],
    "final_logit_softcapping": [2.0],
    "logit_scale": [4.0],
    "pooling_type": [0, 1, 2, 3],
    "residual_scale": [0.3],
    "rope.dimension_count": [6],
    "rope.freq_base": [3.0],
    "rope.freq_base_swa": [3.0],
    "rope.scale_linear": [1.0, 2.0],
    "rope.scaling.attn_factor": [1.5],
    "rope.scaling.factor": [3.0],
    "rope.scaling.finetuned": [True, False],
    "rope.scaling.original_context_length": [16],
    "rope.scaling.type": ["none", "linear", "yarn", "longrope", "other"],
    "rope.scaling.yarn_attn_factor": [1.5],
    "rope.scaling.yarn_beta_fast": [3.0],
    "rope.scaling.yarn_beta_slow": [3.0],
    "rope.scaling.yarn_ext_factor": [1.0, 2.0],
    "tensor_data_layout": ["jploski", "other"],
    "use_parallel_residual": [True, False],
    "vocab_size": [6],
    "general.type": ["model", "adapter"],
    "tokenizer.ggml.padding_token_id": [0, 3],
    "tokenizer.ggml.token_type_count": [3],
    "tokenizer.ggml.tokens": [["a", "b", "c"]],
}


# Several keys at once; without those that are null.
TOGETHER: tuple[Config, ...] = (
    {"attention.key_length": 6, "attention.value_length": 6, "rope.dimension_count": 6},
    {"attention.key_length": None, "attention.value_length": None, "rope.dimension_count": 6},
    {"vocab_size": None, "tokenizer.ggml.tokens": ["a", "b", "c"]},
)


def changes(metadata: Config) -> Iterator[tuple[str, Config]]:
    """Each change of a file's keys: what it is, and the keys then."""
    arch = metadata["general.architecture"]
    for key in metadata:
        if key.startswith((f"{arch}.", "tokenizer.")):
            yield f"without {key}", {other: metadata[other] for other in metadata if other != key}
    single = [{name: value} for name, values in VALUES.items() for value in values]
    for sets in [*single, *TOGETHER]:
        whole = {_whole(name, arch): value for name, value in sets.items()}
        other = metadata | {key: _typed(value) for key, value in whole.items()}
        what = ", ".join(f"{key} = {json.dumps(value)}" for key, value in whole.items())
        yield what, {key: value for key, value in other.items() if value is not None}


def _whole(name: str, arch: str) -> str:
    return name if name.startswith(("general.", "tokenizer.")) else f"{arch}.{name}"


def _typed(value: Any) -> Any:
    if value is None or isinstance(value, bool | str | list):
        return value
    return np.uint32(value) if isinstance(value, int) else np.float32(value)


def read(recipe: Recipe, checkpoint: Checkpoint, metadata: Config) -> Config | None:
    """The fields of a file with other keys, None if it is refused."""
    other = dataclasses.replace(checkpoint, metadata=metadata)
    try:
        with crashes_refuse():
            return resolve_config(recipe, other).values
    except MaxtoolError:
        return None


def differing(values: Config | None, usual: Config) -> Config | None:
    """The fields that are others, as JSON has them."""
    if values is None:
        return None
    result = {name: value for name, value in values.items() if value != usual[name]}
    return dict(json.loads(json.dumps(result)))


@cache
def recorded() -> dict[str, dict[str, Config | None]]:
    """Return the recordings, by family and change."""
    return dict(json.loads(FILE.read_text()))


def measured(recipe: Recipe, checkpoint: Checkpoint) -> dict[str, Config | None]:
    """Return the fields that a recipe reads from one file after each change."""
    metadata = dict(checkpoint.metadata)
    usual = resolve_config(recipe, checkpoint).values
    return {
        what: differing(read(recipe, checkpoint, keys), usual) for what, keys in changes(metadata)
    }


def main() -> None:
    """Write the file anew."""
    import tempfile

    from tests.variants.judge import Judge
    from tests.variants.rows import RANDOM

    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        judge = Judge(RANDOM, Path(scratch))
        for family in RANDOM:
            if (case := judge.file(family)) is not None and case.usual is not None:
                result = measured(case.usual.recipe, case.checkpoint)
                rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in result.items())
                lines.append(f"{json.dumps(family)}: {{\n{rows}\n}}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
