"""A model for several GPUs: each part is on one of them, by a thread of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import stub_gpu
import tiny_artifact


def split(artifact: Path) -> None:
    """Make an artifact one for two devices, which here have the same weights."""
    manifest = json.loads((artifact / "manifest.json").read_text())
    names = ["weights.0.bin", "weights.1.bin"]
    for name in names:
        shutil.copyfile(artifact / "weights.bin", artifact / name)
        manifest["files"][name] = tiny_artifact.checksum(artifact / name)
    manifest["weights"] = {**manifest["weights"], "files": names}
    tiny_artifact.write(artifact, {**manifest, "devices": 2})


RUN = """
model = loader.load(sys.argv[1])
log()
logits = model.run("forward", {"input_ids": [[1, 2, 3]]})["logits"]
devices = [member.processor.gpu.index for member in model._execution._members]
answer([list(logits.shape), devices, used(0) > 0, used(1) > 0, model.text_memory().decoder])
"""


def test_two_gpus_have_a_part_each(cuda_artifact: Path, cuda_module: Path, stubs: Path) -> None:
    split(cuda_artifact)
    environment = stub_gpu.environment(stubs, cuda_module, gpus="9.0 9.0")
    shape, devices, first, second, decoder = stub_gpu.run(RUN, environment, cuda_artifact)
    assert (shape[:2], devices, first, second, decoder) == ([1, 3], [0, 1], True, True, None)


def test_too_few_gpus_are_told(cuda_artifact: Path, cuda_module: Path, stubs: Path) -> None:
    split(cuda_artifact)
    environment = stub_gpu.environment(stubs, cuda_module, gpus="9.0")
    answer = stub_gpu.run(
        """
try:
    loader.load(sys.argv[1])
except loader.BadUsage as error:
    answer(str(error))
""",
        environment,
        cuda_artifact,
    )
    assert answer.startswith("there is no device cuda:1. this machine has GPU 0")
