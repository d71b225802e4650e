"""``maxtool recipes new``: a recipe proposed for a model that none recognises."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maxtool.cli import options, units
from maxtool.cli.output import Output
from maxtool.errors import ModelMismatch, UsageError

if TYPE_CHECKING:
    from maxtool.recipe.proposing.proposal import Proposal
    from maxtool.weights import Checkpoint

SCHEMA = "maxtool.recipes-new/1"
UNTOLD = (
    "No header tells what a network computes with its tensors: compare the outputs of the compiled "
    "model with those of the original"
)


def recipes_new(
    out: Output,
    checkpoint: options.Source,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE.toml", help="Write the recipe to a file, not to stdout."
        ),
    ] = None,
    force: options.Force = False,
) -> None:
    """Propose a recipe for a model that none recognises, by its headers.

    It extends the nearest recipe, and says where tensors and keys have other names, as far as that
    can be guessed. What it does not explain is told: then it exits with 4.
    """
    from maxtool.files import staged
    from maxtool.files.outputs import check_output
    from maxtool.recipe.proposing.propose import propose
    from maxtool.recipe.recipe_files import RECIPE_SUFFIX
    from maxtool.sources import open_named

    path = None if output is None else options.local_output(output)
    if path is not None:
        if path.suffix != RECIPE_SUFFIX:
            raise UsageError(f"a recipe's file ends in {RECIPE_SUFFIX}", file=path)
        check_output(path, force=force)
    opened = open_named(checkpoint).checkpoint
    _check_unknown(opened, checkpoint)
    with out.progress("looking at recipes"):
        proposal = propose(opened)
    text = proposal.text(checkpoint)
    if path is not None:
        with staged(path, replace=force) as staging:
            staging.write_text(text, encoding="utf-8")
    if out.json_mode:
        out.data(SCHEMA, _as_json(proposal, text, path))
    else:
        _show(out, proposal, text, path, checkpoint)
    if proposal.open:
        raise typer.Exit(ModelMismatch.exit_code)


def _check_unknown(opened: Checkpoint, named: str) -> None:
    """Refuse a model that a recipe recognises already."""
    from maxtool.errors import UnknownArchitecture
    from maxtool.recipe import find_recipe

    try:
        recipe = find_recipe(opened)
    except UnknownArchitecture:
        return
    raise UsageError(
        f"the recipe {recipe.name} recognises this model",
        file=opened.path,
        hint=f"maxtool recipes check {recipe.name} {named} shows what it makes of it",
    )


def _show(out: Output, proposal: Proposal, text: str, path: Path | None, named: str) -> None:
    if path is None:
        for line in text.splitlines():
            out.text(line)
    else:
        out.say(f"wrote {path}")
    guessed = [
        *([f"{units.plural(len(proposal.names), 'name')} of tensors"] if proposal.names else []),
        *([units.plural(len(proposal.keys), "key")] if proposal.keys else []),
    ]
    out.note(f"{proposal.kind}: nearest to {proposal.base}{_as_near(proposal)}")
    if guessed:
        out.note(f"guessed, and to be looked at: {' and '.join(guessed)}")
    if proposal.open:
        out.warn(f"{units.plural(len(proposal.open), 'line')} marked OPEN in it: not explained")
    else:
        out.note(f"{units.plural(proposal.parameters, 'parameter')}: everything fits")
        out.note(UNTOLD)
    file = path if path is not None else f"{proposal.name}.toml"
    out.command(f"look at it: maxtool recipes check {file} {named}")


def _as_near(proposal: Proposal) -> str:
    return f" (as near: {', '.join(proposal.alike)})" if proposal.alike else ""


def _as_json(proposal: Proposal, text: str, path: Path | None) -> dict[str, object]:
    return {
        "base": proposal.base,
        "as_near": {name: dict(values) for name, values in proposal.alike.items()},
        "kind": proposal.kind,
        "name": proposal.name,
        "recipe": text,
        "output": None if path is None else str(path),
        "guessed": {
            "tensors": {one.found: one.known for one in proposal.names},
            "keys": dict(proposal.keys),
        },
        "parameters": proposal.parameters,
        "open": list(proposal.open),
    }
