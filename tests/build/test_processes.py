"""Steps in processes of their own: what they send while they run, and in the end."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from pathlib import Path

from maxtool.build.executor import Sent
from maxtool.build.processes import LOST, Processes
from maxtool.build.step import Step


def work(_folder: Path, step: Step, sender: Connection) -> None:
    for percent in (25, 50):
        sender.send(f"{step.source} {percent}%")
    if step.name == "lost":
        os._exit(1)
    sender.send(Sent(said=step.name))


def test_steps_tell_how_far_they_are(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    processes = Processes(tmp_path, work, lambda *line: told.append(line))
    names = ["a", "b", "lost"]
    for name in names:
        processes.begin(Step(name, "copy", (), f"source of {name}", None, ()), 0)
    ended: dict[str, Sent] = {}
    while len(ended) < len(names):
        ended |= dict(processes.ended())
    assert {name: sent.said for name, sent in ended.items()} == {"a": "a", "b": "b", "lost": ""}
    assert ended["lost"].error == LOST
    expected = {(name, f"source of {name} {percent}%") for name in names for percent in (25, 50)}
    assert {*told} == expected
    assert len(told) == len(expected)
