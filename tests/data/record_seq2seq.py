"""Record what transformers computes with tiny models of two texts, in all their options.

Needs the ``peers`` extra (torch, transformers), and for GGUF a checkout of llama.cpp. It writes
``seq2seq.npz`` beside this script: the configuration and the shapes of the tensors of each case as
JSON, the encoder's output for sources of two lengths, and the logits after a prompt and after each
of the tokens that follow it; the tokens that ``generate`` writes, greedily; what the class takes
for keys that a configuration lacks; of T5 the keys and checksums of the GGUF file that llama.cpp's
converter makes. Weights follow from names (``seeded.py``), and are not recorded.

    python -m tests.data.record_seq2seq LLAMA_CPP
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from tests.data.record_gguf import convert
from tests.data.record_random import described
from tests.data.recorded_cases import quiet, shapes_of, write
from tests.data.seeded import Config, input_ids, tensors
from tests.data.seq2seq_inputs import CONTEXT, PROMPT, SOURCES, TOKENS, WRITTEN, sources, thinned

OUT = Path(__file__).parent / "seq2seq.npz"
RANDOM = 8
"""Random configurations of each family, besides those in which one key is another."""
BART: Config = {
    "vocab_size": 61,
    "d_model": 20,
    "max_position_embeddings": CONTEXT,
    "encoder_layers": 2,
    "encoder_attention_heads": 5,
    "encoder_ffn_dim": 28,
    "decoder_layers": 3,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 36,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
T5: Config = {
    "vocab_size": 61,
    "d_model": 20,
    "d_kv": 6,
    "d_ff": 28,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 5,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 128,
    "decoder_start_token_id": 0,
    "n_positions": CONTEXT,
}
SIZES = {"bart": BART, "mbart": BART, "t5": T5, "mt5": T5, "umt5": T5}
ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish")
# The values of each key that are tried one at a time, and drawn together.
BART_OPTIONS: dict[str, tuple[Any, ...]] = {
    "activation_function": (*ACTIVATIONS, "quick_gelu", "gelu_python"),
    "tie_word_embeddings": (False, True),
    "scale_embedding": (True, False),
    "encoder_layers": (1, 3),
    "decoder_layers": (1, 2),
    "encoder_attention_heads": (1, 2, 10),
    "decoder_attention_heads": (1, 5, 2),
    "encoder_ffn_dim": (7, 40),
    "decoder_ffn_dim": (9, 24),
    "d_model": (40, 20),
    "max_position_embeddings": (20, 31),
    "vocab_size": (60, 77),
    "decoder_start_token_id": (0, 5),
    "forced_eos_token_id": (3, None),
}
T5_OPTIONS: dict[str, tuple[Any, ...]] = {
    "feed_forward_proj": (
        *("relu", "gated-gelu", "gated-silu", "gated-relu", "silu", "gelu", "gelu_new"),
        *("gated-gelu_new", "gated-quick_gelu", "gated-swish"),
    ),
    "num_layers": (1, 2),
    "num_decoder_layers": (1, 3, None),
    "num_heads": (1, 3),
    "d_kv": (4, 7),
    "d_ff": (9, 40),
    "d_model": (17, 24),
    "relative_attention_num_buckets": (4, 9, 32),
    "relative_attention_max_distance": (128, 17, 18),
    "layer_norm_epsilon": (1e-3, 1e-5),
    "vocab_size": (60, 77),
    "n_positions": (20, 31),
    "decoder_start_token_id": (3, 0),
}
OPTIONS = {name: T5_OPTIONS if name.endswith("t5") else BART_OPTIONS for name in SIZES}
# What is said of a configuration as it was written, and not by this release of transformers.
OLDER: dict[str, tuple[Config, ...]] = {
    "t5": ({"tie_word_embeddings": False}, {"tie_word_embeddings": True}),
    "mt5": ({"tie_word_embeddings": False},),
    "umt5": ({"tie_word_embeddings": False},),
}
UNSAID = ("scale_decoder_outputs", "dense_act_fn", "is_gated_act", "tie_word_embeddings")
CLASSES = {"bart": "Bart", "mbart": "MBart", "t5": "T5", "mt5": "MT5", "umt5": "UMT5"}
BARE = "bart-bare"


def cases() -> Iterator[tuple[str, str, Config, Config | None]]:
    """A name, a family, its configuration, and what an older file says in its place."""
    for family, sizes in SIZES.items():
        yield f"{family}-0", family, sizes, None
        changes = [{key: value} for key, values in OPTIONS[family].items() for value in values]
        drawn = random.Random(family)
        changes += [
            {key: drawn.choice(values) for key, values in OPTIONS[family].items()}
            for _ in range(RANDOM)
        ]
        for number, change in enumerate(changes, start=1):
            yield f"{family}-{number}", family, {**sizes, **change}, None
        for number, said in enumerate(OLDER.get(family, ())):
            gated = {"feed_forward_proj": "gated-gelu"}
            yield f"{family}-older-{number}", family, {**sizes, **gated}, said
    yield BARE, "bart", BART, None


def record(
    case: str, family: str, config: Config, older: Config | None, checkout: Path
) -> tuple[Config, dict[str, Any]]:
    """What is known of a case, and its outputs by name."""
    prefix = CLASSES[family]
    kind = "Model" if case == BARE else "ForConditionalGeneration"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "model")
        built = getattr(transformers, f"{prefix}Config")(**config)
        getattr(transformers, f"{prefix}{kind}")(built).save_pretrained(folder)
        file = folder / "model.safetensors"
        shapes = shapes_of(file)
        saved = json.loads((folder / "config.json").read_text())
        if older is not None:
            shapes["lm_head.weight"] = shapes["shared.weight"]
            saved = {key: each for key, each in saved.items() if key not in UNSAID} | older
        (folder / "config.json").write_text(json.dumps(saved))
        (folder / "generation_config.json").unlink(missing_ok=True)
        save_file(tensors(shapes, 1.0), file, {"format": "pt"})
        whole = getattr(transformers, f"{prefix}ForConditionalGeneration")
        model = whole.from_pretrained(folder, attn_implementation="eager").eval()
        known = {"config": saved, "shapes": shapes, "written": written(model, saved)}
        if has_gguf(family, saved):
            target = Path(name, "x.gguf")
            convert(checkout, [(folder, target)])
            known["gguf"] = described(target)
    return known, outputs(model, saved)


def has_gguf(family: str, config: Config) -> bool:
    """Return whether llama.cpp computes such a model, and its converter writes it."""
    if not family.endswith("t5"):
        return False
    usual = config["relative_attention_max_distance"] == 128
    acts = config["feed_forward_proj"] in ("relu", "gated-gelu")
    return usual and acts and (config["num_decoder_layers"] or 0) <= config["num_layers"]


def written(model: Any, config: Config) -> list[int] | None:
    """The tokens that are written for the first source, the first included.

    None where transformers has no room for what a decoder deeper than its encoder keeps.
    """
    if config.get("num_decoder_layers", 0) > config.get("num_layers", 0):
        return None
    (source, *_) = sources(config["vocab_size"])
    found = model.generate(torch.from_numpy(source), max_new_tokens=WRITTEN, do_sample=False)
    return list(found[0].tolist())


def outputs(model: Any, config: Config) -> dict[str, Any]:
    """The encoder's output for each source, and logits by prefill and steps."""
    ids = torch.from_numpy(input_ids(TOKENS, config["vocab_size"]))
    found: dict[str, Any] = {}
    with torch.no_grad():
        for number, source in enumerate(sources(config["vocab_size"])):
            encoded = model.get_encoder()(torch.from_numpy(source))
            cache, logits = None, []
            for start, stop in [(0, PROMPT), *((at, at + 1) for at in range(PROMPT, TOKENS))]:
                step = model(
                    encoder_outputs=encoded,
                    decoder_input_ids=ids[:, start:stop],
                    past_key_values=cache,
                    use_cache=True,
                )
                cache = step.past_key_values
                logits.append(step.logits[:, -1].numpy())
            found[f"encoded {number}"] = thinned(encoded.last_hidden_state.numpy())
            found[f"logits {number}"] = thinned(np.stack(logits, 1))
    return found


def without(family: str, config: Config) -> Config:
    """A configuration, and what its class takes for each key where only that is left out."""
    wide = {"d_model": 16, "encoder_attention_heads": 4, "decoder_attention_heads": 2}
    config = config | (wide if "encoder_attention_heads" in config else {})
    kind, taken = getattr(transformers, f"{CLASSES[family]}Config"), {}
    for key in config.keys() - {"model_type", "transformers_version"}:
        made = kind(**{k: v for k, v in config.items() if k != key})
        taken[key] = json.loads(made.to_json_string(use_diff=False)).get(key)
    return {"config": config, "taken": dict(sorted(taken.items()))}


def main() -> None:
    quiet()
    arrays: dict[str, Any] = {}
    known: Config = {}
    for name, family, config, older in cases():
        known[name], found = record(name, family, config, older, Path(sys.argv[1]))
        arrays |= {f"{name}/{output}": array for output, array in found.items()}
        print(name, known[name]["written"], "gguf" in known[name])
    usual = {f"{family}-0": without(family, known[f"{family}-0"]["config"]) for family in SIZES}
    texts = {"cases": known, "without": usual}
    write(OUT, texts, arrays)
    print("the sources are", SOURCES)


if __name__ == "__main__":
    main()
