"""Convert the tiny checkpoints beside this script with llama.cpp's own converter.

Needs the ``peers`` extra and a checkout of llama.cpp. The files have no tokenizer: the folders have
none, and what is compared are tensors and the configuration.

    python tests/data/record_gguf.py LLAMA_CPP [NAME ...]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# What the converter wants to find beside what is in the folder.
EXTRA: Mapping[str, dict[str, Any]] = {
    "tiny-llama3": {},
    "tiny-yarn": {},
    "tiny-mixtral": {},
    "tiny-qwen2": {},
    "tiny-qwen3": {},
    "tiny-qwen3-moe-all": {},
    "tiny-gemma2": {},
    "tiny-gemma3": {},
    "tiny-phi3-longrope": {},
    "tiny-gpt2": {},
    "tiny-gpt-neox": {},
    "tiny-starcoder2": {},
    "tiny-olmo2": {},
    "tiny-granite": {},
    "tiny-smollm3": {},
    "tiny-falcon": {"num_kv_heads": 1},
    "tiny-falcon-new": {},
}

CONVERT = """
import json, sys
from pathlib import Path
source, target, checkout = map(Path, sys.argv[1:])
sys.path[:0] = [str(checkout), str(checkout / "gguf-py")]
import convert_hf_to_gguf
from conversion.base import ModelBase, TextModel
written = json.loads((source / "config.json").read_text())
load, start = ModelBase.load_hparams, TextModel.__init__
ModelBase.load_hparams = staticmethod(lambda *a, **k: load(*a, **k) | written)
def without_tokenizer(self, *a, **k):
    type(self).set_vocab = lambda self: None
    start(self, *a, **k)
TextModel.__init__ = without_tokenizer
sys.argv = ["convert", str(source), "--outfile", str(target), "--outtype", "f32"]
convert_hf_to_gguf.main()
"""
"""The converter, with the configuration as written and no tokenizer asked for."""


def convert(checkout: Path, name: str) -> None:
    """Write ``NAME-f32.gguf`` into the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / name
        shutil.copytree(HERE / name, source)
        config = json.loads((source / "config.json").read_text()) | EXTRA[name]
        (source / "config.json").write_text(json.dumps(config))
        # Gemma 3's rows are counted by it.
        tokens = {f"token{i}": i for i in range(config["vocab_size"])}
        tokenizer = {"model": {"vocab": tokens}, "added_tokens": []}
        (source / "tokenizer.json").write_text(json.dumps(tokenizer))
        target = HERE / name / f"{name}-f32.gguf"
        target.unlink(missing_ok=True)
        command = [sys.executable, "-c", CONVERT, str(source), str(target), str(checkout)]
        subprocess.run(command, check=True, capture_output=True)


def main(checkout: str, *names: str) -> None:
    """Convert the named checkpoints, or all."""
    for name in names or EXTRA:
        convert(Path(checkout), name)
        print(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
