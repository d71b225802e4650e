"""Record what transformers computes with tiny models of images and texts, in all their options.

Needs the ``peers`` extra (torch, transformers). It writes ``dual_encoder.npz`` beside this script:
the configuration and the shapes of the tensors of each case as JSON, what comes out for pixels and
token ids that follow from names (``seeded.py``), tokenizers of both classes, and the ids that they
make of some texts.

    python -m tests.data.record_dual_encoder
"""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel

from tests.data.recorded_cases import filled, quiet, write
from tests.data.seeded import pixel_values, tensors, text_ids

OUT = Path(__file__).parent / "dual_encoder.npz"
LENGTH = 7
IMAGE = {
    "hidden_size": 20,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "image_size": 12,
    "patch_size": 4,
}
TEXT = {
    "vocab_size": 30,
    "hidden_size": 12,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": LENGTH,
    "bos_token_id": 28,
    "eos_token_id": 29,
    "pad_token_id": 1,
}
ACTIVATIONS = (
    *("gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"),
    *("quick_gelu", "relu", "silu", "swish"),
)
WHOLE = ("CLIP-0", "Siglip-0")
# Heads that divide the width, and patches that fit, whichever of them is left out.
WIDE = {
    "vision_config": {"hidden_size": 48, "num_attention_heads": 4, "image_size": 96},
    "text_config": {"hidden_size": 48, "num_attention_heads": 4},
}
# Changes to the encoder of images, and to that of texts.
SHARED: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {}),
    *(
        ({"hidden_act": name}, {"hidden_act": other})
        for name, other in zip(ACTIVATIONS, reversed(ACTIVATIONS), strict=True)
    ),
    ({"layer_norm_eps": 0.1}, {}),
    ({}, {"layer_norm_eps": 0.1}),
    ({"num_channels": 1, "num_hidden_layers": 1}, {"num_hidden_layers": 3}),
    ({"image_size": 14}, {"num_attention_heads": 2, "intermediate_size": 9}),
)
TEXTS = (
    *("a photo of a cat", "  A  Photo, of-a CAT!! ", "", "!!!", " ", "- a", "hello\nworld\t ok"),
    *("it's don't", "x\u2581y \u2581", "\u4f60\u597d\u3000\u4e16\u754c", "Stra\u00dfe Caf\u00e9"),
    *("a\x1cb", "\uff26\uff35\uff2c\uff2c", "\u00bd \ufb01", "...a ...", "\u00a0a\u00a0", "3 14"),
)
WORDS = "a photo of a cat dog bird the red house on mat stra\u00dfe caf\u00e9 \u4f60\u597d it is 3"
MERGES = ("c a", "ca t</w>", "d o", "do g</w>", "p h", "ph o", "t o</w>", "pho to</w>", "o f</w>")
SEED, SENTENCES, PIECES = 0, 300, 70


def cases() -> Iterator[tuple[str, str, dict[str, Any], int | None]]:
    """A name, a class, its configuration, and the size of the images where it is another one."""
    for number, (image, text) in enumerate(SHARED):
        both = {"vision_config": {**IMAGE, **image}, "text_config": {**TEXT, **text}}
        yield f"CLIP-{number}", "CLIPModel", {**both, "projection_dim": 6}, None
        wide = {**both, "text_config": {**both["text_config"], "projection_size": 20}}
        yield f"Siglip-{number}", "SiglipModel", wide, None
    both = {"vision_config": IMAGE, "text_config": TEXT}
    yield "CLIP-wide", "CLIPModel", {**both, "projection_dim": 33}, None
    largest = {**both, "text_config": {**TEXT, "eos_token_id": 2}}
    yield "CLIP-largest", "CLIPModel", {**largest, "projection_dim": 6}, None
    same = {"vision_config": IMAGE, "text_config": {**TEXT, "hidden_size": 20}}
    same["text_config"]["num_attention_heads"] = 4
    yield "Siglip-same", "SiglipModel", same, None
    for size in (8, 24):
        yield f"CLIP-to-{size}", "CLIPModel", {**both, "projection_dim": 6}, size
        yield f"Siglip-to-{size}", "SiglipModel", same, size


