"""Artifacts whose state has slots: texts side by side are what they are one after the other."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import artifact
from maxtool.dtype import DType
from maxtool.errors import MachineLacks, UsageError
from maxtool.runtime import loader
from maxtool.runtime.loader.manifest import CHECKSUM
from tests.artifact.measure import BOUND, Compile, error
from tests.effort import thinned

SLOTS = 3
BFLOAT16 = 2e-2  # how much rounding of activations to 8 bits may change logits
# Full caches, windows, learned positions, experts, and rotations that depend on the length.
MODELS = ("tiny-llama", "tiny-mistral", "tiny-gpt2", "tiny-mixtral", "tiny-phi3-longrope")
rng = np.random.default_rng(5)
PROMPTS = [rng.integers(3, 60, length).tolist() for length in (5, 1, 12, 3, 9, 2, 7)]
DRAWN = loader.Sampling(temperature=1.2, top_k=20, seed=11)


@pytest.fixture(scope="module")
def folder(compiled: Compile, data: Path) -> Path:
    return compiled(data / "tiny-llama", batch=SLOTS)


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("name", thinned(list(MODELS), *MODELS[1:3]))
def test_texts_side_by_side_are_those_alone(compiled: Compile, data: Path, name: str) -> None:
    """Greedy and drawn, with slots and one after the other; the latter by another artifact."""
    many = loader.load(compiled(data / name, batch=SLOTS))
    single = loader.load(compiled(data / name))
    prompts = [
        loader.Prompt(ids, 10 + i, (DRAWN, loader.Sampling())[i % 2])
        for i, ids in enumerate(PROMPTS)
    ]
    alone = {one.index: one for one in loader.generate_many(single, prompts)}
    assert list(alone) == list(range(len(prompts)))
    together = {one.index: one for one in loader.generate_many(many, prompts)}
    assert together.keys() == alone.keys()
    for index, one in together.items():
        assert (one.ids, one.stopped) == (alone[index].ids, alone[index].stopped)
        assert len(one.ids) == 10 + index or one.stopped in ("end", "context")
    assert list(many.generate(PROMPTS[0], 8)) == list(single.generate(PROMPTS[0], 8))


@pytest.mark.long
def test_logits_of_each_row(compiled: Compile, data: Path, folder: Path) -> None:
    """Rows in any order, a slot that is idle, and one that begins anew."""
    model, single = loader.load(folder), loader.load(compiled(data / "tiny-llama"))
    state, texts = model.new_state(), {0: PROMPTS[0], 2: PROMPTS[2], 1: PROMPTS[4]}

    def expected(ids: list[int]) -> np.ndarray:
        return single(input_ids=[ids])["logits"][0, -1]

    def read(slot: int, ids: list[int]) -> None:
        places = {"position": np.zeros(1, "i4"), "slot": np.array([slot], "i4")}
        logits = model.run("prefill", {"input_ids": [ids], **places}, state)["logits"]
        assert error(logits[0], expected(ids)) <= BOUND
        texts[slot] = list(ids)

    for slot in (2, 0):
        read(slot, texts[slot])
    for slots in ([0, 2], [2], [2, 0], [1, 2], [0, 1, 2]):
        if 1 in slots and state.lengths[1] == 0:
            read(1, texts[1])
        places = {
            "position": np.array([len(texts[slot]) for slot in slots], "i4"),
            "slot": np.array(slots, "i4"),
        }
        logits = model.run("decode", {"input_ids": [[7]] * len(slots), **places}, state)["logits"]
        for slot, row in zip(slots, logits, strict=True):
            texts[slot].append(7)
            assert error(row, expected(texts[slot])) <= BOUND
    assert state.lengths == [len(texts[slot]) for slot in range(SLOTS)]


def test_prompts_are_taken_when_there_is_a_slot(folder: Path) -> None:
    model, taken = loader.load(folder), []

    def prompts() -> Iterator[list[int]]:
        for index, ids in enumerate(PROMPTS):
            taken.append(index)
            yield ids

    results = loader.generate_many(model, prompts(), 4)
    first = next(results)
    assert len(taken) == SLOTS
    assert first.stopped in ("length", "end")
    assert sorted([first.index, *(one.index for one in results)]) == [*range(len(PROMPTS))]


@pytest.mark.long
def test_bfloat16_rows_together_are_close_to_those_alone(compiled: Compile, data: Path) -> None:
    """Activations are rounded where CPUs multiply pairs, and there is more than one row."""
    folder = compiled(data / "tiny-llama", batch=SLOTS, dtype=DType.bfloat16)
    model = loader.load(folder)
    state, texts = model.new_state(), (PROMPTS[0], PROMPTS[4])

    def logits(entry: str, slots: list[int], ids: list[list[int]], start: list[int]) -> Any:
        places = {"position": np.array(start, "i4"), "slot": np.array(slots, "i4")}
        return model.run(entry, {"input_ids": ids, **places}, state)["logits"]

    for slot, ids in enumerate(texts):
        logits("prefill", [slot], [ids], [0])
    ends = [len(ids) for ids in texts]
    alone = [logits("decode", [slot], [[7]], [ends[slot]])[0].copy() for slot in (0, 1)]
    together = logits("decode", [0, 1], [[7], [7]], ends)
    for row, expected in zip(together, alone, strict=True):
        assert error(row, expected) <= BFLOAT16


def test_texts_go_on_while_prompts_are_refused(folder: Path) -> None:
    prompts = itertools.chain(PROMPTS[:1], itertools.repeat([]))
    results = loader.generate_many(loader.load(folder), prompts, 4)
    first = [next(results) for _ in range(10)]
    assert 0 in [one.index for one in first]


def test_a_prompt_that_cannot_be_continued_is_told_of_alone(folder: Path) -> None:
    model = loader.load(folder)
    context = model.manifest.context
    assert context is not None
    prompts: list[Any] = [[5], [], [5] * (context + 1), [10**6], [5] * context, [6, 7]]
    prompts += [
        loader.Prompt([5], sampling=loader.Sampling(temperature=-1.0)),
        loader.Prompt([5], -1),
    ]
    found = {one.index: one for one in loader.generate_many(model, prompts, 3)}
    wrong = {index: str(one.error) for index, one in found.items() if one.error}
    assert wrong.keys() == {1, 2, 3, 6, 7}
    assert "is empty" in wrong[1]
    assert f"the context of the model holds {context}" in wrong[2]
    assert "takes 0 to" in wrong[3]
    assert "temperature" in wrong[6]
    assert {found[index].stopped for index in wrong} == {"error"}
    assert found[4].stopped == "context"
    assert len(found[4].ids) == 1


@pytest.mark.long
def test_many_slots_reach_the_kernels_of_many_rows(compiled: Compile, data: Path) -> None:
    """Sums are in another order there, so what is picked from may differ in the last digits."""
    model = loader.load(compiled(data / "tiny-llama", batch=70))
    single = loader.load(compiled(data / "tiny-llama"))
    texts = [rng.integers(3, 60, 1 + i % 9).tolist() for i in range(70)]
    state, slots = model.new_state(), np.arange(70, dtype="i4")[::-1]
    for slot, ids in zip(slots, texts, strict=True):
        places = {"position": np.zeros(1, "i4"), "slot": np.array([slot])}
        model.run("prefill", {"input_ids": [ids], **places}, state)
    places = {"position": np.array([len(ids) for ids in texts], "i4"), "slot": slots}
    logits = model.run("decode", {"input_ids": [[5]] * 70, **places}, state)["logits"]
    for ids, row in zip(texts, logits, strict=True):
        assert error(row, single(input_ids=[[*ids, 5]])["logits"][0, -1]) <= BOUND


REFUSED = {
    "a slot twice": ({"slot": [1, 1]}, "is named twice"),
    "a slot behind the last": ({"slot": [0, SLOTS]}, "slot has values from 0 to 3"),
    "a slot before the first": ({"slot": [-1, 0]}, "slot has values from -1"),
    "a position behind the context": ({"position": [0, 10**6]}, "beyond the context"),
    "a position before the first": ({"position": [0, -1]}, "beyond the context"),
    "a position too few": ({"position": [0]}, "shape"),
    "no slot": ({"slot": None}, "missing slot"),
    "more rows than slots": (
        {"slot": [0, 1, 2, 0], "position": [0] * 4, "input_ids": [[1]] * 4},
        "is named twice",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_places_outside_the_state_are_refused(folder: Path, case: str) -> None:
    changes, says = REFUSED[case]
    model = loader.load(folder)
    arrays: dict[str, Any] = {"input_ids": [[1], [2]], "position": [0, 0], "slot": [0, 1]} | changes
    arrays = {name: value for name, value in arrays.items() if value is not None}
    with pytest.raises(loader.RunError, match=says):
        model.run("decode", arrays)


@pytest.mark.long
def test_a_window_is_lost_slot_by_slot(compiled: Compile, data: Path) -> None:
    model = loader.load(compiled(data / "tiny-mistral", batch=2))
    state = model.new_state()

    def read(slot: int, ids: list[int], position: int) -> None:
        places = {"position": np.array([position], "i4"), "slot": np.array([slot], "i4")}
        model.run("prefill", {"input_ids": [ids], **places}, state)

    read(0, PROMPTS[2], 0)
    read(1, PROMPTS[0], 0)
    read(1, [5], 3)
    with pytest.raises(loader.DoesNotFit, match="nothing can be read at position 3"):
        read(0, [5], 3)


def changed(folder: Path, to: Path, **values: Any) -> Path:
    shutil.copytree(folder, to)
    root = json.loads((to / "manifest.json").read_text()) | values
    del root[CHECKSUM]
    (to / "manifest.json").write_text(json.dumps(root))
    return to


def test_a_manifest_that_lies_about_its_slots(folder: Path, tmp_path: Path) -> None:
    root = json.loads((folder / "manifest.json").read_text())
    swapped = json.loads(json.dumps(root["entries"]))
    for entry in ("prefill", "decode"):
        swapped[entry]["inputs"][1:] = swapped[entry]["inputs"][:0:-1]
    unnamed = json.loads(json.dumps(root["entries"]))
    unnamed["decode"]["inputs"] = unnamed["decode"]["inputs"][:2]
    lies: list[dict[str, Any]] = [
        {"batch": SLOTS + 1},
        {"batch": None},
        {"batch": 1},
        {"batch": 2**40},
        {"batch": True},
        {"batch": -1},
        {"limits": root["limits"] | {"slot": [0, SLOTS]}},
        {"limits": root["limits"] | {"slot": [-1, SLOTS - 1]}},
        {"limits": {k: v for k, v in root["limits"].items() if k != "slot"}},
        {"entries": swapped},
        {"entries": unnamed},
        {"state": [spec | {"shape": ["batch", *spec["shape"][1:]]} for spec in root["state"]]},
    ]
    for number, lie in enumerate(lies):
        with pytest.raises(loader.BadInput):
            loader.Manifest(changed(folder, tmp_path / str(number), **lie))


@pytest.mark.long
def test_the_program(compiled: Compile, sample: Path, tmp_path: Path) -> None:
    program = compiled(sample, batch=2) / "run.py"
    file = tmp_path / "prompts.txt"
    file.write_text(
        'Once upon a time\n{"prompt": "The dog", "id": 7, "max_tokens": 2}\n{"x": 1}\nOne day'
    )
    command = [sys.executable, program, "--prompts", file, "--max-tokens", "9", "--no-verify"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "1 of 4 prompts could not be continued" in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["index"] for one in found] == [0, 1, 2, 3]
    assert {one["schema"] for one in found} == {"maxtool.completion/1"}
    assert [len(one.get("ids", ())) for one in found] == [9, 2, 0, 9]
    assert [one["stopped"] for one in found] == ["length", "length", "error", "length"]
    assert found[1]["id"] == 7
    model = loader.load(compiled(sample), check=False)
    alone = list(model.generate(model.encode("Once upon a time"), 9))
    assert found[0]["ids"] == alone


def test_texts_that_run_end_where_the_file_cannot_be_read_on(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes(b'{"ids": [5]}\n{"ids": [6]}\n{\n\xff\n{"ids": [7]}\n')
    command = [sys.executable, folder / "run.py", "--prompts", file, "--max-tokens", "4", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("error: no UTF-8 text in line 4\n")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["stopped"] for one in found] == ["length", "length", "error"]


def test_what_has_no_slots_is_refused(data: Path, tmp_path: Path) -> None:
    def plan(source: Path, **options: Any) -> None:
        artifact.prepare(artifact.Request(source, tmp_path / "none", **options))

    for batch in (0, -1, 4097):
        with pytest.raises(UsageError, match="is not from 1 to 4096"):
            plan(data / "tiny-llama", batch=batch)
    with pytest.raises(UsageError, match="--batch is for CPUs"):
        plan(data / "tiny-llama", batch=2, target="cuda:sm_80")
    with pytest.raises(UsageError, match="--batch is for models that write texts"):
        plan(data / "tiny-bert", batch=2)


def test_more_slots_than_the_memory_holds_are_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 1 if name == "SC_PHYS_PAGES" else 4096)
    with pytest.raises(MachineLacks, match=r"the caches of 8 texts take .* this machine has 0 MiB"):
        artifact.prepare(artifact.Request(data / "tiny-llama", tmp_path / "none", batch=8))


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(list(MODELS), "tiny-mistral"))
def test_check_passes(data: Path, tmp_path: Path, name: str) -> None:
    request = artifact.Request(data / name, tmp_path / "model", batch=SLOTS, check=True)
    report = artifact.make(artifact.prepare(request))
    assert report.check is not None
    names = [trial.name for trial in report.check.trials.each]
    assert "prefill and decode" in names
