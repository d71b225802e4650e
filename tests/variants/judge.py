"""A recipe held against every recording of its families: is it refused, or wrong, anywhere?

For each recorded configuration: is it read as transformers computes it; is the GGUF file that it
converts to the one that llama.cpp's converter makes; is that file read as the same model; and is
the folder that it converts back to the one it came from? What a recipe reads as it stands is told
from what a damaged one reads by fields and rules alone, so that only what differs is computed.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from safetensors.numpy import load_file

from maxtool.architectures import build
from maxtool.conversion import Request, convert, prepare
from maxtool.errors import MaxtoolError
from maxtool.recipe import (
    Plan,
    Recipe,
    emissions,
    find_recipe,
    load_recipe,
    plan,
    resolve_config,
    written_keys,
    written_notes,
)
from maxtool.recipe.expressions import same
from maxtool.recipe.naming import title
from maxtool.recipe.read_config import ResolvedConfig
from maxtool.recipe.schema import Field
from maxtool.weights import Checkpoint, TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf
from tests.data.seeded import Array, Config, tensors
from tests.variants import gguf_keys, ours
from tests.variants.rows import ALLOWED, Files, Row, error, inputs, rows, sampled

# llama.cpp's converter writes 2048 for every Falcon, and makes a name of a folder's otherwise.
# It counts tied heads, and factors.
CORRECTED = frozenset({"falcon.context_length", "general.name", "general.size_label"})
# It says these of some architectures, or where they are the quotient, and we say them of others.
SIZES = frozenset({"attention.key_length", "attention.value_length"})
ADDED = frozenset(
    f"rope.{key}"
    for key in (
        *("freq_base", "scaling.type", "scaling.factor", "scaling.attn_factor"),
        "scaling.original_context_length",
    )
)
# Keys that stand elsewhere than in llama.cpp's files.
YARN = ("yarn_beta_fast", "yarn_beta_slow", "yarn_attn_factor", "original_context_length")
UNORDERED: Mapping[str, tuple[str, ...]] = {
    "distilbert": ("attention.causal", "attention.layer_norm_epsilon"),
    "gemma3_text": YARN,
}
# One formula.
GELU_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
# Said in other ways by what is written back: whether factors are Llama 3's is not in the file.
OTHERWISE = frozenset(
    (
        *("new_decoder_architecture", "num_ln_in_parallel_attn", "partial_rotary_factor"),
        *("rope_parameters", "rotary_pct", "use_sliding_window"),
    )
)
ROUNDING = 1.2e-7
"""Of norms that GGUF keeps with one added."""


@dataclass
class Reading:
    """A checkpoint as a recipe reads it, and what of that decides the outputs."""

    checkpoint: Checkpoint
    recipe: Recipe
    resolved: ResolvedConfig

    @property
    def values(self) -> Config:
        """The fields."""
        return self.resolved.values

    @cached_property
    def plan(self) -> Plan:
        """The parameters bound to tensors.

        Raises:
            MaxtoolError: If they do not fit.
        """
        made = plan(self.recipe, self.checkpoint)
        made.check()
        return made


@dataclass
class Case:
    """One recorded configuration as a checkpoint, and what the recipe as it stands reads there.

    Attributes:
        row: What was recorded.
        checkpoint: In the dialect that is read.
        usual: What the recipe as it stands makes of it, None where it refuses it.
        folder: For what it is converted to.
        recipe: The name of the recipe that reads it.
        source: The name of the recipe of the recorded configuration.
    """

    row: Row
    checkpoint: Checkpoint
    usual: Reading | None
    folder: Path
    recipe: str
    source: str
    known: dict[str, Array] = field(default_factory=dict)

    @property
    def is_recognised(self) -> bool:
        """Whether its recipe is one that GGUF files are recognised by."""
        return self.usual is not None and bool(self.usual.recipe.match["gguf"].values)

    def is_about(self, words: frozenset[str] | None) -> bool:
        """Whether one of some keys is what it differs in, or many are."""
        change = self.row.change
        keys = {*change.get("set", {}), *filter(None, [change.get("drop")])}
        return words is None or not keys or any(key.rpartition(".")[2] in words for key in keys)

    def fault(self, recipe: Recipe) -> str | None:
        """Why a recipe is wrong here, None if it is not."""
        try:
            reading = Reading(self.checkpoint, recipe, resolve_config(recipe, self.checkpoint))
            wrong = self._reads_wrong(reading) or (self._writes_wrong(reading))
        except MaxtoolError as refusal:
            return f"refused: {refusal}" if self.usual is not None else None
        return f"{self.row}: {wrong}" if wrong else None

    def _reads_wrong(self, reading: Reading) -> str | None:
        if self.usual is not None and reading.resolved.notes != self.usual.resolved.notes:
            return f"notes {reading.resolved.notes}"
        if self.usual is not None and _alike(self.usual, reading):
            return None
        means = ours.meaning(reading.plan)
        if self.usual is not None and means == ours.meaning(self.usual.plan):
            return None
        return self._computes_wrong(reading)

    def problems(self) -> Iterator[str]:
        """What the recipe as it stands computes, and converts to, otherwise than recorded."""
        assert self.usual is not None
        if wrong := self._computes_wrong(self.usual):
            yield f"{self.row}: {wrong}"
        if "gguf" in self.row.more and (wrong := self.conversion(self.usual.recipe)):
            yield f"{self.row}: {wrong}"

    def _computes_wrong(self, reading: Reading) -> str | None:
        means = ours.meaning(reading.plan)
        if means not in self.known:
            self.known[means] = sampled(self.row, ours.outputs(reading.plan, inputs(self.row)))
        found, expected = self.known[means], self.row.expected
        assert expected is not None
        if self.checkpoint.format == "gguf":
            expected = expected[: len(found)]  # it has no place for poolers
        off = error(found, expected)
        return None if off <= ALLOWED else f"outputs are {off:.1e} off"

    def _writes_wrong(self, reading: Reading) -> str | None:
        """What is wrong with the file that the checkpoint converts to in the other dialect."""
        if "gguf" not in self.row.more or self.usual is None:
            return None
        if _writes(self.usual) == _writes(reading):
            return None
        return self.conversion(reading.recipe)

    def conversion(self, recipe: Recipe) -> str | None:
        """Convert into the other dialect, and compare with what was recorded."""
        if self.checkpoint.format == "gguf":
            is_other = self.row.is_encoder and recipe.name != self.source
            return None if is_other else self._folder(recipe)
        output = self.folder / "model.gguf"
        name = title(self.row.family)
        made = prepare(Request(self.checkpoint.path, output, name=name, force=True))
        convert(made)
        found, recorded = described(output), self.row.more["gguf"]
        told = {key for key in found["keys"] for note in made.notes if f"as {key};" in note}
        keys, wanted = found["keys"], recorded["keys"]
        further = keys.keys() - wanted.keys() - told
        arch = keys["general.architecture"]
        sizes = {f"{arch}.{key}" for key in SIZES}
        quotient = keys[f"{arch}.embedding_length"] / keys[f"{arch}.attention.head_count"]
        odd = {key for key in sizes if {**wanted, **keys}.get(key) != quotient}
        added = {f"{arch}.{key}" for key in ADDED} | odd
        if wrong := {key for key in further - added if not key.startswith("tokenizer.")}:
            return f"writes {wrong}, and llama.cpp does not"
        missing = (sizes - odd) - keys.keys()
        anywhere = UNORDERED.get(self.row.family, ("attention.causal",))
        ours, theirs = (
            [key for key in one if key in two and not key.endswith(anywhere)]
            for one, two in ((keys, wanted), (wanted, keys))
        )
        if ours != theirs or wanted.keys() - keys.keys() - missing:
            return f"writes {list(keys)}, llama.cpp {list(wanted)}"
        for key, value in wanted.items():
            if key not in CORRECTED and key not in missing and keys[key] != value:
                return f"writes {key} = {keys[key]!r}, llama.cpp {value!r}"
        wrong = [
            name
            for name in _differing(found["tensors"], recorded["tensors"])
            if not name.startswith(("rope_factors", "rope_freqs"))
        ]
        return f"writes other tensors than llama.cpp: {wrong}" if wrong else None

    def _folder(self, recipe: Recipe) -> str | None:
        output = self.folder / "back"
        shutil.rmtree(output, ignore_errors=True)
        convert(prepare(Request(self.checkpoint.path, output, recipe=recipe.name)))
        written = json.loads((output / "config.json").read_text())
        config = self.row.config
        kept = {"model_type", "architectures"} if recipe.name != self.source else set()
        for key in (written.keys() & config.keys()) - kept - OTHERWISE:
            if not _close(written[key], config[key]):
                return f"writes {key} = {written[key]!r}, where it was {config[key]!r}"
        expected = tensors(self.row.shapes, self.row.norm)
        found = load_file(output / "model.safetensors")
        wrong = [name for name in found.keys() ^ expected.keys() if "pooler" not in name]
        if wrong:
            return f"writes other tensors: {wrong}"
        for name in found.keys() & expected.keys():
            array = expected[name]
            if not np.allclose(found[name], array, rtol=0, atol=ROUNDING):
                return f"writes another {name}"
        again = open_checkpoint(output)
        if find_recipe(again).name != recipe.name:
            return "is recognised as another model"
        values = resolve_config(recipe, again).values
        before = resolve_config(recipe, self.checkpoint).values
        unsaid = {name for name, each in recipe.fields.items() if _is_lost(each)}
        kept = [name for name in values if name not in unsaid]
        wrong = [name for name in kept if not same(values[name], before[name])]
        return f"reads {wrong} otherwise from what it wrote" if wrong else None


def _is_lost(field: Field) -> bool:
    """Whether GGUF has no place for it."""
    return any(way.lost for way in field.spellings.get("gguf", ()))


def _close(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return all(_close(each, two[key]) for key, each in one.items() if key in two)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_close, one, two))
    numbers = isinstance(one, float) and isinstance(two, int | float)
    if numbers:
        return bool(np.isclose(one, two, rtol=1e-6, atol=0))
    return bool(one == two) or {one, two} <= {*GELU_TANH}


def _alike(one: Reading, two: Reading) -> bool:
    """Whether two readings of a checkpoint must have one plan."""
    dialect = one.plan.dialect
    return one.values == two.values and one.recipe.rules[dialect] == two.recipe.rules[dialect]


def _writes(reading: Reading) -> str:
    """All that decides what a checkpoint converts to."""
    recipe, values = reading.recipe, reading.values
    target: Any = "hf" if reading.checkpoint.format == "gguf" else "gguf"
    shapes = {name: binding.shape for name, binding in reading.plan.parameters.items()}
    keys = list(written_keys(recipe, target, values, dict.fromkeys(EXTRA, 0)).items())
    notes = written_notes(recipe, target, values)
    order = recipe.order.get(target, ())
    return repr(
        (values, keys, notes, EXTRA & {*order}, emissions(recipe, target, values, shapes))
    ) + ours.meaning(reading.plan)


EXTRA = frozenset({"general.name", "general.size_label", "general.file_type"})


def described(file: Path) -> Config:
    """The keys of a GGUF file in their order, and its tensors' shapes and checksums."""
    reader = GGUFReader(file)
    keys = {key: each.contents() for key, each in reader.fields.items() if key[:5] != "GGUF."}
    held = {
        each.name: [each.shape.tolist()[::-1], zlib.crc32(each.data.tobytes())]
        for each in reader.tensors
    }
    return {"keys": keys, "tensors": held}


