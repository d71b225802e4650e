"""Make tiny checkpoints of encoders beside this script, and record what transformers computes.

Needs the ``peers`` extra (torch, transformers). Weights are random with a fixed seed; the
tokenizers are trained on the stories of ``samples/stories.py``, which are our own text.

    python tests/data/record_encoders.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from recording import SEED, randomize, write_json
from safetensors.numpy import load_file, save_file
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    NomicBertConfig,
    NomicBertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "samples"))

from stories import stories  # noqa: E402 - found only after the line above

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [
    "Once upon a time there was a brave beaver.",
    "Ünïcode, 日本 and 🎉!",
    "",
    "He sat down.",
]
SIZES = {
    "vocab_size": 160,
    "hidden_size": 20,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "max_position_embeddings": 40,
}


def bert() -> PreTrainedModel:
    """BERT with its pooler."""
    return BertModel(BertConfig(**SIZES))


def roberta() -> PreTrainedModel:
    """RoBERTa below a head for masked words: a prefix, an offset of two positions, no pooler."""
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    sizes = {**SIZES, "max_position_embeddings": 42}
    return RobertaForMaskedLM(RobertaConfig(**sizes, type_vocab_size=1, **ids, layer_norm_eps=1e-5))


def distilbert() -> PreTrainedModel:
    """DistilBERT below such a head: other names and no segments."""
    return DistilBertForMaskedLM(
        DistilBertConfig(
            vocab_size=160,
            dim=20,
            hidden_dim=28,
            n_layers=2,
            n_heads=5,
            max_position_embeddings=40,
            activation="relu",
        )
    )


def nomic_bert() -> PreTrainedModel:
    """Rotary positions and a gated MLP, as transformers 5 has the model."""
    sizes = {**SIZES, "num_attention_heads": 2}
    return NomicBertModel(NomicBertConfig(**sizes, layer_norm_eps=1e-12))


def word_pieces(folder: Path) -> None:
    """A lower-casing WordPiece tokenizer, as BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - a token of text
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=160, special_tokens=SPECIAL, show_progress=False, limit_alphabet=40
    )
    tokenizer.train_from_iterator(lines(), trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ids)
    tokenizer.save(str(folder / "tokenizer.json"))
    vocab = tokenizer.get_vocab()
    (folder / "vocab.txt").write_text("".join(f"{t}\n" for t in sorted(vocab, key=vocab.get)))
    named = {f"{token[1:-1].lower()}_token": token for token in SPECIAL}
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, **named}
    write_json(folder / "tokenizer_config.json", settings)


def byte_pairs(folder: Path) -> None:
    """A byte-level tokenizer with the special tokens of RoBERTa."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    # Only the bytes that the stories have: a whole alphabet would be larger than this model.
    trainer = trainers.BpeTrainer(vocab_size=160, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(lines(), trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("</s>", "<s>")]
    tokenizer.post_processor = processors.RobertaProcessing(*ids, add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>"}
    settings = {f"{name}_token": token for name, token in named.items()}
    write_json(
        folder / "tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer", **settings}
    )


def lines() -> list[str]:
    return [line for text in stories(SEED, 200) for line in text.splitlines()]


def sentence_transformers(folder: Path) -> None:
    """The files of that package: the first token's vector, scaled, of at most 16 tokens."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 16})
    flags = {"word_embedding_dimension": 20, "pooling_mode_cls_token": True}
    write_json(folder / "1_Pooling" / "config.json", {**flags, "pooling_mode_mean_tokens": False})


def old_names(folder: Path) -> None:
    """Tensors named as the first versions did, below a prefix and beside a buffer and a head."""
    weights = load_file(folder / "model.safetensors")
    renamed = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in weights.items()
    }
    renamed["bert.embeddings.position_ids"] = np.arange(40)[None]
    renamed["cls.predictions.bias"] = np.zeros(160, np.float32)
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})


