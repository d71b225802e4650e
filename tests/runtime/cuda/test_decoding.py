"""Tokens drawn on a GPU, which is a stub, beside those that the host picks from logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import stub_gpu
import tiny_artifact

from tests.effort import thinned

SAMPLINGS: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.7},
    {"temperature": 6.0, "seed": 1},
    {"temperature": 6.0, "seed": 2, "top_k": 5},
    {"temperature": 4.0, "seed": 3, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 6.0, "seed": 4, "repetition_penalty": 2.5},
]
# The same artifact with the entries that draw tokens, and without them.
BOTH = """
def both(folder):
    drawn, picked = loader.load(folder), loader.load(folder)
    for name in ("sample_prefill", "sample_decode"):
        del picked.manifest.entries[name]
    return drawn, picked
"""


@pytest.fixture
def environment(stubs: Path, cuda_module: Path) -> dict[str, str]:
    return stub_gpu.environment(stubs, cuda_module)


@pytest.mark.slow
def test_the_device_draws_what_the_host_would(
    cuda_artifact: Path, environment: dict[str, str]
) -> None:
    code = (
        BOTH
        + """
answer([[list(model.generate([1, 5, 9], 16, **options)) for model in both(sys.argv[1])]
        for options in json.loads(sys.argv[2])])
"""
    )
    result = stub_gpu.run(code, environment, cuda_artifact, json.dumps(SAMPLINGS))
    for options, (drawn, picked) in zip(SAMPLINGS, result, strict=True):
        assert drawn == picked, options
    assert len({tuple(drawn) for drawn, _ in result}) > 4


def test_what_is_not_written_is_picked_by_the_host(
    cuda_artifact: Path, environment: dict[str, str], ids: dict[str, list[int]]
) -> None:
    code = """
model = loader.load(sys.argv[1])
prompt, story = json.loads(sys.argv[2]), json.loads(sys.argv[3])
model.manifest.unwritten = loader.unwritten.Unwritten((story[0],))
answer(list(model.generate(prompt, 4)))
"""
    arguments = json.dumps(ids["prompt"]), json.dumps(ids["story"])
    found = stub_gpu.run(code, environment, cuda_artifact, *arguments)
    assert found and ids["story"][0] not in found


def test_text_of_the_whole_program(
    artifact: Path, cuda_artifact: Path, environment: dict[str, str]
) -> None:
    said = [
        tiny_artifact.run(folder, "--prompt", tiny_artifact.PROMPT, "--json", env=env).stdout
        for folder, env in ((artifact, None), (cuda_artifact, environment))
    ]
    cpu, gpu = (json.loads(text) for text in said)
    assert gpu["text"] == cpu["text"] == tiny_artifact.PROMPT + tiny_artifact.STORY
    assert (gpu["ids"], gpu["stopped"]) == (cpu["ids"], "end")


def test_a_step_waits_for_nothing(cuda_artifact: Path, environment: dict[str, str]) -> None:
    """The next step is asked for before the last token is read; memory is taken only at first."""
    code = """
model = loader.load(sys.argv[1])
tokens = model.generate([1, 5, 9], 12)
logs = []
for _ in tokens:
    logs.append(log())
answer(logs)
"""
    logs = stub_gpu.run(code, environment, cuda_artifact)
    steady = ["replay", "copy to host", "record ", "wait event"]
    assert [i for i, lines in enumerate(logs) if lines == steady] == list(range(2, len(logs) - 1))
    assert sum(line == "begin capture" for lines in logs for line in lines) == 1
    captured = [line.removeprefix("captured ") for line in logs[1] if line.startswith("captured")]
    called = [line for line in logs[0] if line.split()[0] in {"launch", "copy"}]
    # What the first step called is what the graph has.
    steps = "\n".join(called).split("copy to host")[1].strip().split("\n")
    assert captured == steps == [*steps[:-2], "copy within", "copy within"]
    assert not any(line.startswith(("in capture", "bad")) for lines in logs for line in lines)


def test_an_end_of_text_that_is_found_late(
    cuda_artifact: Path, environment: dict[str, str], ids: dict[str, list[int]]
) -> None:
    """The step that was asked for meanwhile leaves nothing behind, nor does it use up a number."""
    code = (
        BOTH
        + """