def _differing(one: Config, two: Config) -> list[str]:
    return [name for name in {**one, **two} if one.get(name) != two.get(name)]


class Judge:
    """The recordings of some families, as checkpoints of both dialects, written as they are needed.

    Args:
        families: Names of ``rows.FAMILIES``.
        folder: Where they are written.
    """

    def __init__(self, families: Sequence[str], folder: Path) -> None:
        self.families = families
        self.folder = folder
        self._cases: dict[str, list[Case]] = {}

    def cases(self, family: str) -> list[Case]:
        """Those of one family."""
        if family not in self._cases:
            self._cases[family] = list(_cases(family, self.folder / family))
        return self._cases[family]

    def problems(self) -> Iterator[str]:
        """What is wrong with the recipes as they stand."""
        for case in (case for family in self.families for case in self.cases(family)):
            if case.usual is None:
                yield f"{case.row}: refused"
            elif case.usual.resolved.notes:
                yield f"{case.row}: {case.usual.resolved.notes}"
            else:
                yield from case.problems()

    def faults(
        self, family: str, names: Sequence[str], words: frozenset[str] | None
    ) -> Iterator[str]:
        """What is wrong in one family with recipes as they are loaded now.

        Args:
            family: One whose ``cases`` were asked for before.
            names: The recipes.
            words: Keys; of configurations that differ in one key only those that differ in one of
                these are looked at.
        """
        try:
            recipes = {name: load_recipe(name) for name in names}
        except MaxtoolError as refusal:
            yield f"refused: {refusal}"
            return
        for case in self.cases(family):
            if case.recipe in recipes and case.is_about(words):
                if wrong := case.fault(recipes[case.recipe]):
                    yield wrong
        yield from self._keys_wrong(family, recipes)

    def _keys_wrong(self, family: str, recipes: dict[str, Recipe]) -> Iterator[str]:
        """What is read otherwise from a GGUF file of which one key is another."""
        case = self.file(family)
        if case is None or case.recipe not in recipes:
            return
        expected = gguf_keys.recorded().get(family, {})
        try:
            found = gguf_keys.measured(recipes[case.recipe], case.checkpoint)
        except MaxtoolError as refusal:
            yield f"refused: {refusal}"
            return
        if wrong := [what for what in expected if found.get(what) != expected[what]]:
            yield f"{family}: {wrong}"

    def file(self, family: str) -> Case | None:
        """The first GGUF file of a family that llama.cpp's converter would have made."""
        cases = (case for case in self.cases(family) if case.usual is not None)
        return next((case for case in cases if case.checkpoint.format == "gguf"), None)

    def unrecognised(self, family: str) -> Iterator[str]:
        """Checkpoints of one family that are taken for those of another recipe."""
        for case in {case.checkpoint.format: case for case in self.cases(family)}.values():
            if case.checkpoint.format == "gguf" and not case.is_recognised:
                continue
            try:
                found = find_recipe(case.checkpoint).name
            except MaxtoolError as refusal:
                found = str(refusal)
            if found != case.recipe:
                yield f"{case.row}: {found} instead of {case.recipe}"


