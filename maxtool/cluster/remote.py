"""The part that runs on a node: a function of maxtool, in the folder that the command runs in."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxtool import __version__
from maxtool.errors import MachineLacks, MaxtoolError


@dataclass(frozen=True)
class Call:
    """A function with its arguments, and where it is to run.

    Attributes:
        function: The function, of a module of maxtool.
        arguments: Its arguments.
        folder: The folder that paths are relative to.
        version: The version of maxtool that asks.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    folder: Path
    version: str = __version__


@dataclass(frozen=True)
class Ended:
    """End of a call: what it returned, or the error that it raised.

    Attributes:
        value: What it returned.
        error: What it raised, of the kinds that commands tell in one message.
        node: The name of the machine.
    """

    value: Any
    error: MaxtoolError | OSError | MemoryError | None
    node: str


def run(call: Call) -> Ended:
    """Run a call on this node."""
    node = socket.gethostname()
    try:
        _check(call, node)
        return Ended(call.function(*call.arguments), None, node)
    except (MaxtoolError, OSError, MemoryError) as error:
        return Ended(None, error, node)


def _check(call: Call, node: str) -> None:
    """Go to the folder of a call; ``MachineLacks`` where this node cannot do what was asked."""
    if call.version != __version__:
        what = f"node {node} has maxtool {__version__}, and {call.version} asks it"
        raise MachineLacks(what, hint="install the same version on all nodes")
    try:
        os.chdir(call.folder)
    except OSError as error:
        what = f"node {node} has no such folder: {error.strerror}"
        hint = "all nodes need the paths of this machine, on storage that they share"
        raise MachineLacks(what, file=call.folder, hint=hint) from None
