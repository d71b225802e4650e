"""Files as older releases of transformers wrote them: further tensors, and other names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping

from safetensors.numpy import save_file

from maxtool.weights import open_checkpoint
from tests.data.seeded import Array, tensors
from tests.variants.cases import Case

# What llama.cpp's converter passes over: buffers that transformers wrote once, heads for training.
BUFFERS: Mapping[str, tuple[str, ...]] = {
    "bert": ("embeddings.position_ids", "cls.predictions.bias"),
    "distilbert": (
        "embeddings.position_ids",
        "vocab_layer_norm.weight",
        "vocab_projector.bias",
        "vocab_transform.weight",
    ),
    "gemma3": tuple(
        f"{prefix}{part}.x.weight"
        for prefix in ("", "model.")
        for part in ("vision_tower", "multi_modal_projector")
    ),
    "gemma3n": ("model.vision_tower.x.weight",),
    "deberta-v2": (
        "embeddings.position_ids",
        "cls.predictions.bias",
        "lm_predictions.lm_head.bias",
        "mask_predictions.dense.bias",
        "pooler.dense.weight",
    ),
    "electra": (
        "embeddings.position_ids",
        "discriminator_predictions.dense.weight",
        "generator_predictions.LayerNorm.bias",
        "generator_lm_head.bias",
    ),
    "modernbert": ("head.norm.weight", "decoder.bias"),
    "mpnet": ("embeddings.position_ids", "lm_head.bias"),
    "gte": ("embeddings.position_ids", "lm_head.dense.weight"),
    "falcon": ("transformer.h.0.self_attention.rotary_emb.inv_freq",),
    "codegen": ("transformer.h.0.attn.causal_mask", "transformer.h.0.attn.embed_positions"),
    "ernie4_5_moe": (
        *("model.mtp_block.0.x.weight", "model.mtp_emb_norm.0.weight"),
        *("model.mtp_hidden_norm.0.weight", "model.mtp_linear_proj.0.weight"),
        "model.layers.0.self_attn.rotary_emb.inv_freq",
    ),
    "exaone_moe": ("mtp.norm.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"),
    "gpt_neo": (
        *("transformer.h.0.attn.attention.bias", "transformer.h.0.attn.attention.masked_bias"),
    ),
    "gptj": (
        *("transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"),
        "transformer.h.0.attn.embed_positions",
    ),
    "persimmon": ("model.layers.0.self_attn.rotary_emb.inv_freq",),
    "gpt2": ("transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"),
    "gpt_neox": (
        "gpt_neox.layers.0.attention.bias",
        "gpt_neox.layers.0.attention.masked_bias",
        "gpt_neox.layers.0.attention.rotary_emb.inv_freq",
    ),
    "llama": ("model.layers.0.self_attn.rotary_emb.inv_freq",),
    "roberta": ("embeddings.position_ids", "lm_head.bias"),
}


def _gamma(name: str) -> str:
    """Return the name that TensorFlow gives a parameter of a norm."""
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    return name.replace("LayerNorm.bias", "LayerNorm.beta")


# How the tensors of a model type were named before, or are named inside of other classes.
NAMES: Mapping[str, tuple[Callable[[str], str], ...]] = {
    "bert": (lambda name: f"bert.{_gamma(name)}",),
    "distilbert": (lambda name: f"distilbert.{_gamma(name)}",),
    "electra": (lambda name: f"electra.{_gamma(name)}",),
    "deberta-v2": (lambda name: f"deberta.{name}",),
    "modernbert": (lambda name: f"model.{name}",),
    "mpnet": (lambda name: f"mpnet.{name}",),
    "gte": (lambda name: f"gte.{name}", lambda name: f"new.{name}"),
    "gemma3": (
        lambda name: name.replace("language_model.model.", "model.language_model."),
        lambda name: name.replace("lm_head.", "language_model.lm_head."),
    ),
    "bloom": (lambda name: name.removeprefix("transformer."),),
    "gpt2": (lambda name: name.removeprefix("transformer."),),
    "opt": (lambda name: name.removeprefix("model."),),
    "nomic_bert": (lambda name: f"bert.{name}", lambda name: f"nomic_bert.{name}"),
    "roberta": (lambda name: f"roberta.{_gamma(name)}",),
}


# The output matrix and the embedding, which older releases wrote both though they are tied.
HEADS: Mapping[str, tuple[str, str]] = {
    "falcon": ("lm_head.weight", "transformer.word_embeddings.weight"),
    "gemma3": ("language_model.lm_head.weight", "language_model.model.embed_tokens.weight"),
    "gpt2": ("lm_head.weight", "transformer.wte.weight"),
    **dict.fromkeys(
        ("codegen", "gpt_bigcode", "gpt_neo", "gptj", "mpt"),
        ("lm_head.weight", "transformer.wte.weight"),
    ),
    "bloom": ("lm_head.weight", "transformer.word_embeddings.weight"),
    "opt": ("lm_head.weight", "model.decoder.embed_tokens.weight"),
    "gpt_neox": ("embed_out.weight", "gpt_neox.embed_in.weight"),
}
HEAD = ("lm_head.weight", "model.embed_tokens.weight")


def with_head(case: Case) -> Case | None:
    """Return a checkpoint with the output matrix of a tied model; None of others."""
    head, embedding = HEADS.get(case.row.config["model_type"], HEAD)
    if head in case.row.shapes or embedding not in case.row.shapes:
        return None
    weights = tensors(case.row.shapes, case.row.norm)
    return _written(case, {**weights, head: weights[embedding]})


def older(case: Case) -> Iterator[Case]:
    """Yield a checkpoint with further tensors, and with other names, of the same outputs."""
    model_type = case.row.config["model_type"]
    weights = tensors(case.row.shapes, case.row.norm)
    if names := BUFFERS.get(model_type):
        yield _written(case, weights | tensors({name: [2] for name in names}, 0.0))
    for renamed in NAMES.get(model_type, ()):
        yield _written(case, {renamed(name): array for name, array in weights.items()})


def _written(case: Case, weights: Mapping[str, Array]) -> Case:
    folder = case.folder / f"older{len(weights)}-{min(weights)}"
    folder.mkdir(parents=True)
    save_file(dict(weights), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(case.row.config))
    more = {key: value for key, value in case.row.more.items() if key == "pooled"}
    row = dataclasses.replace(case.row, more=more)
    return dataclasses.replace(case, row=row, checkpoint=open_checkpoint(folder), known={})
