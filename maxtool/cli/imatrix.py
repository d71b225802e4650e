"""``maxtool imatrix``: how much the columns of a model's matrices count, measured on a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maxtool.cli import options, units
from maxtool.cli.output import Output
from maxtool.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from maxtool.evaluation.language_model import LanguageModel
    from maxtool.weights.importance_writing import ColumnSquares, MeasuredImportance

SCHEMA = "maxtool.imatrix/1"


def imatrix(
    out: Output,
    folder: options.Artifact,
    text: Annotated[
        Path | None, typer.Argument(metavar="[TEXT]", help="The text to read, in UTF-8.")
    ] = None,
    *,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write; .dat has the older form."
        ),
    ],
    tokens: options.Tokens = None,
    context: options.WindowLength = None,
    windows: options.WindowCount = None,
    process_output: Annotated[
        bool, options.flag("--process-output", help="Measure the head too: output.weight.")
    ] = False,
    recipe: options.Recipe = None,
    no_verify: options.NoVerify = False,
    force: options.Force = False,
) -> None:
    """Measure an importance matrix, for --imatrix of convert and compile.

    The compiled model reads a text. Of each column of each matrix in its layers, the file has the
    sum of the squares of what it was multiplied with, in llama.cpp's form.
    """
    from maxtool.evaluation.language_model import LanguageModel
    from maxtool.files.outputs import check_output
    from maxtool.files.staging import staged
    from maxtool.weights.importance_writing import OLDER, write_importance

    if (text is None) == (tokens is None):
        raise UsageError("give a text, or token ids with --tokens")
    path = options.local_output(output)
    read = tuple(file for file in (folder, text, tokens) if file is not None)
    check_output(path, force=force, sources=read)
    with out.progress("opening"):
        model = LanguageModel(folder, check=not no_verify)
    named = None if recipe is None else options.local_recipe(recipe)
    names = _names(model, named, head=process_output)
    ids = _ids(model, text, tokens)
    measured = _measured(out, model, ids, names, context, windows, str(text or tokens))
    with staged(path, replace=force) as staging:
        write_importance(staging, measured, older=path.suffix == OLDER)
    _show(out, folder, path, measured)


def _names(model: LanguageModel, named: str | None, *, head: bool) -> dict[str, str]:
    """GGUF's names of the matrices to watch, as the recipe that the model was compiled by has."""
    from maxtool.errors import ModelMismatch
    from maxtool.evaluation.column_squares import candidates
    from maxtool.recipe import load_recipe, written_by
    from maxtool.recipe.matrix_names import weighed_matrices
    from maxtool.recipe.recipe_files import recipe_names

    recipe, own = named, model.loaded.manifest.root.get("recipe")
    if recipe is None and not isinstance(own, str):
        what = "the model was not compiled by a recipe, which would know GGUF's names"
        raise ModelMismatch(what, file=model.folder, hint="name one with --recipe")
    if recipe is None and own not in recipe_names():
        what = f"the model was compiled by the recipe {own!r:.80}, which maxtool does not come with"
        raise ModelMismatch(what, file=model.folder, hint="name its file with --recipe")
    part = written_by(load_recipe(recipe or str(own)), "gguf")
    return weighed_matrices(part, candidates(model.loaded), head=head)


def _ids(model: LanguageModel, text: Path | None, tokens: Path | None) -> NDArray[np.int64]:
    """The tokens of the text, or those in the file."""
    from maxtool.evaluation.corpus import read_ids, read_text

    return read_ids(tokens or Path()) if text is None else model.encode(read_text(text))


def _measured(
    out: Output,
    model: LanguageModel,
    ids: NDArray[np.int64],
    names: dict[str, str],
    context: int | None,
    most: int | None,
    dataset: str,
) -> MeasuredImportance:
    """Read the windows of a text."""
    from maxtool.evaluation.column_squares import measure
    from maxtool.evaluation.comparing import window_length
    from maxtool.evaluation.windows import cut
    from maxtool.weights.importance_writing import MeasuredImportance

    windows = cut(ids, window_length([model], context), model.bos, most)
    with out.progress("reading") as meter:
        meter.stage("reading", windows.ids.size, "token")
        squares = measure(model, windows, names, meter)
    # Parameters that are one tensor in GGUF are multiplied with the same.
    named = {names[parameter]: each for parameter, each in squares.items()}
    return MeasuredImportance(named, windows.count, windows.length, dataset)


def _show(out: Output, folder: Path, path: Path, measured: MeasuredImportance) -> None:
    """Say what was written, and which experts the text has nothing for."""
    for name, squares in sorted(measured.squares.items()):
        if unused := _unused(squares):
            experts = units.plural(len(squares.counts), "expert")
            out.warn(f"{name}: {unused} of {experts} never used: a longer text may use them")
    count, length = measured.chunks, measured.chunk_size
    if out.json_mode:
        sizes = {"context": length, "windows": count, "tokens": count * length}
        content = {"folder": str(folder), "text": measured.dataset, "output": str(path), **sizes}
        out.data(SCHEMA, {**content, "matrices": _as_json(measured)})
    else:
        tensors = units.plural(len(measured.squares), "tensor")
        read = f"{units.plural(count, 'window')} of {length} tokens"
        out.say(f"wrote {path}: importance for {tensors}, from {read}")


def _unused(squares: ColumnSquares) -> int:
    return int((squares.counts == 0).sum())


def _as_json(measured: MeasuredImportance) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "columns": squares.sums.shape[1],
            "experts": len(squares.counts) if len(squares.counts) > 1 else None,
            "rows": int(squares.counts.sum()),
            "unused": _unused(squares),
        }
        for name, squares in sorted(measured.squares.items())
    ]