def _cases(family: str, folder: Path) -> Iterator[Case]:
    """Each configuration that transformers computes, and the GGUF files of it."""
    shared = Files(folder)
    recipe: Recipe | None = None
    for index, row in enumerate(rows(family)):
        if row.expected is None:
            continue
        own = folder / f"case{index}"
        # What is converted is opened again then, with the configuration beside it.
        files = Files(own) if "gguf" in row.more else shared
        checkpoint = files.checkpoint(row)
        recipe = recipe or find_recipe(checkpoint)
        usual = _read(recipe, checkpoint, row)
        case = Case(row, checkpoint, usual, own, recipe.name, recipe.name)
        yield case
        if "gguf" not in row.more or usual is None:
            continue
        for file in _converted(case):
            # DistilBERT's files say that they are BERT's: --recipe tells.
            known = find_recipe(file) if recipe.match["gguf"].values else recipe
            yield Case(row, file, _read(known, file, row), own, known.name, recipe.name)
        # The vocabulary, which these files lack, says which of two encoders it is.
        told = {key: values[0] for key, values in recipe.match["gguf"].values.items()}
        if known.name != recipe.name and row.is_encoder and told:
            file = _rewritten(file, {**file.metadata, **told}, own / "told.gguf")
            alone = dataclasses.replace(row, more={})
            yield Case(alone, file, _read(recipe, file, row), own, recipe.name, recipe.name)


