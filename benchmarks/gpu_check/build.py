"""Build what is carried to a machine with a GPU, and is run there by `python3 check.py`.

    python benchmarks/gpu_check/build.py FOLDER [--arch sm_90] [--python 3.12] [--only NAME]

That machine needs Python, NumPy and a CUDA 13 runtime, and no package index: the folder has the
compiled artifacts, TVM's runtime and tvm_ffi for its Python. It has no large weights: those of the
speed measurements are random, and made there. The package index is asked for tvm_ffi once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from checkpoints import Shape, make_sparse  # noqa: E402 - beside the folder above
from layers import LAYERS  # noqa: E402

from maxtool import __version__, artifact  # noqa: E402
from maxtool.dtype import DType  # noqa: E402

LIMIT = 64 << 20  # bytes that can be carried
CONTEXT = 4096
DTYPES = (DType.float32, DType.float16, DType.bfloat16)
STORIES = ROOT.parent / "shared" / "reference" / "stories260K"
SAMPLE = ROOT / "samples" / "fireside"
SHAPES = {
    "llama-1.1b": Shape(32000, 2048, 5632, 22, 32, 4, CONTEXT, tied=False),
    "llama-8b": Shape(128256, 4096, 14336, 32, 32, 8, CONTEXT, tied=False),
}
# Where a length that is written and read is counted: what the runner does.
PROMPT = 2048
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux2014_x86_64")


def parity(folder: Path, arch: str, only: str) -> None:
    """An artifact of each recorded model in each type, with the outputs that it should give."""
    for source in sorted((ROOT / "tests" / "data").glob("tiny-*")):
        if not (source.is_dir() and only in source.name):
            continue
        for dtype in DTYPES:
            output = folder / "parity" / f"{source.name}-{dtype.value}"
            asked = artifact.Request(source, output, target=f"cuda:{arch}", dtype=dtype)
            compile_one(replace(asked, check=True))


def convolutions(folder: Path, arch: str, only: str) -> None:
    """An artifact of convolutions of each kind, with the outputs that it should give."""
    for name, layers in LAYERS.items():
        if only not in name:
            continue
        print(f"compiling {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as place:
            file, output = Path(place, f"{name}.onnx"), folder / "parity" / name
            layers.write(file, batch=1)
            output.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "maxtool", "compile", file, "-o", output, "-q"]
            options = ["--target", f"cuda:{arch}", "--check"]
            subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)


def text(folder: Path, arch: str) -> None:
    """A model that writes, and what the artifact for this machine's CPU writes."""
    source = STORIES if STORIES.is_dir() else SAMPLE
    asked = artifact.Request(source, folder / "text", dtype=DType.float32)
    compile_one(replace(asked, target=f"cuda:{arch}"))
    with tempfile.TemporaryDirectory() as place:
        here = Path(place, "here")
        compile_one(replace(asked, output=here))
        command = [sys.executable, str(here / "run.py"), "--prompt", "Once upon a time"]
        done = subprocess.run(
            [*command, "--max-tokens", "200", "-q"], capture_output=True, text=True, check=True
        )
    (folder / "text" / "expected.txt").write_text(done.stdout)


def speed(folder: Path, arch: str, scratch: Path | None) -> None:
    """The code of large models in bfloat16, without weights."""
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory(dir=scratch) as place:
            source, output = Path(place, "source"), Path(place, "made")
            make_sparse(source, shape)
            compile_one(artifact.Request(source, output, target=f"cuda:{arch}"))
            (output / "weights.bin").unlink()
            shutil.copytree(output, folder / "speed" / name)
        config = replace(shape, context=CONTEXT).config | {"dtype": "bfloat16"}
        (folder / "speed" / name / "shape.json").write_text(json.dumps(config))


def compile_one(request: artifact.Request) -> None:
    print(f"compiling {request.output.name}", file=sys.stderr, flush=True)
    request.output.parent.mkdir(parents=True, exist_ok=True)
    artifact.make(artifact.prepare(request))


def work(shape: Shape) -> dict[str, float]:
    """Bytes of weights read for a token that is written, operations for one of a prompt."""
    sizes = shape.tensors.items()
    matrices = [a * b for name, (a, *rest) in sizes for b in rest if "embed" not in name]
    head = shape.vocabulary * shape.hidden  # of a prompt, only the last token's logits are made
    pairs = PROMPT / 2 * shape.layers * shape.heads * shape.head_dim
    return {
        "decode_bytes": 2.0 * sum(matrices),
        "prefill_flops": 2.0 * (sum(matrices) - head) + 4.0 * pairs,
    }


def libraries(folder: Path, python: str) -> None:
    """TVM's runtime where the loader looks for it, and tvm_ffi for the Python over there."""
    import tvm

    target = folder / "tvm" / "lib"
    target.mkdir(parents=True)
    for library in sorted((Path(tvm.__file__).parent / "lib").glob("libtvm_runtime*.so")):
        shutil.copyfile(library, target / library.name)
    wanted = [f"apache-tvm-ffi=={version('apache-tvm-ffi')}", "typing_extensions"]
    platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place]
        command += ["--only-binary=:all:", "--python-version", python, *platforms, *wanted]
        subprocess.run(command, check=True)
        for wheel in Path(place).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, list(needed(archive)))


def needed(archive: zipfile.ZipFile) -> Iterator[str]:
    """The members of a wheel that are needed to run: neither headers nor sources."""
    for name in archive.namelist():
        parts = set(Path(name).parts)
        if not parts & {"include", "src", "3rdparty", "testing", "cython", "cmake", "share"}:
            yield name


def pack(folder: Path, names: Iterable[str]) -> None:
    """Each folder as an archive beside it: code of GPUs shrinks to a third."""
    for name in names:
        with tarfile.open(folder / f"{name}.tar.xz", "w:xz") as archive:
            archive.add(folder / name, name)
        shutil.rmtree(folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90")
    here = ".".join(map(str, sys.version_info[:2]))
    parser.add_argument("--python", default=here, help=f"the Python over there ({here})")
    parser.add_argument("--only", default="", help="models whose names have this in them")
    parser.add_argument("--no-speed", action="store_true", help="leave the large models out")
    parser.add_argument("--scratch", type=Path, help="a folder with 40 GB of room")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    for file in sorted((HERE / "kit").glob("*.py")):
        shutil.copyfile(file, arguments.folder / file.name)
    parity(arguments.folder, arguments.arch, arguments.only)
    convolutions(arguments.folder, arguments.arch, arguments.only)
    text(arguments.folder, arguments.arch)
    (arguments.folder / "speed").mkdir()
    if not arguments.no_speed:
        speed(arguments.folder, arguments.arch, arguments.scratch)
    libraries(arguments.folder, arguments.python)
    pack(arguments.folder, ("parity", "speed", "text"))
    facts = {"maxtool": __version__, "arch": arguments.arch}
    facts |= {"shapes": {name: work(shape) for name, shape in SHAPES.items()}}
    (arguments.folder / "kit.json").write_text(json.dumps(facts))
    total = sum(file.stat().st_size for file in arguments.folder.rglob("*") if file.is_file())
    print(f"{arguments.folder}: {total / (1 << 20):.1f} MiB")
    if total > LIMIT:
        raise SystemExit(f"more than the {LIMIT >> 20} MiB that can be carried")


if __name__ == "__main__":
    main()
