"""Record what transformers and llama.cpp's converter make of random configurations.

Needs the ``peers`` extra, and for GGUF a checkout of llama.cpp. For each family of
``random_configs.RECORDED`` it writes ``random/MODEL_TYPE.json.gz``: configurations in which many
keys are others at once, chosen so that pairs of options meet; for each the tensors of its file, a
few outputs (of one call, and of calls with a cache), and the keys and checksums of the GGUF file
that llama.cpp's converter makes of it. Weights follow from their names (``seeded.py``).

    python -m tests.data.record_random LLAMA_CPP [MODEL_TYPE ...]
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGUFReader
from hypothesis import HealthCheck, Phase, given, settings
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.gemma3n import modeling_gemma3n

from maxtool.artifact.original_model import cache_name, positions
from tests.data.older_configs import published
from tests.data.random_chunked_families import CHUNKED_VISION
from tests.data.random_configs import (
    ENCODERS,
    LONGEST,
    RECORDED,
    configurations,
    is_supported,
    sayable,
)
from tests.data.random_families import AS_PAIRS, WITHOUT_GGUF, type_of
from tests.data.random_image_text_families import (
    FLAT,
    IMAGE_TEXT,
    IMAGE_TEXT_UNCONVERTED,
    are_told_apart,
    published_experts,
    published_flat,
)
from tests.data.random_latent_families import SPARSE
from tests.data.random_layer_input_families import LAYER_INPUTS, WHOLE
from tests.data.record_gguf import convert
from tests.data.seeded import (
    PADDED,
    Config,
    attention_mask,
    folded,
    input_ids,
    sample,
    tensors,
)

HERE = Path(__file__).parent
OUT = HERE / "random"
POOL, CHOSEN = 300, 20
ROUNDINGS = 1e-5
"""Relative difference between float32 and float64 of configurations that are kept."""
Shapes = dict[str, list[int]]
# Of a configuration as it is written, what a class says of itself, and runs of transformers.
UNSAID = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "use_cache")
# It writes what it does not read: an infinity as a table.
UNSAID += ("time_step_limit",)
# llama.cpp knows RoBERTa's kin by its name, and no part that sees in the file of a language model.
UNCONVERTED = ("gemma3", "llama4", *WHOLE, "camembert", "xlm-roberta", "glm")
UNCONVERTED += (*WITHOUT_GGUF, *AS_PAIRS, *IMAGE_TEXT_UNCONVERTED)

# Families of which llama.cpp's converter reads published configurations alone.
CONVERTED_OLDER = ("kimi_linear",)
MLP_OF_EXPERTS = re.compile(r"\.block_sparse_moe\.((?:gate|up|down)_proj\.)")
# Names of classes in published configurations, where transformers has none of its own.
ARCHITECTURES = {
    "internlm3": "InternLM3ForCausalLM",
    "iquestcoder": "IQuestCoderForCausalLM",
    "mpt": "MPTForCausalLM",
    "phimoe": "PhiMoEForCausalLM",
}
# What llama.cpp's converter knows a language model by that has a class of its own in transformers.
CONVERTED_AS = {"gemma4_unified_text": "Gemma4UnifiedForConditionalGeneration"}
# What published configurations say and transformers does not write; llama.cpp's converter reads it.
SAID: dict[str, Config] = {
    "afmoe": {"route_norm": True, "score_func": "sigmoid"},
    "dots1": {"scoring_func": "sigmoid"},
    "deepseek_v2": {"scoring_func": "softmax"},
    "deepseek_v3": {"scoring_func": "sigmoid"},
    "gemma4_unified_text": {"moe_intermediate_size": None},
    "glm4_moe_lite": {"scoring_func": "sigmoid", "first_k_dense_replace": 1},
    **{family: {"scoring_func": "sigmoid"} for family in SPARSE},
    "minimax_m2": {"scoring_func": "sigmoid"},
}
# What published configurations call the kinds of layers.
KINDS = {"linear_attention": "mamba", "full_attention": "attention"}


def chosen(model_type: str) -> list[Config]:
    """Some configurations of a pool, one after the other with most pairs that are not yet there."""
    pool: list[Config] = []

    @settings(
        max_examples=POOL,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(configurations(model_type))
    def collect(config: Config) -> None:
        supported = is_supported(config.get("text_config", config))
        if supported and (model_type != "qwen3_vl_moe" or are_told_apart(config)):
            pool.append(config)

    collect()
    seen: set[Any] = set()
    picked: list[Config] = []
    for _ in range(CHOSEN):
        best = max(pool, key=lambda config: len(pairs(config) - seen))
        seen |= pairs(best)
        picked.append(best)
    return picked


def pairs(config: Config) -> set[Any]:
    """Every two options of a configuration; of a number whether it is larger than one."""
    flat = dict(_flat(config))
    return set(itertools.combinations(sorted((key, str(value)) for key, value in flat.items()), 2))


def _flat(config: Config, prefix: str = "") -> Any:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, bool | str | None):
            yield prefix + key, value
        else:
            yield prefix + key, min(value, 2) if isinstance(value, int) else type(value).__name__


def norm_of(model_type: str) -> float:
    """What the weights of a family's norms are around."""
    if model_type in (
        *LAYER_INPUTS,
        *WHOLE,
    ):  # scores of normed heads are not scaled: these keep them small
        return 0.5
    around_zero = "gemma" in model_type or model_type.startswith(("qwen3_next", "qwen3_5"))
    return 0.0 if around_zero else 1.0


