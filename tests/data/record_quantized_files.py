"""Record digests of what llama-quantize makes of random models, with importance and without.

Needs llama-quantize of llama.cpp on x86-64, as vendored by llama-cpp-python 0.3.36:

    python tests/data/record_quantized_files.py LLAMA-QUANTIZE

``quantized_files.json`` has a digest for each case of ``tests/conversion/quantized_models.py``,
which makes the models.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from maxtool.cli.app import app  # noqa: E402
from tests.conversion.quantized_models import (  # noqa: E402
    CASES,
    FILE,
    MODELS,
    digest,
    importance,
    key,
    model,
    write_older,
)


def main(arguments: list[str]) -> None:
    """Write the file."""
    (program,) = arguments
    result = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in MODELS:
            source = folder / f"{name}.gguf"
            words = ["convert", str(model(folder / name, name)), "-o", str(source)]
            app([*words, "--dtype", "float32", "--quiet"], standalone_mode=False)
            write_older(folder / f"{name}.dat", importance(source))
        for name, mix, weighed in CASES:
            options = ["--imatrix", str(folder / f"{name}.dat")] if weighed else []
            target = folder / "quantized.gguf"
            command = [program, *options, str(folder / f"{name}.gguf"), str(target), mix, "1"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr)
            result[key((name, mix, weighed))] = digest(target)
    FILE.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
