"""Converting beside a plain copy: bfloat16 from Hugging Face to GGUF, to the same disk, in turns.

Both are whole processes that read the same file and end when all is flushed to the disk.

    python benchmarks/convert.py --shape 1.1b --work FOLDER

``--work`` is on the disk that is measured, and keeps the source, ``SHAPE-bf16``. Prints medians of
the wall and the processor time over the rounds, and the ratio.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checkpoints import machine, make
from llama_cpp import SHAPES
from quantize import in_turns

# Copies by the system's own call for that, as far as there is one, and flushes.
COPY = """
import os, shutil, sys
shutil.copyfile(sys.argv[1], sys.argv[2])
descriptor = os.open(sys.argv[2], os.O_RDONLY)
os.fsync(descriptor)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="keeps the source, SHAPE-bf16")
    arguments = parser.parse_args()
    print(f"{machine()}, {arguments.shape}")
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder, "compiled"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        source = _source(arguments.work or Path(folder), arguments.shape)
        weights = source / "model.safetensors"
        converted, copied = Path(folder, "converted.gguf"), Path(folder, "copied")
        commands = {
            "maxtool": [*_convert(source, converted), "--force"],
            "copy": [sys.executable, "-c", COPY, str(weights), str(copied)],
        }
        for command in commands.values():  # modules compiled, and the source in memory
            subprocess.run(command, check=True, capture_output=True)
        times = in_turns(commands, arguments.rounds, (converted, copied))
        (wall, processor), (copy_wall, copy_processor) = times["maxtool"], times["copy"]
        print(
            f"{weights.stat().st_size / 1e9:.2f} GB: maxtool {wall:.2f} s, {processor:.2f} s of"
            f" processors; a copy {copy_wall:.2f}, {copy_processor:.2f}: {copy_wall / wall:.0%}"
        )


def _source(work: Path, shape: str) -> Path:
    """A Hugging Face folder of bfloat16 with random weights."""
    source = work / f"{shape}-bf16"
    if not source.exists():
        with tempfile.TemporaryDirectory(dir=work) as folder:
            wide = Path(folder, "float32")
            make(wide, SHAPES[shape])
            command = [*_convert(wide, source), "--dtype", "bfloat16", "--no-recipe"]
            subprocess.run(command, check=True)
    return source


def _convert(source: Path, output: Path) -> list[str]:
    return [sys.executable, "-m", "maxtool", "convert", str(source), "-o", str(output)]


if __name__ == "__main__":
    main()
