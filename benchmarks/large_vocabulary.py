"""A checkpoint with random weights and a vocabulary as large as wanted, for other benchmarks.

    python benchmarks/large_vocabulary.py FOLDER --tokens 128256

The tokens are those of a byte-level tokenizer: bytes, and pieces of two to four small letters, with
and without a blank. The model is small, so that what the vocabulary costs is not lost in it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from safetensors.numpy import save_file

HIDDEN, INNER, HEADS, LAYERS = 64, 128, 4, 2
END = "<|end_of_text|>"
BLANK = "Ġ"  # as such tokenizers write it


def main() -> None:
    """Write the folder."""
    options = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--tokens", type=int, default=128_256)
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    write_json(given.folder / "tokenizer.json", tokenizer(given.tokens))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
    write_json(given.folder / "tokenizer_config.json", names)
    write_json(given.folder / "config.json", configuration(given.tokens))
    save_file(weights(given.tokens), given.folder / "model.safetensors")


def tokenizer(count: int) -> dict[str, object]:
    """A ``tokenizer.json`` of so many tokens."""
    pairs = list(islice(merges(), count - 257))
    tokens = [*byte_letters(), *("".join(pair) for pair in pairs), END]
    model = {
        "type": "BPE",
        "vocab": {token: number for number, token in enumerate(tokens)},
        "merges": [list(pair) for pair in pairs],
    }
    added = {"id": len(tokens) - 1, "content": END, "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [{**added, **flags}],
        "pre_tokenizer": {**level, "use_regex": True},
        "decoder": {**level, "use_regex": True},
        "model": model,
    }


def merges() -> Iterator[tuple[str, str]]:
    """Pairs of tokens that make further ones, each of tokens that were made before."""
    letters = ascii_lowercase
    pieces: list[str] = [BLANK, *letters]
    for _ in range(4):
        made = [(piece, letter) for piece, letter in product(pieces, letters)]
        yield from made
        pieces = ["".join(pair) for pair in made]


def byte_letters() -> list[str]:
    """The letters that stand for bytes, as GPT-2's tokenizer has them."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (chr(256 + number) for number in range(256 - len(shown)))
    letters = {byte: chr(byte) for byte in shown}
    return [letters.get(byte) or next(others) for byte in range(256)]


def configuration(count: int) -> dict[str, object]:
    """The ``config.json`` of a llama."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "vocab_size": count,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "eos_token_id": count - 1,
        "bos_token_id": None,
    }


def weights(count: int) -> dict[str, np.ndarray]:
    """Random weights, by their names in such a checkpoint."""
    random = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (count, HIDDEN), "lm_head.weight": (count, HIDDEN)}
    ones = {"model.norm.weight"}
    for layer in range(LAYERS):
        start = f"model.layers.{layer}"
        for one in "qkvo":
            shapes[f"{start}.self_attn.{one}_proj.weight"] = (HIDDEN, HIDDEN)
        for one in ("gate", "up"):
            shapes[f"{start}.mlp.{one}_proj.weight"] = (INNER, HIDDEN)
        shapes[f"{start}.mlp.down_proj.weight"] = (HIDDEN, INNER)
        ones |= {f"{start}.input_layernorm.weight", f"{start}.post_attention_layernorm.weight"}
    made = {name: random.standard_normal(shape, np.float32) / 8 for name, shape in shapes.items()}
    return made | {name: np.ones(HIDDEN, np.float32) for name in ones}


def write_json(file: Path, content: dict[str, object]) -> None:
    """Write an object to a file."""
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