def without(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration, and what its class takes for each key where only that is left out."""
    maker = type(transformers.AutoConfig.for_model(config["model_type"]))
    towers = {tower: {**config[tower], **WIDE[tower]} for tower in WIDE}
    config = {**config, **towers}
    nested = [f"{tower}.{key}" for tower in WIDE for key in config[tower]]
    taken = {}
    for name in (*nested, "projection_dim"):
        tower, _, key = name.rpartition(".")
        left: dict[str, Any] = json.loads(json.dumps(config))
        if key not in (left[tower] if tower else left) or key in ("model_type", "dtype"):
            continue
        del (left[tower] if tower else left)[key]
        made = json.loads(maker(**left).to_json_string(use_diff=False))
        taken[name] = (made[tower] if tower else made).get(key)
    return {"config": config, "taken": dict(sorted(taken.items()))}


def record(kind: str, config: dict[str, Any], size: int | None) -> tuple[dict[str, Any], Any]:
    """What is known of a case, and its outputs by the names of our entries and theirs."""
    maker = getattr(transformers, kind)
    model, saved, shapes = filled(maker(maker.config_class(**config)), tensors)
    known = {"config": saved, "shapes": shapes, "size": size}
    pixels = torch.from_numpy(pixel_values(saved, size))
    ids, mask = map(torch.from_numpy, text_ids(saved))
    options = {} if size is None else {"interpolate_pos_encoding": True}
    texts = {"input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        found = {
            "forward.logits_per_image": model(
                pixel_values=pixels, **texts, **options
            ).logits_per_image,
            "embed.embeddings": model.get_text_features(**texts).pooler_output,
            "embed_image.embeddings": model.get_image_features(pixels, **options).pooler_output,
        }
    return known, {name: value.numpy() for name, value in found.items()}


def clip_tokenizer() -> transformers.PreTrainedTokenizerBase:
    """A tokenizer of CLIP's class, with few merges."""
    characters = sorted(ByteLevel.alphabet())
    pairs = [tuple(merge.split(" ")) for merge in MERGES]
    tokens = [*characters, *(f"{char}</w>" for char in characters), *map("".join, pairs)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {token: number for number, token in enumerate(tokens)}
    return transformers.CLIPTokenizer(vocab=vocab, merges=pairs)


def siglip_model() -> bytes:
    """A SentencePiece model of few pieces."""
    draw, words, made = random.Random(SEED), WORDS.split(), io.BytesIO()
    lines = (" ".join(draw.choices(words, k=8)) for _ in range(SENTENCES))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=made,
        model_type="unigram",
        vocab_size=PIECES,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    return made.getvalue()


def tokenizers() -> dict[str, Any]:
    """The files of both tokenizers, and the ids of texts."""
    with tempfile.TemporaryDirectory() as name:
        folder, clip = Path(name), clip_tokenizer()
        clip.save_pretrained(folder)
        text = (folder / "tokenizer.json").read_text()
        model = siglip_model()
        (folder / "spiece.model").write_bytes(model)
        siglip = transformers.SiglipTokenizer(str(folder / "spiece.model"))
        ids = {"clip": clip(list(TEXTS)).input_ids, "siglip": siglip(list(TEXTS)).input_ids}
    return {"texts": TEXTS, "ids": ids, "clip": text, "siglip": model.hex()}


def main() -> None:
    quiet()
    arrays: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for name, kind, config, size in cases():
        known[name], found = record(kind, config, size)
        arrays |= {f"{name}/{output}": array for output, array in found.items()}
    told = {name: without(known[name]["config"]) for name in WHOLE}
    write(OUT, {"cases": known, "tokenizers": tokenizers(), "without": told}, arrays)


if __name__ == "__main__":
    main()