prompt, sampling = json.loads(sys.argv[2]), json.loads(sys.argv[3])
answers = []
for model in both(sys.argv[1]):
    session = loader.session.Session(model)
    chooser = loader.TokenSampler(loader.Sampling(**sampling))
    first = list(session.generate(prompt, 40, chooser))
    again = list(session.generate([*prompt, *first[:3], 77, 78], 8, chooser))
    reused = session.reused
    stopped = session.generate([*prompt, *first[:3], 77, 78, *again], 8, chooser)
    part = [next(stopped), next(stopped)]
    stopped.close()
    more = list(session.generate([*prompt, 9], 5, chooser))
    cache = session._state.arrays[0][0, : len(session.ids)].tolist()
    assert cache == session.ids
    answers.append([first, again, reused, part, more])
answer(answers)
"""
    )
    for sampling in ({}, {"temperature": 3.0, "seed": 7, "repetition_penalty": 1.3}):
        arguments = json.dumps(ids["prompt"]), json.dumps(sampling)
        drawn, picked = stub_gpu.run(code, environment, cuda_artifact, *arguments)
        first, _, reused, *_ = drawn
        assert first == ids["story"] or sampling
        assert reused == len(ids["prompt"]) + 3
        assert drawn == picked


@pytest.mark.parametrize("limit", thinned([3, 4, 9, 47], 4, 47))
def test_a_text_that_must_be_read_anew(
    limit: int, cuda_artifact: Path, environment: dict[str, str]
) -> None:
    code = (
        BOTH
        + """
answers = []
for model in both(sys.argv[1]):
    model.manifest.reread_beyond = int(sys.argv[2])
    session = loader.session.Session(model)
    chooser = loader.TokenSampler(loader.Sampling(temperature=5.0, seed=1))
    tokens = list(session.generate([1, 5, 9], 20, chooser))
    answers.append([tokens, list(session.generate([1, 5, 9, *tokens, 4], 5, chooser))])
answer(answers)
"""
    )
    drawn, picked = stub_gpu.run(code, environment, cuda_artifact, limit)
    assert drawn == picked


def test_the_context_is_filled_to_its_end(cuda_artifact: Path, environment: dict[str, str]) -> None:
    code = (
        BOTH
        + """
models = both(sys.argv[1])
for model in models:
    model.manifest.eos = ()
answer([list(model.generate([1, 5], 100, temperature=9.0, seed=3)) for model in models])
"""
    )
    drawn, picked = stub_gpu.run(code, environment, cuda_artifact)
    assert drawn == picked
    assert len(drawn) == tiny_artifact.CONTEXT - 1


def test_logits_that_are_no_numbers(cuda_artifact: Path, environment: dict[str, str]) -> None:
    weights = json.loads((cuda_artifact / "manifest.json").read_text())["weights"]["tensors"]
    place = weights[0]["offset"] + 4 * (6 * tiny_artifact.VOCAB + 30)
    with (cuda_artifact / "weights.bin").open("r+b") as file:
        file.seek(place)
        file.write(b"\x00\x00\xc0\x7f")
    code = """
model = loader.load(sys.argv[1], check=False)
made = []
try:
    for token in model.generate([1, 5], 20):
        made.append(token)
except loader.RunError as error:
    answer([len(made), str(error)])
"""
    result, said = stub_gpu.run(code, environment, cuda_artifact)
    assert result == 5
    assert "not finite" in said


def test_a_gpu_that_fails_meanwhile(cuda_artifact: Path, environment: dict[str, str]) -> None:
    code = """
stub = ctypes.CDLL("libcuda.so.1")
model = loader.load(sys.argv[1])
answers = []
for steps in (1, 6):
    tokens = model.generate([1, 5], 20)
    for _ in range(steps):
        next(tokens)
    stub.stub_fail(700)
    try:
        list(tokens)
    except loader.RunError as error:
        answers.append([type(error).__name__, str(error)])
    stub.stub_fail(0)
