"""Options that several commands have, written once, and the names users give to types."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from maxtool.cli import complete
from maxtool.cli.optional_values import CHECKS
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from maxtool.artifact.request import Against, CacheType
    from maxtool.cli.output import Output
    from maxtool.dtype import DType
    from maxtool.object_storage import Destination
    from maxtool.sources import Needed
    from maxtool.sources import Source as NamedSource


DTYPES = ("float32", "float16", "bfloat16")
# What other tools call them.
ALIASES = {
    **dict.fromkeys(("fp32", "f32"), "float32"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    "bf16": "bfloat16",
}
CACHE_TYPES = (*DTYPES, "Q8_0")
# A module of a user's: FILE.py:NAME.
CODE = re.compile(r"\.py(:.*)?$")
POOLINGS = ("mean", "cls", "max", "last")


def flag(*names: str, help: str) -> Any:  # noqa: A002, ANN401 - typer's names and types
    """An option that is there or not: help shows no type for it."""
    return typer.Option(*names, metavar="", help=help)


Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A Hugging Face folder, a safetensors, PyTorch or GGUF file, or its URL.",
    ),
]
RECIPE_HELP = "A recipe's name, or a .toml file."
Recipe = Annotated[
    str | None,
    typer.Option("--recipe", metavar="RECIPE", help=RECIPE_HELP, autocompletion=complete.recipes),
]
NamedRecipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help=RECIPE_HELP, autocompletion=complete.recipes)
]
Artifact = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder that maxtool compile wrote.")
]
Force = Annotated[bool, flag("--force", help="Replace an existing output.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE.html", help="Draw pictures into a page of HTML."),
]
NoVerify = Annotated[bool, flag("--no-verify", help="Skip the checksums.")]
Tokens = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="NPY", help="Token ids instead, of an integer array."),
]
WindowLength = Annotated[
    int | None,
    typer.Option("--context", metavar="N", help="Tokens of a window: 512, or what fits."),
]
WindowCount = Annotated[
    int | None, typer.Option("--windows", metavar="N", help="Only the first N windows.")
]
DryRun = Annotated[
    bool, flag("--dry-run", help="Show the plan and the exact bytes; write nothing.")
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", help="What the model is called; its own name if absent, never its folder's."
    ),
]
IgnoreConfig = Annotated[
    list[str] | None,
    typer.Option("--ignore-config", metavar="KEY", help="Let a configuration key pass."),
]


def source(
    out: Output,
    text: str,
    output: Path | None = None,
    *,
    force: bool = False,
    needed: Needed = "model",
) -> NamedSource:
    """The checkpoint or file that a user names by a path, a URL or as a repository.

    What is not on this machine is brought; that the output may be written is checked before.
    """
    from maxtool import sources
    from maxtool.files.outputs import check_output

    if output is not None and sources.local(text) is None:
        check_output(output, force=force)
    brought = sources.bring(text, out.progress, needed)
    for warning in brought.warnings:
        out.warn(warning)
    if brought.commit is not None:
        out.note(f"{brought.name}: commit {brought.commit}")
    return brought


def with_source(
    out: Output,
    text: str,
    work: Callable[[NamedSource], None],
    output: Path,
    *,
    force: bool = False,
    headers_alone: bool = False,
) -> None:
    """Do what is to be done with a source, of which ``headers_alone`` are brought where they do.

    The work is begun again, with the whole files, where it turns out that it needs these.
    """
    from maxtool import sources
    from maxtool.weights.header_copies import PayloadNeeded

    if headers_alone:
        try:
            with sources.outlined(text, out.progress) as outline:
                if outline is not None:
                    for warning in outline.warnings:
                        out.warn(warning)
                    return work(outline)
        except PayloadNeeded:
            out.note("the plan depends on values of tensors: the files are brought")
    return work(source(out, text, output, force=force))


def source_path(out: Output, text: str | None, needed: Needed = "model") -> Path | None:
    """The path of what :func:`source` brings; None stays."""
    return None if text is None else source(out, text, needed=needed).path


def configuration_path(
    out: Output, text: str | None, headers: ExitStack | None = None
) -> Path | None:
    """The path of a model of which the configuration is needed; None stays.

    That of a GGUF file is in its header, which alone is brought where ``headers`` keeps it.
    """
    from maxtool import sources

    if text is None or headers is None or not text.lower().endswith(".gguf"):
        return source_path(out, text, "configuration")
    outline = headers.enter_context(sources.outlined(text, out.progress))
    return source_path(out, text) if outline is None else outline.path


def check_not_code(text: str) -> None:
    """Refuse code behind a URL, which would be executed."""
    from maxtool.urls import is_url

    if is_url(text) and CODE.search(text):
        what = "a module is executed, and so it is read from a path of this machine alone"
        _refuse_url(text, what, "download it, look at it, and give the path here")


def is_onnx(text: str) -> bool:
    """Return whether a user's source is an ONNX model, by its name."""
    return text.lower().endswith(".onnx")


