"""``maxtool serve``: compiled models behind HTTP, in the form of OpenAI's API."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maxtool.cli import complete, options
from maxtool.cli.output import Output
from maxtool.cli.sizes import parse_size
from maxtool.errors import MachineLacks, UsageError

if TYPE_CHECKING:
    import socket

    from maxtool.serve.limits import Limits
    from maxtool.serve.served import Served

KEY = "MAXTOOL_API_KEY"
COUNTED = (
    "max_prompt",
    "max_tokens",
    "queue",
    "chunk",
    "max_connections",
    "read_timeout",
    "timeout",
    "stop_timeout",
)
PACKAGES = {"anyio", "prometheus_client", "starlette", "uvicorn"}


@dataclass(frozen=True)
class Asking:
    """Limits of requests, as options."""

    max_body: Annotated[
        str, typer.Option("--max-body", metavar="SIZE", help="Bytes of a request at most.")
    ] = "1MiB"
    max_prompt: Annotated[
        int | None,
        typer.Option(
            "--max-prompt", metavar="N", help="Tokens of a prompt; the context if absent."
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", help="Tokens to make for a prompt at most."),
    ] = None
    queue: Annotated[
        int, typer.Option("--queue", metavar="N", help="Texts that may wait for each model.")
    ] = 256
    chunk: Annotated[
        int,
        typer.Option(
            "--chunk",
            metavar="N",
            help="Tokens of prompts that are read between two tokens of other texts.",
        ),
    ] = 128
    max_connections: Annotated[
        int,
        typer.Option("--max-connections", metavar="N", help="Connections of clients at a time."),
    ] = 512
    read_timeout: Annotated[
        float,
        typer.Option(
            "--read-timeout",
            metavar="SECONDS",
            help="Time for the head of a request to come, and for its body.",
        ),
    ] = 30.0
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Time to answer a request.")
    ] = 600.0
    stop_timeout: Annotated[
        float,
        typer.Option(
            "--stop-timeout",
            metavar="SECONDS",
            help="Time that running answers have when the server is stopped.",
        ),
    ] = 10.0

    def limits(self) -> Limits:
        """The limits that these say; refuses what is none."""
        from maxtool.serve.limits import Limits

        for name in COUNTED:
            value = getattr(self, name)
            if value is not None and not 1 <= value < 1e9:
                raise UsageError(f"--{name.replace('_', '-')} counts from 1 up, not {value}")
        return Limits(
            body=parse_size(self.max_body, "--max-body") or 0,
            prompt=self.max_prompt,
            tokens=self.max_tokens,
            queue=self.queue,
            chunk=self.chunk,
            connections=self.max_connections,
            read_seconds=self.read_timeout,
            seconds=self.timeout,
            stop_seconds=self.stop_timeout,
        )


def serve(
    out: Output,
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...", help="Folders that maxtool compile wrote.", show_default=False
        ),
    ],
    host: Annotated[
        str,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on; 0.0.0.0 is all."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            help=f"What clients must know; others see an option, so better set {KEY}.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors", metavar="ORIGIN", help="Pages of this origin may ask. May be repeated."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="cpu, cuda, or cuda:1; what it was compiled for if absent.",
            autocompletion=complete.one_of("cpu", "cuda"),
        ),
    ] = None,
    no_verify: options.NoVerify = False,
    *,
    asking: Asking,
) -> None:
    """Serve compiled models over HTTP, in the form of OpenAI's API.

    Chats, completions and embeddings, streaming too; a page at / tries them. Models that were
    compiled with --batch continue several texts at once.
    """
    limits, key = asking.limits(), api_key if api_key is not None else os.environ.get(KEY)
    _check(host, port, key)
    with _extra():
        from maxtool.serve import opened, server
        from maxtool.serve.metrics import Metrics
    names, metrics = opened.names_of(folders), Metrics()
    with server.listen(host, port) as listener:
        with out.progress("loading models") as meter:
            models = opened.opened(
                names, limits, metrics, device=device, check=not no_verify, progress=meter.stage
            )
        limits = _within_files(out, limits)
        access = server.Access(host=host, key=key, origins=cors or ())
        app = server.application(models, access, limits, metrics)
        _announce(out, listener, models)
        server.Server(app, models, limits).serve_on(listener)
    out.note("stopped")


def _check(host: str, port: int, key: str | None) -> None:
    """Refuse options that mean nothing."""
    if not host.isascii() or not host.isprintable() or not host.strip():
        hint = "127.0.0.1 is this machine alone, 0.0.0.0 every address of it"
        raise UsageError(f"--host {host!r} is not an address", hint=hint)
    if not 0 <= port < 1 << 16:
        raise UsageError(f"--port {port} is not from 0 to 65535")
    if key is not None and (not key.isascii() or not key.isprintable() or not key.strip()):
        raise UsageError("the API key must be of printable ASCII characters, and not empty")


def _within_files(out: Output, limits: Limits) -> Limits:
    """The limits, with fewer connections where no more files may be open."""
    from maxtool.serve.open_files import connections_within

    most = connections_within(limits.connections)
    if most < limits.connections:
        few = f"{most} connections at a time instead of {limits.connections}"
        out.note(f"{few}, as no more files may be open; ulimit -n sets that")
    return replace(limits, connections=most)


@contextmanager
def _extra() -> Iterator[None]:
    """Name the extra where its packages are missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        what = f"serving needs the package {error.name}"
        raise MachineLacks(what, hint="pip install 'maxtool[serve]'") from None


def _announce(out: Output, listener: socket.socket, models: list[Served]) -> None:
    """Say where the server is, which answers from now on."""
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    if out.json_mode:
        listed = [{"id": served.name, **served.facts()} for served in models]
        out.data("maxtool.serve/1", {"url": url, "models": listed})
    else:
        names = ", ".join(served.name for served in models)
        out.text(f"serving {names} at {url}")
        out.note("Ctrl-C stops it")
    sys.stdout.flush()
