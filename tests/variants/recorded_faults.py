"""Recipes held against every recording of their models, where these are not models of texts.

For each recorded configuration: is it recognised, read as transformers computes it, and written
back as the folder it came from? And is a key that is left out taken for what transformers takes?
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import MaxtoolError
from maxtool.recipe import emissions, find_recipe, resolve_config, written_keys
from maxtool.recipe.expressions import same
from maxtool.weights import Checkpoint, open_checkpoint
from tests.artifact.measure import error
from tests.data.seeded import Config, tensors
from tests.variants import ours
from tests.variants.cases import Reading
from tests.variants.crashes import crashes_refuse
from tests.variants.damage import whole
from tests.variants.declared import DATA
from tests.variants.offered import offered

ALLOWED = 2e-6
SPELLINGS = {
    **dict.fromkeys(("gelu_fast", "gelu_pytorch_tanh"), "gelu_new"),
    "gelu_python": "gelu",
    "swish": "silu",
}
"""Names of activations, by others of the same formula."""
# Of a model with other parts, which are said of a part by itself otherwise.
OF_THE_WHOLE = frozenset({"architectures", "model_type"})


class Recordings:
    """Recorded configurations, what comes out, and what is taken for keys that are left out.

    Args:
        file: That of the recordings, in the folder of data.
        kept: Whether a case is taken, by its name; all are if None.
    """

    def __init__(self, file: str, kept: Callable[[str], bool] | None = None) -> None:
        self.outputs = dict(np.load(DATA / file))
        self.cases: Config = json.loads(self.outputs.pop("cases").tobytes())
        if kept is not None:
            self.cases = {name: each for name, each in self.cases.items() if kept(name)}
        self.without: Config = json.loads(self.outputs.pop("without").tobytes())

    def of(self, case: str) -> Config:
        """The outputs of a case by name."""
        named = ((key.partition("/"), array) for key, array in self.outputs.items())
        return {output: array for (name, _, output), array in named if name == case}


class RecordedCase:
    """One recorded configuration, and what the recipe as it stands reads there.

    Args:
        name: That of the recording.
        folder: Where the checkpoint is written.
    """

    recordings: ClassVar[Recordings]
    said: ClassVar[Collection[str]]  # cases whose class and type are written as they were read
    allowed: ClassVar[float] = ALLOWED  # of relative error
    prefixes: ClassVar[Sequence[str]]  # of the part's tensors, within a model with more parts
    rounding: ClassVar[float] = 0.0  # of what is converted and back

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder / name
        self.known = self.recordings.cases[name]
        values = self.tensors(self.known["shapes"])
        self.checkpoint = written(self._source, self.known["config"], values)
        self.recipe = find_recipe(self.checkpoint).name
        self.usual = _reading(self.checkpoint)
        self.means, self.writes = _meaning(self.usual), _writing(self.usual)

    def fault(self) -> str | None:
        """Return the reason why the recipes as they are loaded now are wrong here, if they are."""
        try:
            with crashes_refuse():
                wrong = self._wrong(_reading(self.checkpoint))
        except MaxtoolError as refusal:
            return f"{self.name}: refused: {refusal}"
        return f"{self.name}: {wrong}" if wrong else None

    def _wrong(self, reading: Reading) -> str | None:
        if reading.recipe.name != self.recipe:
            return f"recognised as {reading.recipe.name}"
        if reading.resolved.notes != self.usual.resolved.notes:
            return f"notes {reading.resolved.notes}"
        entries = _sized(reading.recipe.entries, self.sizes(reading.values))
        if any(entries.get(name) != each for name, each in offered(reading.plan).items()):
            return f"the entries {entries}"
        if _meaning(reading) != self.means and (wrong := self.outputs_wrong()):
            return wrong
        is_same = _writing(reading) == self.writes
        return None if is_same else self.keys_wrong(reading) or self.conversion_wrong()

    def problem(self) -> str | None:
        """Return what is wrong with the recipe as it stands."""
        return self.fault() or (
            self.outputs_wrong() or self.keys_wrong(self.usual) or self.conversion_wrong()
        )

    def tensors(self, shapes: Config) -> Config:
        """The tensors of such a checkpoint."""
        return tensors(shapes, 1.0)

    def outputs(self) -> Config:
        """The outputs of the recipe as it is loaded now, by the names of the recording."""
        raise NotImplementedError

    def sizes(self, values: Config) -> Config:
        """The sizes that a recipe's entries have names for, by name."""
        raise NotImplementedError

    def told(self, config: Config) -> Config:
        """Keys of the case, as the recipe has them."""
        return {**config.get("vision_config", {}), **config, **_dotted(config)}

    def unread(self, config: Config) -> Collection[str]:
        """The keys of its configuration that decide nothing."""
        raise NotImplementedError

    def outputs_wrong(self) -> str | None:
        """Return the outputs that are not those recorded."""
        found = self.outputs()
        for name, expected in self.recordings.of(self.name).items():
            if found[name].shape != expected.shape or error(found[name], expected) > self.allowed:
                return f"another {name}"
        return None

    def keys_wrong(self, reading: Reading) -> str | None:
        """Return the key of its configuration that would be written otherwise than it is."""
        usual = self.told(self.known["config"])
        told = written_keys(reading.recipe, "hf", reading.values)
        says = ("architectures", "model_type") if self.name in self.said else ()
        unread = {*self.unread(usual)}
        for key in (*(told.keys() & usual.keys() - OF_THE_WHOLE - unread), *says):
            if _spelled(told.get(key)) != _spelled(usual[key]):
                return f"writes {key} = {told.get(key)!r}, where it was {usual[key]!r}"
        return None

    def conversion_wrong(self) -> str | None:
        """Return the difference of what it is converted to from the folder it came from."""
        output = self.folder / "back"
        shutil.rmtree(output, ignore_errors=True)
        convert(prepare(Request(self.checkpoint.path, output)))
        before, after = (load_file(at / "model.safetensors") for at in (self._source, output))
        plain = {self._plain(name): each for name, each in before.items()}
        for name, array in after.items():
            whole = plain.get(self._plain(name))
            if whole is None or not np.allclose(whole, array, rtol=0, atol=self.rounding):
                return f"writes another {name}"
        values = _reading(open_checkpoint(output)).values
        other = [key for key in values if not same(values[key], self.usual.values[key])]
        return f"reads {other} otherwise from what it wrote" if other else None

    @property
    def _source(self) -> Path:
        return self.folder / "source"

    def _plain(self, name: str) -> str:
        """The name of a tensor in the part by itself."""
        prefix = next((each for each in self.prefixes if name.startswith(each)), "")
        return name.removeprefix(prefix)