def _converted(case: Case) -> Iterator[Checkpoint]:
    """The GGUF file of a checkpoint, and llama.cpp's if it differs and says as much."""
    folder, output = case.folder, case.folder / f"{case.row.family}.gguf"
    convert(prepare(Request(case.checkpoint.path, output, name=title(case.row.family))))
    file = open_checkpoint(output)
    yield file
    theirs = case.row.more["gguf"]["keys"]
    ours = {key.partition(".")[2] for key in file.metadata.keys() - theirs.keys()}
    if file.metadata.keys() ^ theirs.keys() and ours <= SIZES:
        keys = {k: file.metadata[k] if k in file.metadata else np.uint32(theirs[k]) for k in theirs}
        yield _rewritten(file, keys, folder / "theirs.gguf")


def _rewritten(file: Checkpoint, keys: Mapping[str, Any], output: Path) -> Checkpoint:
    """A GGUF file with other keys."""
    specs = [TensorSpec(i.name, i.dtype, i.shape, i.encoding) for i in file.tensors.values()]
    gguf.write(output, specs, [file.read(each).data for each in file.tensors], dict(keys))
    return open_checkpoint(output)


def _read(recipe: Recipe, checkpoint: Checkpoint, row: Row) -> Reading | None:
    try:
        reading = Reading(checkpoint, recipe, resolve_config(recipe, checkpoint))
        made = reading.plan
        module = build(recipe.architecture, made.config)
    except MaxtoolError:
        return None
    fits = module.context is None or module.context >= row.tokens
    return reading if fits else None
