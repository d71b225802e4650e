"""The loader as a module: calls, state, sampling and the stream of text."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxtool import tokenizer as room
from maxtool.runtime import loader
from maxtool.runtime.loader import host, memory, sampling, stream

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
CONTEXT, VOCAB = tiny_artifact.CONTEXT, tiny_artifact.VOCAB


@pytest.fixture
def model(artifact: Path) -> loader.Model:
    return loader.load(artifact)


def test_a_copy_loads_its_own_folder(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("run", artifact / "run.py")
    assert spec is not None
    assert spec.loader is not None
    run: ModuleType = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run", run)
    spec.loader.exec_module(run)
    assert run.load()(input_ids=[[1, 2]])["logits"].shape == (1, 2, VOCAB)
    sampling = run.Sampling(temperature=1.0, seed=3)
    prompt = run.Prompt(tiny_artifact.PROMPT, 2, sampling, stops="no such end")
    (drawn,) = run.generate_many(run.load(), [prompt])
    one, *rest = run.generate_many(
        run.load(), tiny_artifact.PROMPT, 2, stops="no such end", sampling=sampling
    )
    assert (one.ids, len(one.ids), rest) == (drawn.ids, 2, [])


def test_state_is_written_in_place_and_kept(model: loader.Model) -> None:
    state = model.new_state(batch=2)
    first = model.run("prefill", {"input_ids": [[9, 8], [5, 4]], "position": [0]}, state)
    second = model.run("decode", {"input_ids": [[7], [3]], "position": [2]}, state)
    assert state.arrays[0][:, :4].tolist() == [[9, 8, 7, 0], [5, 4, 3, 0]]
    difference = second["logits"][0] - second["logits"][1]
    np.testing.assert_allclose(difference, 4.0, atol=1e-5)
    assert first["logits"].shape == (2, VOCAB)
    fresh = model.run("decode", {"input_ids": [[7]], "position": [2]})["logits"]
    np.testing.assert_allclose(second["logits"][0] - fresh[0], 9.0, atol=1e-5)


def test_every_array_is_aligned(model: loader.Model) -> None:
    state = model.new_state(batch=1)
    assert all(array.ctypes.data % 64 == 0 for array in state.arrays)
    for _ in range(20):
        assert memory.aligned((3, 5), np.dtype(np.int8)).ctypes.data % 64 == 0


def test_sizes_that_disagree(model: loader.Model) -> None:
    with pytest.raises(loader.BadInput, match="unknown mask"):
        model(input_ids=[[1]], mask=[1])


def test_a_state_of_something_else(model: loader.Model, artifact: Path) -> None:
    arrays = {"input_ids": [[1]], "position": [0]}
    for state in (model.new_state(batch=3), loader.load(artifact).new_state(batch=1)):
        with pytest.raises(loader.DoesNotFit, match="state is of another"):
            model.run("decode", arrays, state)
    for dims in ({}, {"batch": 0}):
        with pytest.raises(loader.BadUsage, match="needs the sizes of batch"):
            model.new_state(**dims)


def test_threads_share_a_model(artifact: Path) -> None:
    """Run in a process of its own: without a lock it does not raise, it dies."""
    done = subprocess.run(
        [sys.executable, "-c", THREADS, str(artifact)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "True\n")


THREADS = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import run
model = run.load()
prompts = [[3, 4, token] for token in range(8)]
alone = [list(model.generate(ids, 20)) for ids in prompts]
same = []
def work(place):
    same.extend(list(model.generate(prompts[place], 20)) == alone[place] for _ in range(40))
threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(same) == 320 and all(same))
"""


def test_integers_are_widened_and_nothing_is_narrowed(model: loader.Model) -> None:
    small = model(input_ids=np.array([[1, 2]], np.uint8))["logits"]
    np.testing.assert_array_equal(small, model(input_ids=[[1, 2]])["logits"])
    strided = np.arange(8)[None, ::2]
    expected = model(input_ids=strided.copy())["logits"]
    np.testing.assert_array_equal(model(input_ids=strided)["logits"], expected)
    with pytest.raises(loader.BadInput, match="float32"):
        model(input_ids=np.ones((1, 2), np.float32))


