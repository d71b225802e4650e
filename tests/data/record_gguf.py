"""Convert the tiny checkpoints beside this script with llama.cpp's own converter.

Needs the ``peers`` extra and a checkout of llama.cpp. The files have no tokenizer: the folders have
none, and what is compared are tensors and the configuration.

    python -m tests.data.record_gguf LLAMA_CPP [NAME ...]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.data.older_configs import published

HERE = Path(__file__).parent

CONVERTED = (
    *("tiny-llama3", "tiny-yarn", "tiny-mixtral", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3-moe-all"),
    *("tiny-gemma2", "tiny-gemma3", "tiny-phi3-longrope", "tiny-gpt2", "tiny-gpt-neox"),
    *("tiny-starcoder2", "tiny-olmo2", "tiny-granite", "tiny-smollm3", "tiny-falcon"),
    "tiny-falcon-new",
)
CONVERT = """
import json, sys
from pathlib import Path
import torch
torch.exp = lambda x: x.double().exp().float()
checkout, options, pairs = Path(sys.argv[1]), sys.argv[2].split(), sys.argv[3:]
sys.path[:0] = [str(checkout), str(checkout / "gguf-py")]
import convert_hf_to_gguf
from conversion.base import ModelBase, TextModel
from conversion.llama import ApertusModel
from conversion.qwen import _QwenMtpMixin
from conversion.mimo import MimoV2Model
_QwenMtpMixin.no_mtp = MimoV2Model.no_mtp = True
load, start = ModelBase.load_hparams, TextModel.__init__
def written(folder, *a, **k):
    config = json.loads((folder / "config.json").read_text())
    # Newer releases of transformers add keys of experts, by which the converter tells models, or of
    # classifiers, which it refuses.
    as_they_are = config["model_type"] in ("eurobert", "nemotron_h")
    return config if as_they_are else load(folder, *a, **k) | config
def without_tokenizer(self, *a, **k):
    type(self).set_vocab = lambda self: None
    start(self, *a, **k)
ModelBase.load_hparams = staticmethod(written)
TextModel.__init__ = without_tokenizer
for source, target in zip(pairs[::2], pairs[1::2]):
    # It keeps them for the class, of whatever model was before.
    for name in ("_alpha_n", "_alpha_p", "_beta", "_eps"):
        setattr(ApertusModel, name, {})
    sys.argv = ["convert", source, "--outfile", target, "--outtype", "f32", *options]
    try:
        convert_hf_to_gguf.main()
    except (Exception, SystemExit) as error:
        print(source, repr(error)[:300])
"""
"""The converter, with configurations as written and no tokenizer asked for.

Exponentials are the nearest numbers: which of two neighbours else, the machine's library decides.
"""


def wanted(config: dict[str, Any]) -> dict[str, Any]:
    """Keys without which the converter does not take a configuration."""
    extra = {
        "cohere2": {"rotary_pct": 1.0},
        "cohere2_moe": {"expert_selection_fn": "softmax"},
        "minimax_m2": {"rotary_dim": rotated(config)},
        "falcon": {"num_kv_heads": 1},
        "gpt2": {"n_ctx": config.get("n_positions")},
        **dict.fromkeys(("granite_swa", "granitemoe_swa"), rotating(config)),
        "hunyuan_v1_moe": listed(config) if "moe_topk" in config else {},
        "bloom": {"seq_length": 2048},
        "modernbert": {
            "global_attn_every_n_layers": 3,
            "layer_norm_eps": config.get("norm_eps"),
        },
        "nemotron_h": {"d_head": config.get("mamba_head_dim")},  # or it takes 64 for granted
        "nomic_bert": NOMIC,
        "solar_open": {"first_k_dense_replace": 0, "partial_rotary_factor": 1.0},
    }
    return {**published(config), **extra.get(config["model_type"], {})}


def said_again(config: dict[str, Any]) -> dict[str, Any]:
    """MiMo V2 Flash in the keys of its published configuration, which the converter reads alone."""
    tables = config["rope_parameters"]
    whole, local = tables["full_attention"], tables["sliding_attention"]
    return {
        "rope_parameters": None,
        "rope_theta": whole["rope_theta"],
        "swa_rope_theta": local["rope_theta"],
        "partial_rotary_factor": whole["partial_rotary_factor"],
        "hybrid_layer_pattern": [int(kind[0] == "s") for kind in config["layer_types"]],
        "layernorm_epsilon": config["rms_norm_eps"],
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "swa_head_dim": config["head_dim"],
        "swa_v_head_dim": config["v_head_dim"],
        "swa_num_attention_heads": config["num_attention_heads"],
        "swa_num_key_value_heads": 2 * config["num_key_value_heads"],
    }


def rotated(config: dict[str, Any]) -> int:
    """Elements of a head that are rotated, where a table says their share."""
    table = config.get("rope_parameters") or config
    return int(config.get("head_dim", 0) * table.get("partial_rotary_factor", 1.0))


def rotating(config: dict[str, Any]) -> dict[str, Any]:
    """Which layers rotate, where a configuration lists their bases: the converter's own key."""
    bases = config.get("layer_rope_theta") or ()
    return {"no_rope_layers": [int(base != 0) for base in bases]} if 0 in bases else {}


def listed(config: dict[str, Any]) -> dict[str, Any]:
    """Hunyuan's keys that have a number for each layer."""
    layers = config["num_hidden_layers"]
    widths = [config["intermediate_size"]] * layers
    return {"moe_intermediate_size": widths, "num_shared_expert": [1] * layers}


NOMIC = {
    **dict.fromkeys(("causal", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm"), False),
    "n_positions": 8192,
    "activation_function": "swiglu",
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
}


def convert(checkout: Path, pairs: Sequence[tuple[Path, Path]], *options: str) -> None:
    """Make a GGUF file of each folder, as far as the converter does it; it prints why not.

    ``options`` are further ones of its command.
    """
    with tempfile.TemporaryDirectory() as scratch:
        arguments: list[Path] = []
        for index, (folder, target) in enumerate(pairs):
            source = Path(scratch) / str(index) / folder.name
            shutil.copytree(folder, source)
            config = json.loads((source / "config.json").read_text())
            # The converter wants to find older keys, and Gemma 3's rows as tokens.
            config = {**wanted(config), **config}
            if config["model_type"] == "nemotron_h":  # it looks for experts where keys are of them
                config = published(config)
            if config["model_type"] == "mimo_v2_flash":
                config |= said_again(config)
            if config["model_type"] == "eurobert":
                config.pop("classifier_pooling", None)
            (source / "config.json").write_text(json.dumps(config))
            size = config.get("text_config", config)["vocab_size"]
            tokens = {f"token{i}": i for i in range(size)}
            tokenizer = {"model": {"type": "WordPiece", "vocab": tokens}, "added_tokens": []}
            (source / "tokenizer.json").write_text(json.dumps(tokenizer))
            target.unlink(missing_ok=True)
            arguments += [source, target]
        if not arguments:
            return
        given = [str(checkout), " ".join(options), *map(str, arguments)]
        command = [sys.executable, "-c", CONVERT, *given]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def main(checkout: str, *names: str) -> None:
    """Convert the named checkpoints, or all."""
    chosen = names or CONVERTED
    convert(Path(checkout), [(HERE / name, HERE / name / f"{name}-f32.gguf") for name in chosen])


if __name__ == "__main__":
    main(*sys.argv[1:])
