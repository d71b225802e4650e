"""Work that a build runs in place of models: it joins files, and notes that it ran."""

from __future__ import annotations

import hashlib
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

from maxtool.build.executor import Sent
from maxtool.build.step import Kind, OptionForm, Step

LOG = "log.txt"
KINDS = {
    "join": Kind("join", "joined", {"with": OptionForm("--with", is_repeated=True)}, base_bytes=1),
    "test": Kind("test", "tested", {}, has_output=False),
    "measure": Kind("measure", "measured", {}, is_alone=True, base_bytes=1),
}


def work(folder: Path, step: Step, sender: Connection) -> None:
    """Write all inputs and the name; a source "broken" fails, "killed" ends the process."""
    os.chdir(folder)
    _log(f"begin {step.name}")
    time.sleep(0.02)
    inputs = [step.source, *(word.removeprefix("--with=") for word in step.argv[2:])]
    texts = [Path(path).read_text() for path in inputs]
    if "killed" in texts:
        os.abort()
    if "broken" in texts:
        sender.send(Sent(error={"what": "it is broken", "exit_code": 4}))
        return
    outputs = {}
    if step.output:
        text = "+".join([*texts, step.name])
        path = Path(step.output)
        if step.output.endswith("/"):
            path.mkdir(exist_ok=True)
            path /= "inside"
        path.write_text(text)
        outputs = {str(path): hashlib.sha256(text.encode()).hexdigest()}
    _log(f"end {step.name}")
    sender.send(Sent({}, None, "", inputs, outputs, peak_bytes=100))


def _log(line: str) -> None:
    with Path(LOG).open("a") as stream:
        stream.write(f"{line}\n")
