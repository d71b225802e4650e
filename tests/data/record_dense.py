"""Record vectors of texts that transformers and layers of torch behind its models make.

Needs the ``peers`` extra and a checkout of llama.cpp. It writes ``dense.json``: of each case of
``dense_folders.py`` the vectors of two texts, and of those that GGUF has a form of what llama.cpp's
converter makes of them.

    python -m tests.data.record_dense LLAMA_CPP
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModel

from tests.data.dense_folders import CASES, IN_GGUF, RECORDED, given, write
from tests.data.record_gguf import convert
from tests.data.record_random import described

DENSE = "--sentence-transformers-dense-modules"


def vectors(folder: Path) -> torch.Tensor:
    """The vectors of the two texts, as modules.json says."""
    inputs = {name: torch.from_numpy(array) for name, array in given().items()}
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        tokens = model(**inputs).last_hidden_state
        x = tokens
        for module in json.loads((folder / "modules.json").read_text())[1:]:
            place = folder / module["path"]
            file = place / "config.json"
            config = json.loads(file.read_text()) if file.exists() else {}
            kind = module["type"].rpartition(".")[2]
            x = STEPS[kind](x, inputs["attention_mask"], config, place)
    return x


def _pooled(x: torch.Tensor, mask: torch.Tensor, config: dict, _place: Path) -> torch.Tensor:
    if config["pooling_mode_cls_token"]:
        return x[:, 0]
    if config["pooling_mode_lasttoken"]:
        return x[torch.arange(len(x)), mask.sum(1) - 1]
    wide = mask[..., None].float()
    return (x * wide).sum(1) / wide.sum(1)


def _dense(x: torch.Tensor, _mask: torch.Tensor, config: dict, place: Path) -> torch.Tensor:
    linear = torch.nn.Linear(config["in_features"], config["out_features"], config["bias"])
    held = load_file(place / "model.safetensors")
    linear.load_state_dict({name.removeprefix("linear."): each for name, each in held.items()})
    return getattr(torch.nn, config["activation_function"].rpartition(".")[2])()(linear(x))


def _normalized(x: torch.Tensor, *_others: object) -> torch.Tensor:
    return torch.nn.functional.normalize(x, p=2, dim=1)


STEPS = {"Pooling": _pooled, "Dense": _dense, "Normalize": _normalized}


def main(checkout: str) -> None:
    """Record all cases."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    made: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for index, name in enumerate(CASES):
            folder = write(Path(scratch) / str(index) / "model", name)
            found = vectors(folder).tolist()
            rows = [[float(f"{number:.7g}") for number in row] for row in found]
            made[name] = {"vectors": rows}
            if name in IN_GGUF:  # each by itself: the converter adds one's layers to the next one's
                file = folder.with_suffix(".gguf")
                convert(Path(checkout), [(folder, file)], DENSE)
                made[name]["gguf"] = described(file)
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in made.items())
    RECORDED.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