class RecordedJudge:
    """All recorded configurations, as checkpoints that the recipes as they stand have read.

    Args:
        kind: What each is a case of.
        folder: Where they are written.
    """

    def __init__(self, kind: type[RecordedCase], folder: Path) -> None:
        self.folder, self.without = folder, kind.recordings.without
        self.cases = [kind(name, folder) for name in kind.recordings.cases]
        self._standing: dict[str, set[str] | None] = {}

    def problems(self) -> Iterator[str]:
        """Return the problems with the recipes as they stand."""
        yield from filter(None, (case.problem() for case in self.cases))
        yield from self.faults({case.recipe for case in self.cases})

    def faults(self, names: Collection[str]) -> Iterator[str]:
        """Return the problems of some recipes, as they are loaded now."""
        yield from (wrong for _, wrong in self._faults(names))

    def evidence(self, names: Collection[str]) -> Iterator[str]:
        """The same of damaged recipes, without what the recipes as they stand show, too."""
        for case, wrong in self._faults(names):
            if self._tells(case, wrong):
                yield wrong

    def _faults(self, names: Collection[str]) -> Iterator[tuple[RecordedCase, str]]:
        """Return the problems, each with the case that it is of."""
        read = [case for case in self.cases if case.recipe in names]
        for case in read:
            if wrong := case.fault():
                yield case, wrong
        for case in read:
            yield from ((case, wrong) for wrong in self._left_out(case))

    def _left_out(self, case: RecordedCase) -> Iterator[str]:
        known = self.without.get(case.name)
        return _incomplete(case.name, known, self.folder / "without") if known else iter(())

    def _tells(self, case: RecordedCase, wrong: str) -> bool:
        """Return whether a problem is new, of a case that has none as its recipe stands."""
        if case.name not in self._standing:
            with whole():
                known = None if case.problem() else {*self._left_out(case)}
            self._standing[case.name] = known
        known = self._standing[case.name]
        return known is not None and wrong not in known


