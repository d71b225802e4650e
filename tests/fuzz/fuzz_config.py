"""config.json beside tensors, and the keys of GGUF files, resolved by the recipes."""

from __future__ import annotations

import json

from harness import Target, put, run
from models import CONFIG, METADATA, as_gguf, huggingface, read_by_recipe

from maxtool.weights import open_checkpoint


def seeds() -> list[bytes]:
    older = {key: value for key, value in CONFIG.items() if key != "rope_parameters"}
    older |= {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    older |= {"torch_dtype": "bfloat16", "quantization_config": None, "eos_token_id": [1, 2]}
    return [json.dumps(CONFIG).encode(), json.dumps(older).encode(), as_gguf()]


def read(data: bytes) -> None:
    if data[:4] == b"GGUF":
        read_by_recipe(open_checkpoint(put(("x.gguf",), data)))
    else:
        config = put(("config.json",), data)
        read_by_recipe(open_checkpoint(huggingface().path, config=config))


WORDS = [*CONFIG, *METADATA, "sliding_window", "head_dim", "mistral", "null", "1e999"]
TARGET = Target(seeds, read, [word.encode() for word in WORDS])

if __name__ == "__main__":
    run(TARGET)