def local_recipe(text: str) -> str:
    """The name or file that a user gives as a recipe."""
    _refuse_url(text, "recipes are not read from URLs", "download it first, and give the file here")
    return text


def local_output(text: str) -> Path:
    """The path that a user names to be written."""
    hint = "write it to a path of this machine, and copy it from there"
    _refuse_url(text, "only maxtool convert writes to URLs, of object stores", hint)
    if text == "-":
        hint = "name a file or folder; ./- is one of that name"
        raise UsageError("the output cannot be written to stdout", hint=hint)
    return Path(text)


class Place(NamedTuple):
    """Place of an output: a path, and a name in an object store if it goes there."""

    path: Path
    destination: Destination | None = None


def output_place(text: str, *, if_changed: bool = False) -> Place:
    """The place that a user names to be written, on this machine or in an object store."""
    from maxtool.object_storage import Destination
    from maxtool.urls import is_url, local_path

    path = local_path(text) if is_url(text) else None
    if path is not None or not is_url(text):
        return Place(local_output(text if path is None else str(path)))
    destination = Destination.parse(text)
    if if_changed:
        what = "--if-changed compares what is on this machine, and the output is elsewhere"
        hint = "leave it out, and pass --force to replace the output"
        raise UsageError(what, file=destination.shown, hint=hint)
    return Place(Path(destination.name), destination)


def _refuse_url(text: str, what: str, hint: str) -> None:
    from maxtool.urls import is_url, redacted

    if is_url(text):
        raise UsageError(what, file=redacted(text), hint=hint)


def parse_pooling(text: str | None) -> str | None:
    """Return the pooling that a user's word names; None stays None."""
    if text is not None:
        _check_known("--pooling", text, text, POOLINGS)
    return text


def _check_known(option: str, text: str, name: str, known: Sequence[str]) -> None:
    """Refuse the text of an option if what it names is not known."""
    if name not in known:
        raise UsageError(f"{option} {text!r} is not one of {', '.join(known)}")


def parse_check(text: str) -> Against:
    """Parse the user's name of the reference of a check."""
    if text not in CHECKS:
        from maxtool.weights.names import did_you_mean

        *others, last = CHECKS
        what = f"--check takes {', '.join(others)} or {last}, not {text!r:.80}"
        raise UsageError(what, hint=did_you_mean(text[:80], CHECKS))
    return cast("Against", text)


def parse_dtype(
    text: str | None, option: str = "--dtype", known: Sequence[str] = DTYPES
) -> DType | None:
    """The element type that a user names for matrices, or by another option; None stays."""
    from maxtool.dtype import DType

    if text is None:
        return None
    name = ALIASES.get(text.lower(), text.lower())
    _check_known(option, text, name, known)
    return DType(name)


def parse_cache_type(text: str | None) -> CacheType | None:
    """The type of a decoder's cache that a user names; None stays."""
    from maxtool.quantization import QuantizationEncoding

    if text is None or text.upper() != CACHE_TYPES[-1]:
        return parse_dtype(text, "--kv-dtype", CACHE_TYPES)
    return QuantizationEncoding.Q8_0