def test_generate_and_text(model: loader.Model, ids: dict[str, list[int]]) -> None:
    assert model.encode("Once upon a time") == ids["prompt"]
    assert list(model.generate(ids["prompt"])) == ids["story"]
    assert model.decode([*ids["prompt"], *ids["story"]]).startswith("Once upon a time, there")
    assert list(model.generate(ids["prompt"], 0)) == []
    assert list(model.generate(np.array(ids["prompt"]), 2)) == ids["story"][:2]


def test_weights_are_not_copied(artifact: Path) -> None:
    """The mapped pages are the file's: a later change of the file shows in the results."""
    model, file = loader.load(artifact), artifact / "weights.bin"
    before = file.stat()
    with file.open("r+b") as stream:
        stream.write(np.full(1, 123.0, np.float32).tobytes())
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # else it would be noticed
    assert model(input_ids=[[0]])["logits"][0, 0, 0] == 123.0


@pytest.mark.skipif(not HUGE_PAGES.is_dir(), reason="no transparent huge pages here")
def test_weights_are_mapped_in_huge_pages(artifact: Path) -> None:
    """The system is asked for them; whether it has some is its own business."""
    model = loader.load(artifact)
    mappings = Path("/proc/self/smaps").read_text().partition(str(artifact / "weights.bin"))[2]
    flags = next(line for line in mappings.splitlines() if line.startswith("VmFlags:"))
    assert "hg" in flags.split()
    assert model.manifest.weights  # which are mapped as long as there is a model


def chooser(**options: Any) -> Callable[[np.ndarray[Any, Any]], int]:
    """A chooser that has seen nothing before."""
    choose = loader.TokenSampler(loader.Sampling(**options))
    return lambda logits: choose(logits, [])


def probabilities(chosen: Sequence[int]) -> dict[int, float]:
    return {i: chosen.count(i) / len(chosen) for i in set(chosen)}


def test_sampling_follows_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    draw = chooser(temperature=1.0, seed=0)
    actual = probabilities([draw(logits) for _ in range(20_000)])
    for i, expected in enumerate([0.5, 0.3, 0.15, 0.05]):
        assert abs(actual[i] - expected) < 0.015
    draw = chooser(temperature=1.0, top_k=2, seed=0)
    assert probabilities([draw(logits) for _ in range(500)]).keys() == {0, 1}
    draw = chooser(temperature=1.0, top_p=0.9, seed=0)
    assert probabilities([draw(logits) for _ in range(500)]).keys() == {0, 1, 2}
    draw = chooser(temperature=1.0, top_p=0.1, seed=0)
    assert {draw(logits) for _ in range(50)} == {0}
    hot = chooser(temperature=2.0, seed=0)
    flat = probabilities([hot(logits) for _ in range(20_000)])
    root = np.sqrt([0.5, 0.3, 0.15, 0.05])
    assert abs(flat[3] - root[3] / root.sum()) < 0.015


CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "sampling.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["options"]))
def test_tokens_are_drawn_as_in_transformers(case: dict[str, Any]) -> None:
    options = loader.Sampling(**{"temperature": 1.0, **case["options"]})
    logits = np.array(case["logits"], np.float32)
    logits = sampling.penalised(logits, case["before"], options.repetition_penalty)
    tokens, shares = sampling.distribution(logits, options)
    result = np.zeros(logits.size)
    result[tokens] = shares
    assert (np.diff(logits[tokens]) <= 0).all()
    # Of equals at the end of a share either may be kept: torch's order of them is its own.
    np.testing.assert_allclose(np.sort(result), np.sort(case["shares"]), atol=1e-6)


