"""Record what transformers makes of each tiny configuration when one of its keys changes.

Needs the ``peers`` extra (torch, transformers). For each folder ``tiny-NAME`` with a configuration
it writes ``variants/NAME.json``: for each key and value whether the outputs change, and to what.
Weights follow from their names (``seeded.py``), so that shapes and a few outputs say it all.

    python tests/data/record_variants.py [NAME ...]
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from record_families import FAMILIES
from recording import logits
from safetensors import safe_open
from safetensors.numpy import save_file
from seeded import PADDED, Config, attention_mask, changed, folded, input_ids, sample, tensors
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedModel
from variant_values import FURTHER, LEFT_ALONE, nested, values_of

HERE = Path(__file__).parent
OUT = HERE / "variants"
ENCODERS = ("bert", "roberta", "distilbert", "nomic_bert")
SPELLINGS = ("config.json", "config.newer.json")
Shapes = dict[str, list[int]]
MOST = 100_000
"""Parameters of the largest model that is tried: a key that is left out may mean 32 layers."""
SAME = 1e-6
FAINT = 1e-4
"""What differs by less could be taken for a rounding error."""

# Configurations beside those of the folders, where one key alone says too little.
BESIDES: Mapping[str, tuple[Config, ...]] = {
    "tiny-smollm3": (
        {
            "use_sliding_window": True,
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        {"use_sliding_window": True, "sliding_window": 7, "layer_types": None},
    ),
    "tiny-qwen3": (
        {
            "use_sliding_window": True,
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "tiny-qwen3-moe": ({"use_sliding_window": True, "sliding_window": 7},),
    "tiny-mixtral": ({"sliding_window": 7},),
    "tiny-llama": ({"tie_word_embeddings": True}, {"attention_bias": True, "mlp_bias": True}),
    "tiny-falcon": ({"tie_word_embeddings": False},),
    "tiny-gpt2": ({"tie_word_embeddings": False},),
}


class Refused(Exception):
    """Transformers does not compute this: an error, or weights that it makes up."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """Other values of a base's keys, and a key without which it is."""

    sets: Config
    drop: str = ""

    @property
    def row(self) -> Config:
        """What says it in the file."""
        return {"drop": self.drop} if self.drop else {"set": self.sets}


@dataclasses.dataclass
class Folder:
    """One tiny checkpoint with weights of its own making."""

    name: str
    scratch: Path
    saved: dict[str, Shapes] = dataclasses.field(default_factory=dict)

    @property
    def model_type(self) -> str:
        """As its configuration has it."""
        return str(self.config(SPELLINGS[0])["model_type"])

    @property
    def is_first(self) -> bool:
        """Whether no folder before it is of its family: keys of others are tried there."""
        files = sorted(HERE.glob("tiny-*/config.json"))
        alike = (f for f in files if json.loads(f.read_text())["model_type"] == self.model_type)
        return next(alike).parent.name == self.name

    @property
    def is_encoder(self) -> bool:
        """Whether it gives vectors of tokens and no logits."""
        return self.model_type in ENCODERS

    @property
    def norm(self) -> float:
        """What the weights of its norms are around."""
        return FAMILIES[self.name].norm if self.name in FAMILIES else 1.0

    @property
    def tokens(self) -> int:
        """How many it is given."""
        return FAMILIES[self.name].sequence if self.name in FAMILIES else 24

    def config(self, spelling: str) -> Config:
        """One of its configurations."""
        return dict(json.loads((HERE / self.name / spelling).read_text()))

    def shapes(self, config: Config) -> Shapes:
        """The tensors that transformers would save of such a model.

        Raises:
            Refused: If there is no such model, or a large one.
        """
        with torch.device("meta"):
            model = self._class.from_config(parsed(config))
        count = sum(one.numel() for one in model.parameters())
        if count > MOST:
            raise Refused(f"{count} parameters")
        kept = str({name: tuple(one.shape) for name, one in model.named_parameters()})
        if kept not in self.saved:
            self._class.from_config(parsed(config)).save_pretrained(self.scratch)
            with safe_open(self.scratch / "model.safetensors", "np") as file:
                names = file.keys()
                self.saved[kept] = {name: file.get_slice(name).get_shape() for name in names}
        return self.saved[kept]

    def outputs(self, config: Config, shapes: Shapes) -> np.ndarray:
        """What transformers computes of a file with these tensors [1, tokens, n].

        Raises:
            Refused: If it takes the file for incomplete, or gives no numbers.
        """
        (self.scratch / "config.json").write_text(json.dumps(config))
        save_file(tensors(shapes, self.norm), self.scratch / "model.safetensors", {"format": "pt"})
        model, told = self._class.from_pretrained(
            self.scratch,
            dtype=torch.float32,
            output_loading_info=True,
            experts_implementation="eager",
        )
        wrong = [
            name
            for kind in ("missing_keys", "mismatched_keys")
            for name in told[kind]
            if "pooler" not in str(name)
        ]
        if wrong:
            raise Refused(f"does not find {wrong}")
        found = self._run(model.eval())
        if not np.isfinite(found).all():
            raise Refused("gives no numbers")
        return found

    def _run(self, model: PreTrainedModel) -> np.ndarray:
        ids = input_ids(self.tokens)
        if not self.is_encoder:
            return logits(model, ids)
        mask = attention_mask(self.tokens)
        given = {"input_ids": np.where(mask, ids, 1), "attention_mask": mask}
        if self.model_type in ("bert", "nomic_bert"):
            given["token_type_ids"] = np.arange(self.tokens)[None] % 2
        with torch.no_grad():
            found = model(**{name: torch.from_numpy(array) for name, array in given.items()})
        return found.last_hidden_state.numpy()[:, :-PADDED]

    @property
    def _class(self) -> Any:
        return AutoModel if self.is_encoder else AutoModelForCausalLM


