"""Recipes of encoders held against every recording of their classifiers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from gguf import GGUFReader
from safetensors.numpy import load_file

from maxtool.conversion import Request, convert, prepare
from maxtool.recipe import load_recipe, plan
from maxtool.weights import open_checkpoint
from tests.data.seeded import Config, classified_inputs
from tests.parity.traced import TracedModel
from tests.variants.cases import Reading
from tests.variants.recorded_faults import RecordedCase, Recordings, written

# The tensors of heads in GGUF, and those of transformers that llama.cpp's converter takes for them.
TENSORS: Mapping[str, Mapping[str, str]] = {
    "roberta": {"cls": "classifier.dense", "cls.output": "classifier.out_proj"},
    "modernbert": {"cls": "head.dense", "cls.norm": "head.norm", "cls.output": "classifier"},
}
LABELS = "{}.classifier.output_labels"
ARCHITECTURES = {"roberta": "bert", "modernbert": "modern-bert"}
IN_GGUF = ("Roberta-0", "Roberta-1", "Roberta-3", "ModernBert-0", "ModernBert-3", "ModernBert-11")
# The key before that of the labels.
BEFORE = {"roberta": "bert.attention.causal", "modernbert": "modern-bert.classifier.pooling_type"}


class ClassifierCase(RecordedCase):
    """One recorded configuration of an encoder with a classifier."""

    recordings = Recordings("classifiers.npz")
    said = ()
    prefixes = ("bert.", "roberta.", "distilbert.", "electra.", "model.", "mpnet.", "deberta.")
    prefixes += ("gte.",)

    def outputs(self) -> Config:
        """The logits."""
        model = TracedModel(self.checkpoint)
        found = model.run("classify", classified_inputs(self.known["config"]["model_type"]))
        return {f"classify.{output}": array for output, array in found.items()}

    def sizes(self, values: Config) -> Config:
        """The sizes that its entries have names for: none but those of a call."""
        return {**values, "batch": "batch", "seq": "seq"}

    def unread(self, config: Config) -> Collection[str]:  # noqa: ARG002 - of all cases
        """The numbers of labels by their names: transformers makes them of the names."""
        return {"label2id"}

    def problem(self) -> str | None:
        """Return what is wrong with the recipe as it stands, in GGUF too."""
        return super().problem() or next(self._gguf_problems(), None)

    def _wrong(self, reading: Reading) -> str | None:
        return super()._wrong(reading) or next(self._gguf_problems(), None)

    def _gguf_problems(self) -> Iterator[str]:
        """Yield what is wrong with the head in the GGUF file that the case becomes."""
        if self.name not in IN_GGUF:
            return
        output = self.folder / "x.gguf"
        output.unlink(missing_ok=True)
        convert(prepare(Request(self.checkpoint.path, output)))
        file = GGUFReader(output)
        found = {each.name: each.data for each in file.tensors if each.name.startswith("cls")}
        if found.keys() != (expected := self._head).keys():
            yield f"the head in GGUF is {sorted(found)}"
            return
        for name, array in expected.items():
            if not np.array_equal(found[name], array):
                yield f"another {name} in GGUF"
        names = file.get_field(LABELS.format(ARCHITECTURES[self.recipe]))
        labels = None if names is None else names.contents()
        usual = [*self.usual.values["labels"]] if self.usual.values["labels"] else None
        if labels != usual:
            yield f"the labels in GGUF are {labels}"
        keys = [*file.fields]
        label = LABELS.format(ARCHITECTURES[self.recipe])
        if label in keys and keys[keys.index(label) - 1] != BEFORE[self.recipe]:
            yield f"the keys in GGUF are {keys}"
        if self.known["config"].get("classifier_bias"):
            bare = {
                name: shape for name, shape in self.known["shapes"].items() if "class" not in name
            }
            headless = written(self.folder / "headless", self.known["config"], self.tensors(bare))
            convert(prepare(Request(headless.path, self.folder / "headless.gguf", force=True)))
        read = plan(load_recipe(self.recipe), open_checkpoint(output))
        read.check()
        if read.config["n_labels"] != self.usual.values["n_labels"]:
            yield f"read from GGUF as {read.config['n_labels']} labels"

    @property
    def _head(self) -> Config:
        """The tensors of the head by their names in GGUF."""
        source = load_file(self._source / "model.safetensors")
        return {
            f"{ours}.{part}": source[f"{theirs}.{part}"]
            for ours, theirs in TENSORS[self.recipe].items()
            for part in ("weight", "bias")
            if f"{theirs}.{part}" in source
        }
