"""A recipe held against every recording of its families: is it refused, or wrong, anywhere?

For each recorded configuration: is it read as transformers computes it; is the GGUF file that it
converts to the one that llama.cpp's converter makes; is that file read as the same model; and is
the folder that it converts back to the one it came from?
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from maxtool.errors import MaxtoolError
from maxtool.recipe import Recipe, find_recipe, load_recipe, plan, resolve_config, written_keys
from maxtool.recipe.expressions import same
from maxtool.recipe.plan import shown
from maxtool.runtime.loader.specs import CLASSIFY
from maxtool.weights import Checkpoint, open_checkpoint
from tests.data.random_families import WITHOUT_GGUF
from tests.data.seeded import Config, unfolded
from tests.recipe import test_recorded_keys
from tests.variants import gguf_files, gguf_keys
from tests.variants.cases import Case, read
from tests.variants.crashes import crashes_refuse
from tests.variants.damage import whole
from tests.variants.declared import published
from tests.variants.offered import offered
from tests.variants.old_files import older, with_head
from tests.variants.refused import fits
from tests.variants.rows import DATA, RANDOM, Files, Row, rows, without

# A tensor by which the part of a checkpoint that no recipe reads whole is found.
PART = "language_model.model.embed_tokens.weight"


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
        self._published: dict[str, Checkpoint] = {}
        self._incomplete: dict[str, dict[str, str]] = {}
        self._is_wrong: dict[Row, bool] = {}
        self._known_faults: dict[str, set[str]] = {}

    def cases(self, family: str) -> list[Case]:
        """Return the rows of one family."""
        if family not in self._cases:
            self._cases[family] = list(_cases(family, self.folder / family))
        return self._cases[family]

    def problems(self) -> Iterator[str]:
        """Return the problems with the recipes as they stand."""
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
        """Return the problems of one family with recipes as they are loaded now.

        Args:
            family: One whose ``cases`` were asked for before.
            names: The recipes.
            words: Keys; of configurations that differ in one key only those that differ in one of
                these are looked at.
        """
        yield from (wrong for _, wrong in self._faults(family, names, words))

    def evidence(
        self, family: str, names: Sequence[str], words: frozenset[str] | None
    ) -> Iterator[str]:
        """The same of damaged recipes, without what the recipes as they stand show, too."""
        for case, wrong in self._faults(family, names, words):
            if not (self._stands_wrong(case) if case else wrong in self._faults_of_file(family)):
                yield wrong

    def _faults(
        self, family: str, names: Sequence[str], words: frozenset[str] | None
    ) -> Iterator[tuple[Case | None, str]]:
        """Return the problems, each with the case that it is of, if it is of one."""
        try:
            with crashes_refuse():
                recipes = {name: load_recipe(name) for name in names}
        except MaxtoolError as refusal:
            yield None, f"refused: {refusal}"
            return
        for case in self.cases(family):
            if case.recipe not in recipes or not case.is_about(words):
                continue
            if wrong := case.fault(recipes[case.recipe]):
                yield case, wrong
        yield from ((None, wrong) for wrong in self._file_wrong(family, recipes))

    def _stands_wrong(self, case: Case) -> bool:
        """Return whether a case has problems with its recipe as it stands."""
        if case.row not in self._is_wrong:
            with whole():
                problems = case.problems() if case.usual is not None else iter(())
                self._is_wrong[case.row] = next(problems, None) is not None
        return self._is_wrong[case.row]

    def _faults_of_file(self, family: str) -> set[str]:
        """Return the problems of a family's GGUF file with its recipe as it stands."""
        if family not in self._known_faults:
            case = self.file(family)
            with whole():
                recipes = {case.recipe: load_recipe(case.recipe)} if case else {}
                self._known_faults[family] = {*self._file_wrong(family, recipes)}
        return self._known_faults[family]

    def _file_wrong(self, family: str, recipes: dict[str, Recipe]) -> Iterator[str]:
        yield from self._keys_wrong(family, recipes)
        yield from self._supported(family, recipes)

    def _keys_wrong(self, family: str, recipes: dict[str, Recipe]) -> Iterator[str]:
        """Return the differences in reading a GGUF file with one key changed."""
        case = self.file(family)
        if case is None or case.recipe not in recipes:
            return
        expected = gguf_keys.recorded().get(family, {})
        try:
            actual = gguf_keys.measured(recipes[case.recipe], case.checkpoint)
        except MaxtoolError as refusal:
            yield f"refused: {refusal}"
            return
        if wrong := [what for what in expected if actual.get(what) != expected[what]]:
            yield f"{family}: {wrong}"

    def _supported(self, family: str, recipes: dict[str, Recipe]) -> Iterator[str]:
        """Return the tensors for which a GGUF file is not refused as it must be."""
        case, further = self.file(family), gguf_files.UNSUPPORTED.get(family, {})
        if case is None or case.recipe not in recipes:
            return
        for name, reason in further.items():
            if name not in self._published:
                output = case.folder / f"{name}.gguf"
                self._published[name] = gguf_files.with_tensors(case.checkpoint, [name], output)
            try:
                problems = shown(plan(recipes[case.recipe], self._published[name]).misfits())
            except MaxtoolError as refusal:
                problems = [str(refusal)]
            if not any(reason in each for each in problems):
                yield f"{family}: {name} is not refused for its {reason}"

    def unoffered(self, cases: Sequence[Case]) -> Iterator[str]:
        """Recipes whose entries are not those of the architecture, for some models."""
        for case in cases:
            if case.usual is None:
                continue
            with crashes_refuse():
                whole = load_recipe(case.recipe).entries
            known = offered(case.usual.plan)
            # None of these models has a head; those that do have recordings of their own.
            entries = {name: each for name, each in whole.items() if name != CLASSIFY}
            if entries != known:
                yield f"{case.row.family}: the entries {entries}"

    def unpublished(self, names: Sequence[str]) -> Iterator[str]:
        """Published configurations that give other fields than they must, or are refused."""
        for model, told, checkpoint in self._those_published(names):
            try:
                with crashes_refuse():
                    recipe = load_recipe(told["recipe"])
                    resolved = resolve_config(recipe, checkpoint)
                    values = resolved.values
                    keys = written_keys(recipe, "gguf", values) if told.get("gguf") else {}
            except MaxtoolError as refusal:
                if told["fields"] is not None:
                    yield f"refused: {model}: {refusal}"
                continue
            if told["fields"] is None:
                yield f"{model}: read, which must be refused"
                continue
            if resolved.notes:
                yield f"{model}: {resolved.notes}"
            for key, value in told.get("gguf", {}).items():
                if not same(keys.get(key), value):
                    yield f"{model}: {key} = {keys.get(key)}"
            order = [key for key in told.get("gguf", ()) if key in keys]
            if order != sorted(order, key=[*keys].index):
                yield f"{model}: {list(keys)} in another order"
            for name, value in told["fields"].items():
                if not same(values.get(name), tuple(value) if isinstance(value, list) else value):
                    yield f"{model}: {name} = {values.get(name)}"

    def unmatched(self, names: Sequence[str]) -> Iterator[str]:
        """Published configurations that are taken for those of another recipe."""
        for model, told, checkpoint in self._those_published(names):
            if (result := _recognised(checkpoint)) != told["recipe"]:
                yield f"{model}: {result} instead of {told['recipe']}"

    def _those_published(self, names: Sequence[str]) -> Iterator[tuple[str, Config, Checkpoint]]:
        for model, told in published():
            if told["recipe"] in names:
                folder = self.folder / "published" / model
                if model not in self._published:
                    held = (told.get(key, {}) for key in ("files", "bytes", "floats"))
                    self._published[model] = _bare(folder, told["config"], *held)
                yield model, told, self._published[model]

    def unwritten(self, names: Sequence[str]) -> Iterator[str]:
        """Tiny checkpoints of which other keys are written than were recorded."""
        for folder, told in json.loads(test_recorded_keys.RECORDED.read_text()).items():
            if find_recipe(open_checkpoint(DATA / folder)).name in names:
                with crashes_refuse():
                    result = test_recorded_keys.said(folder)
                if result != told:
                    yield f"{folder}: other keys"

    def incomplete(self, family: str, name: str) -> dict[str, str]:
        """Return how absent keys are read: as transformers completes them, or otherwise."""
        result, recipe = {}, load_recipe(name)
        for key, *pair in without(family) if family in RANDOM else ():
            left, whole = (
                self._values(recipe, f"{family} {key} {place}", config)
                for place, config in enumerate(pair)
            )
            result[key] = "refused" if left is None else "alike" if _alike(left, whole) else "other"
        return result

    def usually(self, family: str, name: str) -> dict[str, str]:
        """:meth:`incomplete`, of the recipe as it stands."""
        if family not in self._incomplete:
            self._incomplete[family] = self.incomplete(family, name)
        return self._incomplete[family]

    def _values(self, recipe: Recipe, name: str, config: Config) -> Config | None:
        if name not in self._published:
            folder = self.folder / "bare" / name
            self._published[name] = _bare(folder, config, {}, floats={PART: (1, 1)})
        try:
            with crashes_refuse():
                return resolve_config(recipe, self._published[name]).values
        except MaxtoolError:
            return None

    def file(self, family: str) -> Case | None:
        """The first GGUF file of a family that llama.cpp's converter would have made."""
        cases = (case for case in self.cases(family) if case.usual is not None)
        return next((case for case in cases if case.checkpoint.format == "gguf"), None)

    def unrecognised(self, family: str) -> Iterator[str]:
        """Checkpoints of one family that are taken for those of another recipe."""
        files = {(each.checkpoint.format, _vocabulary(each)): each for each in self.cases(family)}
        for case in files.values():
            if case.checkpoint.format == "gguf" and not case.is_recognised:
                continue
            if (result := _recognised(case.checkpoint)) != case.recipe:
                yield f"{case.row}: {result} instead of {case.recipe}"


