"""Manifests of modules that say something else than was compiled: refused, or harmless."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType
from maxtool.nn import Linear, Module
from maxtool.runtime import loader
from tests.effort import examples

Keys = tuple[str | int, ...]
WEIGHT = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
X = np.ones((4, 4), np.float32)


class Net(Module):
    """Two inputs, which share a size, and two outputs."""

    def __init__(self) -> None:
        self.inner = Linear(4, 5)

    def forward(self, x: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Map ``[n, 4]`` and ``[n]`` by the third row, so that there must be three."""
        return self.inner(x), x[2] + token[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Net()
    net.load_state_dict({"inner.weight": WEIGHT})
    kinds = (TensorType(DType.float32, ["n", 4]), TensorType(DType.float32, ["n"]))
    folder = tmp_path_factory.mktemp("net") / "net"
    net.compile(*kinds).save(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "net"))


def manifest_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


def replace(folder: Path, path: Keys, value: object) -> None:
    root = place = manifest_of(folder)
    *parents, last = path
    for key in parents:
        place = place[key]
    place[last] = value
    (folder / "manifest.json").write_text(json.dumps(root))


def use(folder: Path) -> dict[str, Any]:
    model = loader.load(folder, check=False)
    return model(x=X, token=np.zeros(4, np.float32))


FORWARD: Keys = ("entries", "forward")
STATE = [{"name": "cache", "dtype": "float32", "shape": ["n", 4]}]
REFUSED: dict[str, tuple[Keys, object, str]] = {
    "state": ((*FORWARD, "state"), True, "there is no text, and state"),
    "a buffer": (("state",), STATE, "there is no text, and state"),
    "a task": (("task",), "embed", "whose values have no limit"),
    "another task": (("task",), "classify", "'task' is 'classify'"),
    "no entries": (("entries",), [], "'entries' is missing or wrong"),
    "no function": ((*FORWARD, "function"), "entry_other", "has no function 'entry_other'"),
    "least of nothing": ((*FORWARD, "least"), {"m": 3}, "needs 'm' to be at least 3"),
    "least as text": ((*FORWARD, "least"), {"n": "3"}, "'least' is"),
    "least below 0": ((*FORWARD, "least"), {"n": -1}, "'least' is"),
    "an element type": ((*FORWARD, "inputs", 0, "dtype"), "float128", "tensor 'x' is 'float128'"),
    "an empty shape": ((*FORWARD, "inputs", 0, "shape"), ["n", 0], "tensor 'x' is"),
    "a negative size": ((*FORWARD, "inputs", 0, "shape"), [-1, 4], "tensor 'x' is"),
    "one name twice": ((*FORWARD, "inputs", 1, "name"), "x", "names a tensor twice"),
    "no name": ((*FORWARD, "outputs", 0, "name"), "", "'' of 'forward' is not the name of"),
    "a path": ((*FORWARD, "outputs", 0, "name"), "y/../z", "'y/../z' of 'forward' is not the name"),
    "a colour": ((*FORWARD, "inputs", 1, "name"), "\x1b[31m", "is not the name of an array"),
    "a default": ((*FORWARD, "inputs", 1, "default"), 7, "cannot be filled in"),
    "no such weight": (("tables",), [{"weight": "w", "index": "x", "skipped": 0}], "'tables' has"),
    "a weight elsewhere": (("weights", "tensors", 0, "offset"), 64, "can only be at 0"),
    "another width": ((*FORWARD, "inputs", 0, "shape"), ["n", 5], "the model takes x"),
    "another type": ((*FORWARD, "inputs", 0, "dtype"), "float64", "refused the call"),
    "another output": ((*FORWARD, "outputs", 0, "shape"), ["n", 6], "the manifest says"),
    "fewer outputs": ((*FORWARD, "outputs"), [], "the manifest says"),
    "a file outside": (("module",), "../model.so", "lies outside the folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_manifest_that_lies(folder: Path, case: str) -> None:
    path, value, says = REFUSED[case]
    replace(folder, path, value)
    with pytest.raises(loader.RunError) as caught:
        use(folder)
    error = caught.value
    assert says in " ".join([error.what, *error.problems])


def test_names_of_decoders_mean_nothing_here(folder: Path) -> None:
    """An input called as token ids are is checked by its type, and nothing else."""
    assert [spec.name for spec in loader.load(folder).entry("forward").inputs] == ["x", "token"]
    np.testing.assert_allclose(use(folder)["output_0"], X @ WEIGHT.T, rtol=1e-5)
    replace(folder, (*FORWARD, "inputs", 1, "name"), "input_ids")
    model = loader.load(folder, check=False)
    assert model(x=X, input_ids=np.zeros(4, np.float32))["output_1"].shape == (4,)
    with pytest.raises(loader.DoesNotFit, match="n is 2; the model takes at least 3"):
        model(x=X[:2], input_ids=np.zeros(2, np.float32))


def paths(value: object, path: Keys = ()) -> Iterator[Keys]:
    """Yield the path of each value of a JSON object, but for those that nothing depends on."""
    for key, child in children(value):
        yield (*path, key)
        if path or key not in {"files", "build", "check"}:
            yield from paths(child, (*path, key))


def children(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, dict):
        yield from value.items()
    if isinstance(value, list):
        yield from enumerate(value)


def test_anything_replaced_by_anything(folder: Path) -> None:
    """Refuse it with an error of the loader, or compute the same as before."""
    text = (folder / "manifest.json").read_text()
    expected = use(folder)
    anything = (
        st.none()
        | st.booleans()
        | st.integers(-2, 9)
        | st.sampled_from([2**31, 2**48, 2**63, -(2**63)])
        | st.text(max_size=3)
        | st.just([])
        | st.just({})
    )

    @settings(max_examples=examples(80, 600), deadline=None)
    @given(st.sampled_from(sorted(paths(json.loads(text)), key=str)), anything)
    def change(path: Keys, value: object) -> None:
        (folder / "manifest.json").write_text(text)
        replace(folder, path, value)
        try:
            results = use(folder)
        except loader.RunError:
            return
        for name, array in results.items():
            np.testing.assert_array_equal(array, expected.get(name, array))

    change()