@given(
    hnp.arrays(
        np.float32,
        st.integers(1, 60),
        elements=st.one_of(
            st.sampled_from([0.0, -0.0, 1.0, -1.0, -np.inf]),
            st.floats(width=32, allow_nan=False, allow_infinity=False),
        ),
    )
)
def test_the_order_of_logits(logits: np.ndarray[Any, Any]) -> None:
    logits = np.append(logits, np.finfo(np.float32).max)  # of which one is finite
    tokens, _ = sampling.distribution(logits, loader.Sampling(temperature=1.0))
    assert tokens.tolist() == np.argsort(-logits, kind="stable").tolist()


def test_a_seed_repeats_what_is_drawn() -> None:
    logits = np.zeros(1000, np.float32)
    drawn = [[draw(logits) for _ in range(8)] for draw in map(seeded, (5, 5, 6))]
    assert drawn[0] == drawn[1] != drawn[2]


def seeded(seed: int) -> Callable[[np.ndarray[Any, Any]], int]:
    return chooser(temperature=1.0, seed=seed)


def test_min_p_is_a_share_of_the_best() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    for min_p, drawn in ((0.0, {0, 1, 2, 3}), (0.2, {0, 1, 2}), (0.5, {0, 1}), (1.0, {0})):
        draw = chooser(temperature=1.0, min_p=min_p, seed=0)
        assert {draw(logits) for _ in range(500)} == drawn


def test_the_penalty_is_for_what_was_seen() -> None:
    logits = np.array([3.0, 2.9, -1.0, -1.1], np.float32)
    choose = loader.TokenSampler(loader.Sampling(repetition_penalty=1.2))
    assert choose(logits, []) == 0
    assert choose(logits, [0, 0]) == 1
    assert choose(logits, [0, 1]) == 0
    assert choose(logits[2:], [0]) == 1
    assert logits[0] == 3.0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", -1.0),
        ("temperature", np.nan),
        ("top_k", 0),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", np.nan),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", np.inf),
        ("seed", -1),
    ],
)
def test_options_out_of_range(option: str, value: float) -> None:
    with pytest.raises(loader.BadUsage, match=option.replace("_", "-")):
        chooser(**{option: value})