def parsed(config: Config) -> Any:
    """A configuration object, as reading a file makes it."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "config.json").write_text(json.dumps(config))
        return AutoConfig.from_pretrained(scratch)


@cache
def pool() -> Config:
    """Every key of a configuration class of the families here, with a usual value."""
    found: Config = dict.fromkeys(FURTHER)
    for file in sorted(HERE.glob("tiny-*/config.json")):
        built = parsed(json.loads(file.read_text()))
        text = built.get_text_config()
        found |= dict.fromkeys(text.attribute_map) | text.to_dict()
    return {key: value for key, value in found.items() if key not in LEFT_ALONE}


def own(config: Config) -> set[str]:
    """The keys that this family's class lists."""
    text = parsed(config).get_text_config()
    return {*text.attribute_map, *text.to_dict()}


def variants(config: Config, *, foreign: bool) -> Iterator[Variant]:
    """A key at a time: other values, null, and nothing; of other families' keys one value."""
    section = "text_config." if "text_config" in config else ""
    inner = config["text_config"] if section else config
    known = own(config)
    for key in sorted({*pool(), *inner} - LEFT_ALONE):
        is_own = key in known or key in inner
        if is_own or foreign:
            values = values_of(key, inner, pool())
            fresh = [value for value in values if value != inner.get(key)]
            yield from (Variant({section + key: value}) for value in fresh[: None if is_own else 1])
        if key in inner:
            yield Variant({}, section + key)
        if key in inner and inner[key] is not None:
            yield Variant({section + key: None})
    yield from (Variant({section + key: value}) for key, value in nested(inner))


def given(folder: Folder, config: Config, base: Shapes) -> tuple[Shapes, np.ndarray | None]:
    """The tensors of a model so configured, and its outputs; None where there are none."""
    shapes = base
    try:
        shapes = folder.shapes(config)
        return shapes, folder.outputs(config, shapes)
    except Exception:  # whatever transformers raises is a refusal
        return shapes, None


def rows(
    folder: Folder, config: Config, shapes: Shapes, usual: np.ndarray, *, foreign: bool
) -> Iterator[Config]:
    """A row for each variant of one configuration."""
    for variant in variants(config, foreign=foreign):
        other = changed(config, variant.sets, variant.drop)
        found_shapes, found = given(folder, other, shapes)
        differ = {
            name: found_shapes.get(name)
            for name in sorted({*shapes, *found_shapes})
            if shapes.get(name) != found_shapes.get(name)
        }
        yield variant.row | outcome(folder, variant, found, usual, differ)
        if differ.keys() & {"lm_head.weight", "embed_out.weight"} and len(differ) == 1:
            try:
                unchanged = folder.outputs(other, shapes)
            except Exception:
                unchanged = None
            yield variant.row | outcome(folder, variant, unchanged, usual, {})


def outcome(
    folder: Folder, variant: Variant, found: np.ndarray | None, usual: np.ndarray, differ: Shapes
) -> Config:
    """What a row says besides the change itself."""
    if found is None:
        return {"gives": None}
    row: Config = {"tensors": folded(differ)} if differ else {}
    if found.shape == usual.shape:
        error = float(np.abs(found - usual).max() / np.abs(usual).max())
        if error <= SAME:
            return row
        if error < FAINT:
            print(f"{folder.name}: {variant.row} is faint: {error:.1e}")
    return row | {"gives": rounded(found)}


def rounded(outputs: np.ndarray) -> list[float]:
    """A few outputs, to six digits."""
    return [float(f"{number:.6g}") for number in sample(outputs)]


def bases(folder: Folder) -> Iterator[tuple[str, Config]]:
    """The configurations to change: those of the folder, and what is set in the last of them."""
    there = [name for name in SPELLINGS if (HERE / folder.name / name).exists()]
    if folder.name == "tiny-nomic-bert":
        there = there[1:]  # the keys of nomic's own code, which transformers does not know
    yield from ((name, {}) for name in there)
    yield from ((there[-1], sets) for sets in BESIDES.get(folder.name, ()))


def record(folder: Folder) -> None:
    """Write the file of one folder."""
    made: list[Config] = []
    for spelling, sets in bases(folder):
        config = changed(folder.config(spelling), sets)
        shapes = folder.shapes(config)
        usual = folder.outputs(config, shapes)
        made.append(
            {
                "file": spelling,
                "set": sets,
                "tensors": folded(shapes),
                "gives": rounded(usual),
                "variants": list(
                    rows(folder, config, shapes, usual, foreign=folder.is_first and not made)
                ),
            }
        )
    head = {
        "transformers": transformers.__version__,
        "tokens": folder.tokens,
        "norm": folder.norm,
    }
    OUT.mkdir(exist_ok=True)
    (OUT / f"{folder.name}.json").write_text(text(head, made))


def text(head: Config, made: list[Config]) -> str:
    """JSON with a line for each variant."""
    parts = []
    for base in made:
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in base["variants"])
        short = json.dumps({**base, "variants": []}, separators=(",", ":"))
        parts.append(f"{short[:-2]}\n{lines}\n]}}")
    return f'{json.dumps(head)[:-1]}, "bases": [\n{",".join(parts)}\n]}}\n'


def main(names: list[str]) -> None:
    """Record the named folders, or all."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    found = sorted(file.parent.name for file in HERE.glob("tiny-*/config.json"))
    for name in names or found:
        with tempfile.TemporaryDirectory() as scratch:
            record(Folder(name, Path(scratch)))
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
