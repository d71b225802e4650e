"""A manifest that says something else than the code was compiled for is refused, or harmless.

Compiled code checks no position and no token id: what the manifest lets pass, it reads and writes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.runtime import loader
from maxtool.runtime.loader.manifest import CHECKSUM
from tests.artifact.measure import Compile
from tests.effort import examples

# Rotary positions and a cache, or one of some layers' windows; learned positions with two types of
# tokens; rows that are skipped.
SOURCES = ("tiny-llama", "tiny-gemma2", "tiny-bert", "tiny-roberta")
SLOTS = 3
# What nothing is computed from.
FACTS = {"files", "build", "check", "tokenizer"}
Path_ = tuple[str | int, ...]


def numbers(value: object, path: Path_ = ()) -> Iterator[tuple[Path_, int]]:
    """Every number in a JSON value, and where it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield path, value
    children: Any = value.items() if isinstance(value, dict) else ()
    children = enumerate(value) if isinstance(value, list) else children
    for key, child in children:
        if path or key not in FACTS:
            yield from numbers(child, (*path, key))


def replaced(root: dict[str, Any], path: Path_, value: object) -> dict[str, Any]:
    """A copy with another value at one place."""
    result: Any = json.loads(json.dumps(root))
    *parents, last = path
    place = result
    for key in parents:
        place = place[key]
    place[last] = value
    return dict(result)


def around(number: int) -> st.SearchStrategy[int]:
    """Numbers that a mistake, or malice, would put in the place of one."""
    near = st.sampled_from([number - 1, number + 1, number * 2, number + 31, number // 2])
    return near | st.sampled_from([0, -1, 1, 2**31, 2**48, 2**63]) | st.integers()


def use(model: loader.Model) -> None:
    """Calls at the ends of what the manifest allows."""
    limits, entries = model.manifest.limits, model.manifest.entries
    ids, length = limits["input_ids"], limits["seq"]
    assert isinstance(ids, tuple)
    assert isinstance(length, int)
    for token in ids:
        model(input_ids=[[token] * length])
    if "embed" in entries:
        model.embed([[*ids]])
    else:
        list(model.generate([ids[1]] * (length - 1), 2))
        assert model.manifest.context is not None
        batch = model.manifest.batch
        places = {"position": [model.manifest.context - 1] * batch}
        places |= {"slot": [*range(batch)]} if batch > 1 else {}
        model.run("decode", {"input_ids": [[ids[1]]] * batch, **places})
        list(loader.generate_many(model, [[ids[1]] * (length - 1)] * (batch + 1), 2))


def reach(manifest: loader.Manifest) -> dict[str, object]:
    """Return the manifest's limits, the context and rows of tables, and their sources."""
    tables = {table.index for table in manifest.tables} - {"context"}
    return {
        "context": manifest.context,
        "length": manifest.limits["seq"],
        "rows": {name: manifest.limits[name] for name in sorted(tables)},
        "weights": [(spec.offset, spec.shape) for spec in manifest.weights],
    }


def is_within(manifest: loader.Manifest, whole: loader.Manifest) -> bool:
    """Return whether a manifest lets no more pass than another."""
    less, more = reach(manifest), reach(whole)
    rows: Any = less["rows"]
    return (
        less["context"] <= more["context"]  # type: ignore[operator]
        and less["length"] <= more["length"]  # type: ignore[operator]
        and all(0 <= low <= high <= whole.limits[name][1] for name, (low, high) in rows.items())  # type: ignore[index]
        and less["weights"] == more["weights"]
    )


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in SOURCES), ("tiny-gemma2", {"batch": SLOTS})]
)
def test_any_number_replaced_by_another(
    compiled: Compile, data: Path, tmp_path: Path, name: str, options: dict[str, int]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(compiled(data / name, **options), folder)
    whole = loader.Manifest(folder)
    places = list(numbers(whole.root))

    @settings(max_examples=examples(60, 250), deadline=None)
    @given(st.sampled_from(places).flatmap(lambda at: st.tuples(st.just(at[0]), around(at[1]))))
    def change(chosen: tuple[Path_, int]) -> None:
        text = json.dumps(replaced(whole.root, *chosen))
        (folder / "manifest.json").write_text(text, encoding="utf-8")
        try:
            model = loader.load(folder, check=False)
            assert is_within(model.manifest, whole)
            use(model)
        except loader.RunError:
            pass

    change()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("limits", "token_type_ids", 0), -1),
        (("limits", "token_type_ids", 0), -(2**31)),
        (("limits", "token_type_ids", 1), 2),
        (("limits", "input_ids", 0), -1),
        (("entries", "forward", "inputs", 1, "dtype"), "float32"),
    ],
)
def test_limits_beyond_what_they_limit(
    compiled: Compile, data: Path, tmp_path: Path, path: Path_, value: object
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(compiled(data / "tiny-bert"), folder)
    root = replaced(loader.Manifest(folder).root, path, value)
    (folder / "manifest.json").write_text(json.dumps(root), encoding="utf-8")
    with pytest.raises(loader.BadInput, match="contradicts itself") as caught:
        loader.Manifest(folder)
    assert caught.value.exit_code == 3


def test_a_state_that_no_memory_holds(compiled: Compile, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(compiled(data / "tiny-llama"), folder)
    root = loader.Manifest(folder).root
    root["state"][0]["shape"][1] = 2**31
    (folder / "manifest.json").write_text(json.dumps(root), encoding="utf-8")
    with pytest.raises(loader.MachineLacks, match="too little memory"):
        loader.load(folder, check=False).new_state(batch=1)


@pytest.mark.long
@pytest.mark.parametrize("name", SOURCES)
def test_several_numbers_that_agree(
    compiled: Compile, data: Path, tmp_path: Path, name: str
) -> None:
    """A longer context everywhere that the manifest says it; another size of the vocabulary."""
    folder = tmp_path / "model"
    shutil.copytree(compiled(data / name), folder)
    root = loader.Manifest(folder).root
    low, high = root["limits"]["input_ids"]
    beyond = root["context"] * 4
    lies = (
        {"context": beyond, "limits": root["limits"] | {"seq": beyond}},
        {"vocab_size": high + 100, "limits": root["limits"] | {"input_ids": [low, high + 99]}},
    )
    for lie in lies:
        changed = root | lie
        changed |= {CHECKSUM: loader.checksum(changed)}
        (folder / "manifest.json").write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(loader.BadInput, match="contradicts itself"):
            loader.load(folder)


def test_missing_parts(compiled: Compile, data: Path, tmp_path: Path) -> None:
    """Each part that is left out is refused when it is loaded, or when it would be used."""
    folder = tmp_path / "model"
    shutil.copytree(compiled(data / "tiny-llama"), folder)
    root = loader.Manifest(folder).root
    kept = {"state": 3, "weights": 4}
    parts = [*((key,) for key in root), *(("entries", name) for name in root["entries"])]
    for *parents, last in parts:
        changed = json.loads(json.dumps(root))
        holder = changed[parents[0]] if parents else changed
        del holder[last]
        (folder / "manifest.json").write_text(json.dumps(changed), encoding="utf-8")
        try:
            use(loader.load(folder, check=False))
        except loader.RunError:
            continue
    for name, count in kept.items():
        changed = json.loads(json.dumps(root))
        short = changed[name]["tensors"] if name == "weights" else changed[name]
        del short[count:]
        (folder / "manifest.json").write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(loader.RunError):
            use(loader.load(folder, check=False))
