"""The options by which a conversion is spread over several processes, and machines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from maxtool.cli import complete
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from maxtool.cli.output import Output
    from maxtool.cli.progress import Meter
    from maxtool.conversion import Conversion, Report

SHARE = re.compile(r"(\d{1,5})/(\d{1,5})", re.ASCII)
FINISH = "finish"


@dataclass(frozen=True)
class Way:
    """The way in which a conversion is run.

    Attributes:
        planned: What this process writes.
        run: What writes it, and tells a meter of bytes.
        label: What is done, while it is.
        share: Which share that is, or ``finish``; empty where it is all.
        nbytes: The bytes that the meter is told; those of the output if it is None.
    """

    planned: Conversion
    run: Callable[[Meter], Report]
    label: str = "converting"
    share: str = ""
    nbytes: int | None = None

    @property
    def told(self) -> int:
        """Return the bytes that the meter is told."""
        return self.planned.nbytes if self.nbytes is None else self.nbytes

    @property
    def is_whole(self) -> bool:
        """Return whether the output is there once it was run."""
        return self.share in ("", FINISH)


EXECUTORS = ("ray",)
ExecutorName = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="NAME",
        help="ray: run it on the nodes of a Ray cluster, which share a file system.",
        autocompletion=complete.one_of(*EXECUTORS),
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        help="HOST:PORT of the cluster's head; RAY_ADDRESS if absent, or this machine's cluster.",
    ),
]


@dataclass(frozen=True)
class SpreadOptions:
    """The share that is written here, or the cluster that writes all."""

    shards: Annotated[
        str | None,
        typer.Option(
            "--shards",
            metavar="I/N",
            help="Write share I of N of the files only; 'finish' then makes the output of them.",
            autocompletion=complete.one_of(FINISH),
        ),
    ] = None
    executor: ExecutorName = None
    ray_address: RayAddress = None

    @property
    def is_asked(self) -> bool:
        """Return whether several processes write the output."""
        return self.shards is not None or self.executor is not None

    def check(self) -> None:
        """Refuse what is no share and no executor."""
        if self.shards not in (None, FINISH):
            _numbers(str(self.shards))
        check_executor(self.executor, self.ray_address)
        if self.shards is not None and self.executor is not None:
            raise UsageError("--shards and --executor exclude each other")

    def way(self, out: Output, planned: Conversion) -> Way:
        """The way in which a conversion is run that these options ask for."""
        from maxtool import conversion
        from maxtool.conversion import shares
        from maxtool.conversion.part_places import folder_of

        if self.executor is not None:
            return Way(planned, lambda meter: self._on_cluster(out, planned, meter))
        if self.shards is None and planned.request.destination is not None:
            both = 2 * planned.nbytes  # made, and sent
            return Way(planned, lambda meter: shares.write_all(planned, meter, meter), nbytes=both)
        if self.shards is None:
            return Way(planned, lambda meter: conversion.convert(planned, meter))
        folder = folder_of(planned)
        if self.shards == FINISH:
            shares.check_parts_of(planned, folder)
            return Way(
                planned, lambda meter: shares.finish(planned, folder, meter), "checking", FINISH
            )
        share = shares.Share(*_numbers(self.shards))
        return Way(
            share.part_of(planned),
            lambda meter: shares.write_share(planned, share, folder, meter),
            share=str(share),
        )

    def _on_cluster(self, out: Output, planned: Conversion, meter: Meter) -> Report:
        """Write all files on a cluster, and make the output of them here."""
        from maxtool.cluster import Tasks, connected
        from maxtool.cluster.conversion import write_on
        from maxtool.conversion import shares
        from maxtool.conversion.part_places import folder_of

        folder = folder_of(planned)
        meter.steps(2)
        meter.stage("converting", planned.nbytes)
        with connected(self.ray_address):
            written = write_on(Tasks(out.warn), planned, folder, meter)
        meter.stage("checking", planned.nbytes)
        report = shares.finish(planned, folder, meter)
        told = dict.fromkeys(warning for one in written for warning in one.warnings)
        report.warnings += [warning for warning in told if warning not in report.warnings]
        report.kept = sorted(name for one in written for name in one.kept)
        return report


def check_executor(executor: str | None, address: str | None) -> None:
    """Refuse an executor that there is not, and an address without one."""
    if executor is not None and executor not in EXECUTORS:
        raise UsageError(f"--executor {executor!r:.80} is not one of {', '.join(EXECUTORS)}")
    if address is not None and executor is None:
        raise UsageError("--ray-address is for --executor ray")


def _numbers(text: str) -> tuple[int, int]:
    """The numbers of a share as a user writes it, such as ``3/16``; it is counted from 1."""
    match = SHARE.fullmatch(text)
    number, of = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= of:
        hint = None
        if match and number == 0 and of:
            hint = f"shares are counted from 1: 1/{of} to {of}/{of}, in Slurm --array=1-{of}"
        what = f"--shards takes I/N with I from 1 to N, such as 3/16, or {FINISH}"
        raise UsageError(f"{what}, not {text!r:.80}", hint=hint)
    return number, of