class WithoutTowers(AutoModel):
    """The parts of Gemma 3n of which transformers computes none for a text, made of nothing.

    That which sees needs a package of its own.
    """

    @classmethod
    def from_config(cls, config: PreTrainedConfig, **options: Any) -> Any:
        """An empty module for a part that sees."""
        if config.model_type == "gemma3n_vision":
            return torch.nn.Module()
        return AutoModel.from_config(config, **options)


class Peer:
    """A family as transformers has it, in a folder for one model after the other."""

    def __init__(self, model_type: str, folder: Path) -> None:
        self.model_type = model_type
        self.folder = folder
        self.auto: Any = AutoModel if model_type in ENCODERS else AutoModelForCausalLM
        # The other class has the language model alone, or none at all.
        if model_type in (*CHUNKED_VISION, *IMAGE_TEXT):
            self.auto = AutoModelForImageTextToText
        if model_type == "gemma3n":
            modeling_gemma3n.AutoModel = WithoutTowers
        self.norm = norm_of(model_type)

    def write(self, config: Config, *, older: bool) -> tuple[Config, Shapes]:
        """Save a model; its configuration as it is written, and the shapes of its tensors."""
        built = AutoConfig.for_model(type_of(self.model_type), **config)
        self.auto.from_config(built).save_pretrained(self.folder)
        written = json.loads((self.folder / "config.json").read_text())
        written = {key: value for key, value in written.items() if key not in UNSAID}
        written |= SAID.get(self.model_type, {})
        if older:
            flat = self.model_type in FLAT
            written = published_flat(written) if flat else published(written)
        if type_of(self.model_type) == "granitemoehybrid":
            written["layer_types"] = [KINDS[kind] for kind in written["layer_types"]]
        if self.model_type in ARCHITECTURES:
            written["architectures"] = [ARCHITECTURES[self.model_type]]
        (self.folder / "config.json").write_text(json.dumps(written))
        file = self.folder / "model.safetensors"
        with safe_open(file, "np") as opened:
            names = opened.keys()
            shapes = {name: opened.get_slice(name).get_shape() for name in names}
        if self.model_type == "qwen3_vl_moe":
            shapes = published_experts(shapes)
        if older and self.model_type == "kimi_linear":  # transformers takes all MLPs for experts
            shapes = {MLP_OF_EXPERTS.sub(r".mlp.\1", name): each for name, each in shapes.items()}
        save_file(tensors(shapes, self.norm), file, {"format": "pt"})
        return written, shapes

    def name_for_conversion(self) -> None:
        """Say a class that llama.cpp's converter knows, if that of transformers is not known."""
        file = self.folder / "config.json"
        if known := CONVERTED_AS.get(self.model_type):
            config = json.loads(file.read_text())
            file.write_text(json.dumps({**config, "architectures": [known]}))

    def load(self, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
        """The folder in a type, float32 for what is recorded.

        Raises:
            ValueError: If weights are missing.
        """
        options = {"dtype": dtype, "experts_implementation": "eager"}
        model, told = self.auto.from_pretrained(self.folder, output_loading_info=True, **options)
        missing = [name for name in told["missing_keys"] if "pooler" not in str(name)]
        if missing or told["mismatched_keys"]:
            raise ValueError(f"{missing} {told['mismatched_keys']}")
        return model.eval()

    def outputs(self, config: Config, first: int) -> Config:
        """What is recorded of the folder: a few outputs of each kind."""
        size = config.get("text_config", config)["vocab_size"]
        if self.model_type in ENCODERS:
            return self._encoded(config)
        ids = torch.from_numpy(input_ids(LONGEST, size))
        with torch.no_grad():
            whole = self.load()(input_ids=ids, use_cache=False).logits.numpy()
            if self.model_type in (*LAYER_INPUTS, *WHOLE, *SPARSE):
                wide = self.load(torch.float64)(input_ids=ids, use_cache=False).logits.numpy()
                if np.abs(wide - whole).max() > ROUNDINGS * np.abs(wide).max():
                    raise ValueError("float32 rounds too much for a comparison")
            model, cache, logits = self.load(), None, []
            name = cache_name(model)
            for part in torch.split(ids, [first] + [1] * (LONGEST - first), dim=1):
                told = positions(model, cache, part.shape[1])
                found = model(input_ids=part, **{name: cache}, use_cache=True, **told)
                cache = found[name]
                logits.append(found.logits[:, -1:].numpy())
        cached = np.concatenate(logits, axis=1)
        return {"gives": rounded(whole), "first": first, "cached": rounded(cached)}

    def _encoded(self, config: Config) -> Config:
        mask = attention_mask(LONGEST)
        ids = input_ids(LONGEST, config["vocab_size"], lowest=6)
        given = {"input_ids": np.where(mask, ids, config.get("pad_token_id") or 0)}
        given["attention_mask"] = mask
        if "type_vocab_size" in config and config["type_vocab_size"] > 1:
            given["token_type_ids"] = np.arange(LONGEST)[None] % 2
        with torch.no_grad():
            found = self.load()(**{name: torch.from_numpy(each) for name, each in given.items()})
        pooled = found.get("pooler_output") if self.model_type == "bert" else None
        made = {"gives": rounded(found.last_hidden_state.numpy()[:, :-PADDED])}
        return made | ({} if pooled is None else {"pooled": rounded(pooled.numpy()[:, None])})


def rounded(outputs: np.ndarray) -> list[float]:
    """A few outputs, to seven digits.

    Raises:
        ValueError: If they are no numbers.
    """
    if not np.isfinite(outputs).all():
        raise ValueError("no numbers")
    return [float(f"{number:.7g}") for number in sample(outputs)]


def described(file: Path) -> Config:
    """The keys of a GGUF file in their order, and its tensors' shapes and checksums."""
    reader = GGUFReader(file)
    keys = {
        key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")
    }
    held = {
        each.name: [each.shape.tolist()[::-1], zlib.crc32(each.data.tobytes())]
        for each in reader.tensors
    }
    return {"keys": keys, "tensors": held}


def defaults(model_type: str, config: Config) -> dict[str, Config]:
    """For each key of a configuration, what the class has where it is left out."""

    def completed(given: Config) -> Config:
        built = AutoConfig.for_model(type_of(model_type), **given)
        return dict(json.loads(built.to_json_string(use_diff=False)))

    told = {key: value for key, value in config.items() if key != "model_type"}
    found = {}
    for key in told:
        try:
            whole = completed({other: told[other] for other in told if other != key})
        except Exception as error:  # whatever the class raises: it needs the key
            print(f"{model_type} needs {key}: {error}"[:200])
            continue
        found[key] = {k: whole[k] for k in told.keys() & whole.keys() if whole[k] != told[k]}
    return found


def rows(model_type: str, scratch: Path, checkout: Path) -> list[Config]:
    """A row for each configuration that transformers computes."""
    made, files = [], []
    for index, drawn in enumerate(chosen(model_type)):
        peer = Peer(model_type, scratch / str(index) / model_type)
        has_gguf = index % 2 == 0 and model_type not in UNCONVERTED
        config = sayable(model_type, drawn) if has_gguf else drawn
        newer_alone = {*ENCODERS, "gemma3", *CHUNKED_VISION, *WHOLE, *IMAGE_TEXT}
        newer_alone -= {"modernbert", *FLAT}
        older = index % 4 >= 2 and model_type not in newer_alone
        older = older or (has_gguf and model_type in CONVERTED_OLDER)
        try:
            written, shapes = peer.write(config, older=older)
            outputs = peer.outputs(written, first=1 + 7 * index % (LONGEST - 1))
        except Exception as error:  # whatever transformers raises is a refusal
            print(f"{model_type}: {config}: {type(error).__name__} {error}"[-500:])
            continue
        made.append({"config": written, "tensors": folded(shapes), **outputs})
        if has_gguf:
            peer.name_for_conversion()
            files.append((made[-1], peer.folder, peer.folder.parent / "model.gguf"))
    convert(checkout, [(folder, target) for _, folder, target in files])
    for row, _, target in files:
        if target.exists():
            row["gguf"] = described(target)
    return made


def main(checkout: str, *names: str) -> None:
    """Record the named families, or all."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    OUT.mkdir(exist_ok=True)
    for name in names or RECORDED:
        with tempfile.TemporaryDirectory() as scratch:
            made = rows(name, Path(scratch), Path(checkout))
        head = {"transformers": transformers.__version__, "norm": norm_of(name), "rows": made}
        head["without"] = defaults(name, made[0]["config"])
        text = json.dumps(head, separators=(",", ":")).encode()
        (OUT / f"{name}.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))
        print(f"{name}: {len(made)} rows, {sum('gguf' in row for row in made)} with GGUF")


if __name__ == "__main__":
    main(*sys.argv[1:])
