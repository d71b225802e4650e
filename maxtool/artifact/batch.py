"""The number of texts that a decoder continues at once, and what it asks for."""

from __future__ import annotations

import os

from maxtool.artifact.request import Request
from maxtool.compiler.targets import Target
from maxtool.errors import MachineLacks, UsageError
from maxtool.runtime.loader.specs import MAX_BATCH


def check_request(request: Request, target: Target) -> None:
    """Refuse a number of slots that there is no kernel, or no loader, for."""
    if not 1 <= request.batch <= MAX_BATCH:
        raise UsageError(f"--batch {request.batch} is not from 1 to {MAX_BATCH}")
    if request.batch > 1 and target.kind != "cpu":
        what = f"--batch is for CPUs: no kernel of {target.label} knows slots"
        raise UsageError(what, hint="compile for cpu or cpu:NAME, or without --batch")
    if request.batch > 1 and request.devices > 1:
        raise UsageError("--batch and --devices exclude each other")


def refuse(request: Request, recipe: str) -> None:
    """Refuse slots for what writes no texts."""
    if request.batch > 1:
        what = f"--batch is for models that write texts, not {recipe}"
        raise UsageError(what, hint="others take texts together as they are: embed --batch")


def check_memory(batch: int, nbytes: int, target: Target) -> None:
    """Refuse more slots than the memory of this machine holds, where the artifact is for it.

    ``nbytes`` are the caches, all of them full, and the weights.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if batch > 1 and target.host and nbytes > memory:
        what = f"weights and the caches of {batch} texts take {nbytes >> 20} MiB"
        raise MachineLacks(
            f"{what}, and this machine has {memory >> 20} MiB",
            hint="choose a smaller --batch or --context, or --kv-dtype float16",
        )
