"""``maxtool run``: what an artifact's own ``run.py`` does, with the same options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maxtool.cli import options
from maxtool.cli.output import Output
from maxtool.cli.programs import execute, integers, json_object


def run(
    out: Output,
    folder: options.Artifact,
    prompt: Annotated[str | None, typer.Option(help="Text to continue.")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A file of text to continue; - is stdin.")
    ] = None,
    ids: Annotated[str | None, typer.Option(help="Token ids to continue, such as 1,2,3.")] = None,
    chat: Annotated[
        bool, options.flag("--chat", help="Converse: reply to --prompt, --file, or each line.")
    ] = False,
    system: Annotated[
        str | None, typer.Option(help="What the model is told before a conversation.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A Jinja file to use with --chat.")
    ] = None,
    chat_template_kwargs: Annotated[
        str | None, typer.Option(metavar="JSON", help="What the template is given besides.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens to make: 100, with --chat what fits.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Draw from the K likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the likeliest tokens with the share P.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Draw from tokens with P times the best token's share.")
    ] = None,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: repeat less of the text so far.")
    ] = 1.0,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; repeatable.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Make drawing repeatable.")] = None,
    inputs: Annotated[
        Path | None, typer.Option(metavar="NPZ", help="Arrays to run an entry on.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="NPZ", help="Where the outputs of --inputs go.")
    ] = None,
    entry: Annotated[str, typer.Option(help="The entry to run.")] = "forward",
    info: Annotated[bool, options.flag("--info", help="Say what the model is.")] = False,
    check: Annotated[
        bool, options.flag("--check", help="Compare with the outputs recorded by compile --check.")
    ] = False,
    device: options.Device = None,
    force: Annotated[bool, options.flag("--force", help="Replace an existing --output.")] = False,
    no_verify: Annotated[bool, options.flag("--no-verify", help="Skip the checksums.")] = False,
) -> None:
    """Run a compiled model on text or on arrays."""
    from maxtool.runtime import loader

    options = loader.Options(
        folder=folder,
        prompt=prompt,
        file=file,
        ids=None if ids is None else integers(ids),
        chat=chat,
        system=system,
        chat_template=chat_template,
        chat_template_kwargs=None
        if chat_template_kwargs is None
        else json_object(chat_template_kwargs),
        max_tokens=max_tokens,
        sampling=loader.Sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
        ),
        stop=stop,
        inputs=inputs,
        output=output,
        entry=entry,
        force=force,
        info=info,
        check=check,
        verify=not no_verify,
        device=device,
        json=out.json_mode,
        quiet=out.quiet,
    )
    execute(options)