answer(answers)
"""
    for kind, said in stub_gpu.run(code, environment, cuda_artifact):
        assert kind == "RunError"
        assert "CUDA" in said


def test_two_texts_at_once(cuda_artifact: Path, environment: dict[str, str]) -> None:
    """Each has its own graph and memory; the model's pool serves both."""
    code = (
        BOTH
        + """
drawn, picked = both(sys.argv[1])
drawn.manifest.eos = picked.manifest.eos = ()
texts = [[1, 5, 9], [1, 200, 7, 8]]
options = {"temperature": 5.0, "seed": 11}
expected = [list(picked.generate(text, 30, **options)) for text in texts]
running = [drawn.generate(text, 30, **options) for text in texts]
found = [list(pair) for pair in zip(*zip(*running))]
drawn(input_ids=[[3] * 20])
answer([found, expected])
"""
    )
    actual, expected = stub_gpu.run(code, environment, cuda_artifact)
    assert actual == expected


def test_threads_share_a_model(cuda_artifact: Path, environment: dict[str, str]) -> None:
    code = """
import threading
model = loader.load(sys.argv[1])
alone = {n: list(model.generate([1, 5, n], 20, temperature=4.0, seed=n)) for n in range(4)}
same = []
def work(n):
    for _ in range(5):
        same.append(list(model.generate([1, 5, n], 20, temperature=4.0, seed=n)) == alone[n])
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
answer([len(same), all(same)])
"""
    assert stub_gpu.run(code, environment, cuda_artifact) == [20, True]


def test_memory_of_a_text_serves_the_next(cuda_artifact: Path, environment: dict[str, str]) -> None:
    """One is kept, with its recorded steps, until memory is short; the others are freed."""
    code = """
import gc, os
model = loader.load(sys.argv[1])
model.manifest.eos = ()
def texts(count):
    running = [model.generate([1, 5, 9], 30, temperature=5.0, seed=3) for _ in range(count)]
    return [list(made) for made in zip(*running)] if count > 1 else [list(running[0])]
first, sizes, recorded = texts(1), [used()], [log().count("begin capture")]
for count in (1, 3, 1):
    same = texts(count)[0][0] in (first[0], first[0][0])
    gc.collect()
    sizes.append(used())
    lines = log()
    recorded.append([same, lines.count("begin capture"), lines.count("drop graph")])
import tvm_ffi
tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")()
os.environ["STUB_MEMORY"] = str(used() + 100)
state = model.new_state(batch=1)
answer([sizes, recorded, log().count("drop graph")])
"""
    sizes, recorded, dropped = stub_gpu.run(code, environment, cuda_artifact)
    assert recorded == [1, [True, 0, 0], [True, 2, 2], [True, 0, 0]]
    assert sizes[0] == sizes[1]
    assert sizes[2] == sizes[3]  # TVM's pool has memory for three texts by then
    assert dropped == 1


def test_steps_that_cannot_be_recorded(cuda_artifact: Path, environment: dict[str, str]) -> None:
    """Call them one by one, each once."""
    code = """
import os
answers = []
for capture in ("1", "0"):
    os.environ["STUB_CAPTURE"] = capture
    model = loader.load(sys.argv[1])
    tokens = list(model.generate([1, 5, 9], 20, temperature=5.0, seed=1))
    answers.append([tokens, log().count("replay")])
answer(answers)
"""
    recorded, called = stub_gpu.run(code, environment, cuda_artifact)
    assert recorded[0] == called[0]
    assert recorded[1] > called[1] == 0


def test_a_few_tokens_are_not_worth_a_graph(
    cuda_artifact: Path, environment: dict[str, str]
) -> None:
    code = """
model = loader.load(sys.argv[1])
list(model.generate([1, 5, 9], 4))
answer(log())
"""
    assert "begin capture" not in stub_gpu.run(code, environment, cuda_artifact)


@pytest.mark.parametrize(
    ("entry", "at", "name"), [("inputs", 2, "draws"), ("outputs", 1, "position")]
)
def test_entries_that_take_something_else(
    entry: str, at: int, name: str, cuda_artifact: Path
) -> None:
    manifest = json.loads((cuda_artifact / "manifest.json").read_text())
    manifest["entries"]["sample_decode"][entry][at]["dtype"] = "float16"
    tiny_artifact.write(cuda_artifact, manifest)
    done = tiny_artifact.run(cuda_artifact, "--info")
    assert (done.returncode, name in done.stderr) == (3, True)