@given(st.text("abc", max_size=30), st.lists(st.text("abc", max_size=4), max_size=3), st.data())
def test_stops_cut_at_the_first_string(text: str, stops: list[str], data: st.DataObject) -> None:
    """Cut the same however the text comes in pieces."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    filtered = stream.StopStrings(stops)
    given_out = [filtered.push(piece) for piece in pieces]
    shown = "".join(given_out) + filtered.flush()
    places = [text.find(stop) for stop in stops if stop and stop in text]
    # A later string may be complete before an earlier one is: then it ends the text.
    assert text.startswith(shown)
    assert not any(stop in shown for stop in stops if stop)
    assert (filtered.found is not None) == bool(places)
    assert places or shown == text


def test_stops_hold_back_no_more_than_they_must() -> None:
    stops = stream.StopStrings(["###", "END"])
    assert [stops.push(piece) for piece in ("a#", "#b", "E", "N", "X", "##", "#c", "d")] == [
        "a",
        "##b",
        "",
        "",
        "ENX",
        "",
        "",
        "",
    ]
    assert (stops.found, stops.flush()) == ("###", "")


def test_a_string_is_a_single_stop() -> None:
    stops = stream.StopStrings("end")
    assert [stops.push(piece) for piece in ("no ", "den", "end")] == ["no ", "d", "en"]
    assert stops.found == "end"


def test_a_long_stop_string_costs_no_more_than_the_text_held() -> None:
    class Counted(str):
        asked = 0

        def startswith(self, *part: Any) -> bool:
            Counted.asked += 1
            return super().startswith(*part)

    stops = stream.StopStrings([Counted("x" * 10_000)])
    assert [stops.push(piece) for piece in ("ab", "x", "c")] == ["ab", "", "xc"]
    assert Counted.asked <= 5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers(bad: float) -> None:
    with pytest.raises(loader.RunError, match="finite"):
        chooser(temperature=0.0, seed=None)(np.array([0.0, bad], np.float32))


def test_the_smallest_temperature() -> None:
    logits = np.array([1.0, 3.0, 2.0], np.float32)
    assert chooser(temperature=1e-320, seed=0)(logits) == 1


def test_the_stream_equals_the_text_decoded_at_once(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(tiny_artifact.train_tokenizer())
    tokenizer = room.read(tmp_path)
    assert tokenizer is not None
    library = tokenizers.Tokenizer.from_str(room.to_json(tokenizer))

    def decode(ids: Sequence[int]) -> str:
        return str(library.decode(list(ids), skip_special_tokens=True))

    @settings(max_examples=300, deadline=None)
    @given(st.text(max_size=15), st.text(max_size=40))
    def same(prompt: str, text: str) -> None:
        ids = [1, *library.encode(prompt, add_special_tokens=False).ids]
        more = library.encode(text, add_special_tokens=False).ids
        stream = loader.TextStream(decode, ids)
        pieces = [stream.push(token) for token in more]
        for piece in pieces:
            assert "\ufffd" not in piece or "\ufffd" in text
        whole = "".join([*pieces, stream.flush()])
        assert decode(ids) + whole == decode([*ids, *more])

    same()


def test_an_incomplete_character_waits_for_its_bytes(model: loader.Model) -> None:
    heart = [model.tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "é🎉".encode()]
    stream = loader.TextStream(model.decode, [1])
    assert [stream.push(token) for token in heart] == ["", "é", "", "", "", "🎉"]
    assert stream.push(heart[0]) == ""
    assert "\ufffd" in stream.flush()


def threads(
    weight_bytes: int, cpus: str, operations: int = 0, **inputs: str
) -> tuple[str, str, str]:
    """Threads, pinning and spins that set_threads chooses in a process that may use ``cpus``.

    A small model that was loaded before does not count.
    """
    code = (
        "import os; from maxtool.runtime.loader import host; "
        "host.set_threads(1); "
        "names = 'TVM_BIND_THREADS', 'TVM_THREAD_POOL_SPIN_COUNT'; "
        f"print(host.set_threads({weight_bytes}, {operations}), *map(os.environ.get, names))"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TVM_")}
    done = subprocess.run(
        ["taskset", "-c", cpus, sys.executable, "-c", code],
        env={**clean, **inputs},
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    count, bind, spins = done.stdout.split()
    return count, bind, spins


@pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset")
def test_threads_follow_the_machine_and_the_weights() -> None:
    large, every = 1 << 40, f"0-{(os.cpu_count() or 1) - 1}"
    assert threads(large, "0") == ("1", "0", host.SPINS)
    assert threads(1 << 20, every) == ("1", "0", host.SPINS)
    assert 1 <= int(threads(large, every)[0]) <= (os.cpu_count() or 1)
    assert threads(8 << 20, every, TVM_NUM_THREADS="3")[0] == "2"
    assert threads(1 << 10, every, operations=16 << 20, TVM_NUM_THREADS="3")[0] == "2"
    own = {"TVM_BIND_THREADS": "1", "TVM_THREAD_POOL_SPIN_COUNT": "7"}
    assert threads(large, every, TVM_NUM_THREADS="3", **own) == ("3", "1", "7")


def test_errors_have_the_documented_codes() -> None:
    codes: dict[Any, int] = {
        loader.NotVerified: 1,
        loader.BadUsage: 2,
        loader.BadInput: 3,
        loader.DoesNotFit: 4,
        loader.MachineLacks: 6,
    }
    assert {error: error.exit_code for error in codes} == codes


def test_a_prompt_is_neither_cut_nor_padded(artifact: Path, ids: dict[str, list[int]]) -> None:
    """Ignore saved truncation and padding; transformers too applies them on request only."""
    library = tiny_artifact.library()
    library = tokenizers.Tokenizer.from_str(library.to_str())
    library.enable_truncation(3)
    library.enable_padding(length=20, pad_id=7)
    (artifact / "tokenizer.json").write_text(library.to_str(), encoding="utf-8")
    model = loader.load(artifact, check=False)
    assert model.encode(tiny_artifact.PROMPT) == ids["prompt"]