def _incomplete(name: str, known: Config, folder: Path) -> Iterator[str]:
    """Keys that are read otherwise where they are absent than transformers completes them."""
    config, values = known["config"], tensors({"x": [1]}, 1.0)
    for key, taken in known["taken"].items():
        try:
            with crashes_refuse():
                absent, whole = (
                    _values(written(folder / name / key / place, told, values))
                    for place, told in (
                        ("absent", _without(config, key)),
                        ("whole", _without(config, key, taken)),
                    )
                )
        except MaxtoolError as refusal:
            yield f"{name} without {key}: refused: {refusal}"
            continue
        if other := [each for each in whole if not _agree(absent[each], whole[each], whole)]:
            yield f"{name} without {key}: {other}"


def _without(config: Config, key: str, *value: object) -> Config:
    """A configuration without a key, dotted within a table; or with another value of it."""
    table, _, name = key.rpartition(".")
    inner = dict(config[table] if table else config)
    inner.pop(name, None)  # where it is not written it is completed all the same
    inner.update(zip([name], value, strict=False))
    return {**config, table: inner} if table else inner


def _dotted(config: Config) -> Config:
    """The keys of the tables of a configuration."""
    tables = {name: table for name, table in config.items() if isinstance(table, dict)}
    return {f"{name}.{key}": each for name, table in tables.items() for key, each in table.items()}


def _sized(entries: Config, sizes: Config) -> Config:
    """The entries of a recipe with numbers where the model has them."""
    return {
        entry: {name: tuple(sizes.get(dim, dim) for dim in shape) for name, shape in inputs.items()}
        for entry, inputs in entries.items()
    }


def _agree(absent: object, whole: object, values: Config) -> bool:
    """Return whether two values are one; no width is the model's."""
    width = values.get("hidden_size")
    return same(width if absent is None else absent, whole) or absent is whole


def _values(checkpoint: Checkpoint) -> Config:
    return resolve_config(find_recipe(checkpoint), checkpoint).values


def written(folder: Path, config: Config, values: Config) -> Checkpoint:
    """Return a checkpoint of a configuration, written where there is none yet."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(values, folder / "model.safetensors", {"format": "pt"})
    return open_checkpoint(folder)


def _reading(checkpoint: Checkpoint) -> Reading:
    recipe = find_recipe(checkpoint)
    reading = Reading(checkpoint, recipe, resolve_config(recipe, checkpoint))
    _ = reading.plan
    return reading


def _meaning(reading: Reading) -> str:
    return ours.meaning(reading.plan)


def _writing(reading: Reading) -> str:
    """All that decides what a checkpoint converts to."""
    recipe, values = reading.recipe, reading.values
    shapes = {name: binding.shape for name, binding in reading.plan.parameters.items()}
    keys = list(written_keys(recipe, "hf", values).items())
    return repr((values, keys, emissions(recipe, "hf", values, shapes)))


def _spelled(value: Any) -> Any:
    return SPELLINGS.get(value, value) if isinstance(value, str) else value
