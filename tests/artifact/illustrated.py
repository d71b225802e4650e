"""Checkpoints of models that read images within texts, and pictures to show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.data.seeded import tensors

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDED = dict(np.load(DATA / "image_text.npz"))
CASES: dict[str, Any] = json.loads(RECORDED.pop("cases").tobytes())
SPECIAL = ["<soft>", "<image>", "</image>", "<bos>", "<eos>", "<pad>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}"
    "{% endfor %}[model]"
)


def written(folder: Path, case: str, *, whole: bool = False) -> Path:
    """The checkpoint of a case, with what prepares texts and images if it is to be ``whole``."""
    folder.mkdir(exist_ok=True)
    known = CASES[case]
    (folder / "config.json").write_text(json.dumps(known["config"]))
    save_file(tensors(known["shapes"], 1.0), folder / "model.safetensors")
    if whole:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
        tokenizer.save(str(folder / "tokenizer.json"))
        said = {"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": TEMPLATE}
        (folder / "tokenizer_config.json").write_text(json.dumps(said))
        side = known["config"]["vision_config"]["image_size"]
        steps = {
            "image_processor_type": "Gemma3ImageProcessor",
            "size": {"height": side, "width": side},
            "do_pan_and_scan": None,
            "image_seq_length": 9,
        }
        (folder / "preprocessor_config.json").write_text(json.dumps(steps))
    return folder


def picture(path: Path, seed: int = 0) -> Path:
    module = pytest.importorskip("PIL.Image", reason="needs Pillow")
    bits = np.random.default_rng(seed).integers(0, 256, (20, 17, 3), dtype=np.uint8)
    module.fromarray(bits).save(path)
    return path
