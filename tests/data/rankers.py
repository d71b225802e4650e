"""Folders of decoders that score pairs of texts, as sentence-transformers publishes them.

The model is random, and its tokenizer has a token for each byte, for ``yes``, ``no`` and the marks.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.data.seeded import tensor

DATA = Path(__file__).parent
YES, NO = "yes", "no"
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
INSTRUCTION = "Find passages that answer the question"
TYPE = "sentence_transformers."
TEMPLATE = """<|im_start|>system
Answer "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: {{ messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("By the query") }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
<|im_start|>assistant

"""  # noqa: E501 - as such templates are
PLACES = """<|im_start|>system
Answer "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: Find passages that answer the question
<Query>: {query}
<Document>: {document}<|im_end|>
<|im_start|>assistant
"""
CONTEXT = 320


def tokenizer() -> Tokenizer:
    """Byte pairs: all bytes, and the two words that scores are made by."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("y", "e"), ("ye", "s"), ("n", "o")]
    tokens = [*letters, *("".join(pair) for pair in merges)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS])
    return made


def ranker(
    folder: Path, *, name: str = "tiny-qwen3", tied: bool = True, false: str | None = NO
) -> Path:
    """A decoder with ``LogitScore`` behind it; without ``false`` the score is one logit."""
    made = decoder(folder, name, tied)
    ids = {"true_token_id": made.token_to_id(YES)}
    ids["false_token_id"] = made.token_to_id(false) if false else None
    save(folder / "1_LogitScore" / "config.json", ids)
    kinds = {"": "base.modules.Transformer", "1_LogitScore": "cross_encoder.modules.LogitScore"}
    listed = [{"path": path, "type": TYPE + kind} for path, kind in kinds.items()]
    save(folder / "modules.json", listed)
    prompts = {"usual": INSTRUCTION, "other": "Find what contradicts it"}
    told = {"prompts": prompts, "default_prompt_name": "usual", "model_type": "CrossEncoder"}
    save(folder / "config_sentence_transformers.json", told)
    chosen = {"chat_template": {"chat_template": "reranker"}}
    save(folder / "sentence_bert_config.json", {"processing_kwargs": chosen})
    template = folder / "additional_chat_templates" / "reranker.jinja"
    template.parent.mkdir()
    template.write_text(TEMPLATE)
    return folder


def decoder(folder: Path, name: str, tied: bool) -> Tokenizer:
    """A model of texts whose rows are those of the tokenizer beside it."""
    made = tokenizer()
    size, source = made.get_vocab_size(), DATA / name
    config = json.loads((source / "config.json").read_text())
    config |= {"vocab_size": size, "tie_word_embeddings": tied, "max_position_embeddings": CONTEXT}
    config |= {"bos_token_id": None, "eos_token_id": made.token_to_id(MARKS[2])}
    save(folder / "config.json", config)
    held = load_file(source / "model.safetensors")
    for one in ("lm_head.weight", "model.embed_tokens.weight"):
        held[one] = tensor(one, (size, config["hidden_size"]), 1.0)
    if tied:
        del held["lm_head.weight"]
    save_file(held, folder / "model.safetensors", {"format": "pt"})
    made.save(str(folder / "tokenizer.json"))
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": MARKS[0]}
    save(folder / "tokenizer_config.json", tokens | {"eos_token": MARKS[2], "add_bos_token": False})
    return made


def classifier(folder: Path, labels: int, name: str = "tiny-qwen3") -> Path:
    """The same with a head for labels, as transformers' classes for sequences have it."""
    decoder(folder, name, tied=True)
    file = folder / "model.safetensors"
    held = load_file(file)
    width = held["model.embed_tokens.weight"].shape[1]
    held["score.weight"] = tensor("score.weight", (labels, width), 1.0)
    save_file(held, file, {"format": "pt"})
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    named = {str(number): f"class {number}" for number in range(labels)}
    config |= {"id2label": named, "label2id": {text: int(at) for at, text in named.items()}}
    kind = config["architectures"][0].replace("ForCausalLM", "ForSequenceClassification")
    save(folder / "config.json", {**config, "architectures": [kind], "pad_token_id": 0})
    return folder


def save(file: Path, content: object) -> None:
    """Write JSON, with the folders that the file is in."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


def without_scores(folder: Path) -> None:
    """Leave only the language model of a ranker, as older publications do."""
    (folder / "modules.json").unlink()
    shutil.rmtree(folder / "1_LogitScore")
