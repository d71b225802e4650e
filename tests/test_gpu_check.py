"""Files carried to a machine with a GPU, as far as a machine without one can test them."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu_check"

RESULTS = {
    "shapes": {"llama-8b": {"decode_bytes": 16e9, "prefill_flops": 15e9}},
    "card": {"name": "GPU", "copy_bytes_per_second": 4e12, "bf16_flops": 8e14},
    "parity": {
        "good": {"exit": 0, "passed": True, "relative_error": 1e-6, "rtol": 1e-4},
        "bad": {"exit": 1, "passed": False, "relative_error": 1.0, "rtol": 1e-4},
        "late": {"error": "not done within 60 s"},
    },
    "speed": {
        "llama-8b": {
            "maxtool": {"decode": 200.0, "prefill": 30000.0},
            "transformers": {"error": "a\nno memory"},
        }
    },
}


def test_the_table_has_shares_and_failures() -> None:
    table = runpy.run_path(str(HERE / "kit" / "table.py"))["markdown"](RESULTS)
    assert "| llama-8b | maxtool | 200.0 | 0.80 | 0.8 | 30000 | 0.56 | 0.6 |" in table
    assert "| llama-8b | transformers | no memory |" in table
    assert "| good | 1e-06 | 0.0001 | passed |" in table
    assert "| bad | 1.0 | 0.0001 | failed |" in table
    assert "| late |  |  | not done within 60 s |" in table


def test_random_weights_fill_what_the_manifest_describes(tmp_path: Path) -> None:
    tensors = [
        {"dtype": "float32", "shape": [3, 5], "offset": 0},
        {"dtype": "bfloat16", "shape": [1000], "offset": 64},
        {"dtype": "float16", "shape": [7], "offset": 2112},
    ]
    weights = {"file": "weights.bin", "tensors": tensors}
    (tmp_path / "manifest.json").write_text(json.dumps({"weights": weights}))
    generate = runpy.run_path(str(HERE / "kit" / "random_weights.py"))["generate"]
    assert generate(tmp_path) == 2112 + 14
    assert (tmp_path / "weights.bin").stat().st_size == 2112 + 14


@pytest.mark.slow
def test_it_is_built_and_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    build = [
        sys.executable,
        str(HERE / "build.py"),
        str(kit),
        "--only",
        "tiny-llama3",
        "--no-speed",
    ]
    subprocess.run(build, check=True, capture_output=True, text=True)
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    check = [sys.executable, str(kit / "check.py"), "--output", str(tmp_path / "results")]
    done = subprocess.run(check, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 6
    assert "no GPU to use here" in done.stderr
    names = {path.name for path in (kit / "parity").iterdir()}
    assert names == {f"tiny-llama3-{kind}" for kind in ("float32", "float16", "bfloat16")}
    assert (kit / "parity" / "tiny-llama3-float16" / "check.npz").is_file()
    assert len((kit / "text" / "expected.txt").read_text()) > 100
