"""Memory of a GPU, which is a stub: weights, states, and what calls need."""

from __future__ import annotations

import json
from pathlib import Path

import stub_gpu
import tiny_artifact


def test_memory_is_given_back(cuda_artifact: Path, stubs: Path, cuda_module: Path) -> None:
    """Keep the pool that TVM holds for the next call; a second model takes memory from it."""
    code = """
import gc
sizes = []
for _ in range(3):
    model = loader.load(sys.argv[1])
    state = model.new_state(batch=1)
    model.run("prefill", {"input_ids": [[9, 8]], "position": [0]}, state)
    held = used()
    del model, state
    gc.collect()
    sizes.append([held, used()])
answer(sizes)
"""
    first, second, third = stub_gpu.run(
        code, stub_gpu.environment(stubs, cuda_module), cuda_artifact
    )
    weights = json.loads((cuda_artifact / "manifest.json").read_text())["weights"]["tensors"]
    assert first[0] - first[1] >= sum(tensor["nbytes"] for tensor in weights)
    assert first == second == third


def test_a_state_that_does_not_fit(cuda_artifact: Path, stubs: Path, cuda_module: Path) -> None:
    code = """
model = loader.load(sys.argv[1])
try:
    model.new_state(batch=10000)
except loader.MachineLacks as error:
    answer(str(error))
"""
    environment = stub_gpu.environment(stubs, cuda_module, memory=1 << 20)
    assert "not enough free memory for" in stub_gpu.run(code, environment, cuda_artifact)


def test_a_call_that_does_not_fit(cuda_artifact: Path, stubs: Path, cuda_module: Path) -> None:
    """Fail where TVM cannot allocate temporaries; the model goes on afterwards."""
    code = """
import os
model = loader.load(sys.argv[1])
os.environ["STUB_MEMORY"] = str(used() + 20000)
try:
    model(input_ids=[[3] * 40])
except loader.MachineLacks as error:
    os.environ["STUB_MEMORY"] = str(1 << 30)
    answer([str(error), model(input_ids=[[3] * 40])["logits"].shape])
"""
    said, shape = stub_gpu.run(code, stub_gpu.environment(stubs, cuda_module), cuda_artifact)
    assert "cannot run forward: there is not enough free memory" in said
    assert shape == [1, 40, tiny_artifact.VOCAB]


def test_memory_that_calls_needed_serves_states(
    cuda_artifact: Path, stubs: Path, cuda_module: Path
) -> None:
    """TVM's pool keeps it, and would do so for ever; what graphs write to is not in the pool."""
    code = """
import os
model = loader.load(sys.argv[1])
model.manifest.eos = ()
expected = list(model.generate([1, 5, 9], 30))
tokens = model.generate([1, 5, 9], 30)
found = [next(tokens) for _ in range(8)]
for length in range(10, 48):
    model(input_ids=[[3] * length])
os.environ["STUB_MEMORY"] = str(used() + 20000)
state = model.new_state(batch=200)
answer([found + list(tokens) == expected, bool((state.arrays[0] == 0).all())])
"""
    environment = stub_gpu.environment(stubs, cuda_module)
    assert stub_gpu.run(code, environment, cuda_artifact) == [True, True]


def test_weights_larger_than_a_piece_arrive_whole(
    cuda_artifact: Path, stubs: Path, cuda_module: Path
) -> None:
    code = """
from maxtool.runtime.loader import cuda_upload
cuda_upload.PIECE = 1000
shares = []
model = loader.load(sys.argv[1], progress=shares.append)
with model.processor.running():
    sent = model.processor.arrays(list(model._execution._compiled.weights))
file = open(model.manifest.weights_file, "rb").read()
places = [(spec.offset, spec.offset + spec.nbytes()) for spec in model.manifest.weights]
same = [file[a:b] == array.tobytes() for (a, b), array in zip(places, sent)]
answer([same, shares == sorted(shares), shares[-1], len(shares)])
"""
    same, grows, last, count = stub_gpu.run(
        code, stub_gpu.environment(stubs, cuda_module), cuda_artifact
    )
    assert all(same)
    assert grows
    assert last == 1.0
    assert count > tiny_artifact.CONTEXT * tiny_artifact.VOCAB * 4 // 1000