def published_keys(folder: Path) -> None:
    """The configuration in the keys of nomic's own code, as published checkpoints have it."""
    newer = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.newer.json", newer)
    older = {
        "activation_function": "swiglu",
        "architectures": ["NomicBertModel"],
        "attn_pdrop": 0.0,
        "auto_map": {
            "AutoConfig": "someone/some-model--configuration_hf_nomic_bert.NomicBertConfig"
        },
        "bos_token_id": None,
        "causal": False,
        "dense_seq_output": True,
        "embd_pdrop": 0.0,
        "eos_token_id": None,
        "fused_bias_fc": True,
        "fused_dropout_add_ln": True,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-12,
        "max_trained_positions": 40,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "model_type": "nomic_bert",
        "n_embd": 20,
        "n_head": 2,
        "n_inner": 28,
        "n_layer": 2,
        "n_positions": 8192,
        "pad_vocab_size_multiple": 64,
        "parallel_block": False,
        "parallel_block_tied_norm": False,
        "prenorm": False,
        "qkv_proj_bias": False,
        "reorder_and_upcast_attn": False,
        "resid_pdrop": 0.0,
        "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None,
        "rotary_scaling_factor": None,
        "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
        "summary_activation": None,
        "summary_first_dropout": 0.0,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "torch_dtype": "float32",
        "transformers_version": "4.34.0",
        "type_vocab_size": 2,
        "use_cache": True,
        "use_flash_attn": True,
        "use_rms_norm": False,
        "use_xentropy": True,
        "vocab_size": 160,
    }
    write_json(folder / "config.json", older)


def record(folder: Path, pad: int) -> None:
    """Write expected.npz: three sequences of several lengths, and each text of ``TEXTS`` alone."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    generator = np.random.default_rng(SEED)
    ids = generator.integers(5, 160, size=(3, 17))
    mask = (np.arange(17) < np.array([[17], [9], [1]])).astype(np.int64)
    ids = np.where(mask == 1, ids, pad)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = generator.integers(0, 2, size=ids.shape)
    outputs = run(model, inputs)
    if not any("pooler" in name for name in load_file(folder / "model.safetensors")):
        outputs.pop("pooler_output", None)  # of weights that transformers makes up
    tokenizer = folder / "tokenizer.json"
    texts = text_means(model, Tokenizer.from_file(str(tokenizer))) if tokenizer.exists() else {}
    np.savez_compressed(folder / "expected.npz", **inputs, **outputs, **texts)


def run(model: PreTrainedModel, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with torch.no_grad():
        given = {name: torch.from_numpy(array) for name, array in inputs.items()}
        found = model.eval()(**given)
    names = ("last_hidden_state", "pooler_output")
    return {n: found[n].numpy() for n in names if found.get(n) is not None}


def text_means(model: PreTrainedModel, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """The mean of the tokens' vectors of each text."""
    means = []
    for text in TEXTS:
        ids = np.array([tokenizer.encode(text).ids])
        hidden = run(model, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        means.append(hidden["last_hidden_state"][0].mean(0))
    return {"texts": np.array(TEXTS), "text_means": np.stack(means)}


# How a model is built, what is done to its folder, and its padding token.
CHECKPOINTS: dict[str, tuple[Callable[[], PreTrainedModel], list[Callable[[Path], None]], int]] = {
    "tiny-bert": (bert, [old_names, word_pieces], 0),
    "tiny-roberta": (roberta, [byte_pairs, sentence_transformers], 1),
    "tiny-distilbert": (distilbert, [], 0),
    "tiny-nomic-bert": (nomic_bert, [], 0),
}


def main() -> None:
    """Make every checkpoint anew, then record it."""
    torch.set_num_threads(1)
    for name, (build, steps, pad) in CHECKPOINTS.items():
        torch.manual_seed(SEED)
        model = build()
        randomize(model)
        folder = HERE / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        for step in steps:
            step(folder)
        record(folder, pad)
        if name == "tiny-nomic-bert":
            published_keys(folder)
        print(name)


if __name__ == "__main__":
    main()
