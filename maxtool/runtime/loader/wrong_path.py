"""Errors that say what lies where another model, or none, was looked for."""

from __future__ import annotations

from pathlib import Path

from .errors import BadInput, DoesNotFit
from .specs import DUAL_ENCODER, EMBED, GENERATE, IMAGE, TEXT_TO_TEXT, TRANSCRIBE

# How files of checkpoints end, and what they are called in a folder.
SUFFIXES = (".safetensors", ".gguf", ".onnx", ".pt", ".pth")
PATTERNS = (*(f"*{suffix}" for suffix in SUFFIXES), "*.index.json", "pytorch_model*.bin")
COMPILE = "maxtool compile {source} -o {name}"
# By the task of a model, or none: what it does and not does, and what can be done with it.
TASKS = {
    GENERATE: (
        "this model writes text and makes no embeddings",
        "maxtool run, or its own run.py, with --prompt continues a text",
    ),
    EMBED: (
        "this model makes embeddings and writes no text",
        "maxtool embed, or its own run.py, with --text makes a vector of a text",
    ),
    IMAGE: (
        "this model takes images, and no text",
        "maxtool run, or its own run.py, with --image looks at the image in a file",
    ),
    DUAL_ENCODER: (
        "this model compares images with texts, and writes none",
        "maxtool embed, or its own run.py, with --image FILE and --label TEXT says what fits; "
        "--text or --image alone makes a vector",
    ),
    TRANSCRIBE: (
        "this model takes sounds, and writes what is said in them",
        "maxtool run, or its own run.py, with --audio transcribes the speech in a file",
    ),
    TEXT_TO_TEXT: (
        "this model reads a text and writes another, and does not continue texts",
        "maxtool run, or its own run.py, with --prompt writes the text for a source",
    ),
    None: (
        "this model takes arrays, and no text",
        "--inputs X.npz --output Y.npz runs it on arrays; --info says of what names and types",
    ),
}


def no_manifest(path: Path, error: OSError) -> BadInput:
    """The error to raise where ``manifest.json`` cannot be read."""
    source = path.parent
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        return BadInput(f"the manifest cannot be read: {error.strerror}", file=path)
    if _is_checkpoint(source):
        name = f"{source.stem if source.is_file() else source.resolve().name}-compiled"
        hint = f"compile it, and run the output: {COMPILE.format(source=source, name=name)}"
        return BadInput("this is a checkpoint, and not a compiled model", file=source, hint=hint)
    what = "no manifest.json" if source.is_dir() else "no such folder"
    hint = f"{COMPILE.format(source='CHECKPOINT', name='FOLDER')} makes a folder that can be run"
    return BadInput(f"no compiled model: {what}", file=path, hint=hint)


def other_schema(path: Path, schema: object, known: str) -> BadInput:
    """The error to raise where ``manifest.json`` is of another schema than the ``known`` one."""
    format_name = known.partition("/")[0]
    if not isinstance(schema, str) or schema.partition("/")[0] != format_name:
        return BadInput(f"this is not a manifest of schema {known}", file=path)
    what = f"the model was compiled by another release of maxtool: {schema:.40} is not {known}"
    newer = _number(schema) > _number(known)
    way_out = "use a newer release" if newer else "compile it again"
    return BadInput(what, file=path, hint=f"{way_out}, or the run.py in its own folder")


def _number(schema: str) -> int:
    """The number behind the name of a schema, or 0."""
    number = schema.partition("/")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else 0


def another_task(task: str | None) -> DoesNotFit:
    """The error to raise where a model of this task is asked to do another."""
    what, hint = TASKS[task]
    return DoesNotFit(what, hint=hint)


def _is_checkpoint(path: Path) -> bool:
    """Return whether a path looks like a source of ``maxtool compile``, by name or content."""
    if path.is_file():
        return path.suffix in SUFFIXES
    return any(next(path.glob(pattern), None) for pattern in PATTERNS)