def _recognised(checkpoint: Checkpoint) -> str:
    """Return the name of the recipe that recognises a checkpoint, or why none does."""
    try:
        return find_recipe(checkpoint).name
    except MaxtoolError as refusal:
        return str(refusal)


def _vocabulary(case: Case) -> object:
    """Return the kind of vocabulary that a GGUF file says, which tells RoBERTa from BERT."""
    return case.checkpoint.metadata.get("tokenizer.ggml.model")


def _alike(left: Config | None, right: Config | None) -> bool:
    return left is not None and right is not None and all(same(left[k], right[k]) for k in left)


def _bare(
    folder: Path,
    config: Config,
    files: Mapping[str, object],
    held: Mapping[str, Sequence[int]] | None = None,
    floats: Mapping[str, Sequence[int]] | None = None,
) -> Checkpoint:
    """A configuration with a tensor that it has no use for, and files beside it."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: np.full(shape, 127, np.uint8) for name, shape in (held or {}).items()}
    tensors |= {n: np.full(size, 0.5, np.float32) for n, size in unfolded(floats or {}).items()}
    save_file({"x": np.zeros(1, np.float32), **tensors}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return open_checkpoint(folder)


def _cases(family: str, folder: Path) -> Iterator[Case]:
    """Each configuration that transformers computes, and the GGUF files of it."""
    shared = Files(folder)
    recipe: Recipe | None = None
    is_tied_seen = False
    for index, row in enumerate(rows(family)):
        if row.expected is None:
            continue
        own = folder / f"case{index}"
        # What is converted is opened again then, with the configuration beside it.
        is_converted = "gguf" in row.more or family in WITHOUT_GGUF
        files = Files(own) if is_converted else shared
        checkpoint = files.checkpoint(row)
        recipe = load_recipe(recipe.name if recipe else find_recipe(checkpoint).name)
        usual = read(recipe, checkpoint, row)
        is_unread = usual is None and not fits(recipe, checkpoint)
        case = Case(row, checkpoint, usual, own, recipe.name, recipe.name, is_unread)
        yield case
        if index == 0:
            yield from older(case)
        if not is_tied_seen and (other := with_head(case)):
            is_tied_seen = True
            yield other
        if usual is not None and "gguf" not in row.more:
            yield from gguf_files.untied(case)
        if "gguf" not in row.more or usual is None:
            continue
        last: Case | None = None
        for file in gguf_files.converted(case):
            # Gemma 3's files are those of its language model: --recipe tells.
            is_told = not (recipe.match["gguf"].values or recipe.section)
            known = recipe if is_told else find_recipe(file)
            last = Case(row, file, read(known, file, row), own, known.name, recipe.name)
            yield last
        assert last is not None
        if index == 0:
            yield from gguf_files.first_files(last)
        # The vocabulary, which these files lack, says which of two encoders it is.
        if last.recipe != recipe.name and row.is_encoder and recipe.match["gguf"].values:
            yield from gguf_files.recognised(last, recipe)
