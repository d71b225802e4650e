"""Terminals, pipes and closed streams, and the program of an artifact that writes to them."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from maxtool.runtime.loader import terminal

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import PROMPT, manifest_of


def test_control_characters_are_escaped(artifact: Path) -> None:
    root = {**manifest_of(artifact), "name": "\x1b[31mred"}
    root["entries"]["\x1b[2J"] = root["entries"]["forward"]
    tiny_artifact.write(artifact, root)
    done = tiny_artifact.run(artifact, "--info")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\x1b" not in tiny_artifact.run(artifact, "--inputs", "\x1b[2J.npz").stderr


def test_a_closed_pipe_is_quiet(artifact: Path) -> None:
    command = f"{sys.executable} {artifact}/run.py --prompt '{PROMPT}' -q | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_lines_that_nobody_reads(artifact: Path) -> None:
    near, far = os.pipe()
    os.close(near)
    command = [sys.executable, artifact / "run.py", "--prompt", PROMPT, "--json-stream"]
    done = subprocess.run(command, stdout=far, stderr=subprocess.PIPE, check=False)
    os.close(far)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="pipes have one size here")
def test_lines_that_are_interrupted(artifact: Path, interruptible: Callable[[], None]) -> None:
    """The pipe has no room for the last of them: what came until then is whole."""
    near, far = os.pipe()
    filler = b"x" * (fcntl.fcntl(far, fcntl.F_SETPIPE_SZ, 4096) - 400)
    os.write(far, filler)
    command = [sys.executable, artifact / "run.py", "--prompt", PROMPT, "--json-stream", "-q"]
    with subprocess.Popen(
        command, stdout=far, stderr=subprocess.PIPE, preexec_fn=interruptible
    ) as process:
        os.close(far)
        while int.from_bytes(fcntl.ioctl(near, termios.FIONREAD, bytes(4)), sys.byteorder) == len(
            filler
        ):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        with os.fdopen(near, "rb") as stream:
            said = stream.read().removeprefix(filler)
        assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 130
    assert said.endswith(b"\n")
    lines = [json.loads(line) for line in said.splitlines()]
    assert all(line.keys() == {"text", "id", "logprob"} for line in lines), "there is no last line"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk(artifact: Path) -> None:
    for arguments in ("--ids 1", "--info", "--ids 1 --json"):
        command = f"{sys.executable} {artifact}/run.py {arguments} -q > /dev/full"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (6, 1)
        assert done.stderr.startswith("error: the system refuses: No space left")


@pytest.mark.long
def test_closed_streams(artifact: Path) -> None:
    for streams in (">&-", "2>&-", ">&- 2>&-"):
        command = f"{sys.executable} {artifact}/run.py --ids 1 --max-tokens 2 {streams}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert "Traceback" not in done.stderr


def test_ascii_terminals(artifact: Path) -> None:
    done = tiny_artifact.run(artifact, "--prompt", PROMPT, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(PROMPT)


def test_text_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    terminal.emit_text("a\x1b[31m\r\b\x9b\x00b\tc\n")
    terminal.emit_text("می‌خواهم 👩‍👧 日本　語 x\u00a0y")
    assert shown.getvalue() == "a[31mb\tc\nمی‌خواهم 👩‍👧 日本　語 x\u00a0y"
