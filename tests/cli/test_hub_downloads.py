"""Downloads that are interrupted, killed and begun again, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.cli.hub_server import COMMIT, NAME, HubServer, serve_hub
from tests.weights.range_server import Handler, ranges

pytest.importorskip("huggingface_hub")

PIECE = 1 << 23
STALL = 2 * PIECE


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HubServer]:
    (tmp_path / "model").mkdir()
    values = np.arange(5 * PIECE // 8, dtype=np.float32).reshape(640, -1)
    save_file({"x": values}, tmp_path / "model" / "model.safetensors")
    with serve_hub(tmp_path / "model") as running:
        yield running


def converting(
    server: HubServer, before: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    output = str(server.root.parent / "out.npz")
    options = ("-o", output, "--no-recipe", "--json")
    return started(server, "convert", NAME, *options, before=before)


def started(
    server: HubServer, *command: str, before: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    """``maxtool`` in a process that finds the server by the environment, as users would say it."""
    folder = server.root.parent
    mine = {"HF_ENDPOINT": server.url, "HF_HOME": str(folder / "home"), "HF_TOKEN": "hf_sesame"}
    return subprocess.Popen(
        [sys.executable, "-m", "maxtool", *command],
        env={key: value for key, value in os.environ.items() if not key.startswith("HF_")} | mine,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


@pytest.fixture
def stalled(
    server: HubServer, interruptible: Callable[[], None]
) -> Iterator[subprocess.Popen[str]]:
    """A process that has the first pieces, and waits for the others until the test is over."""
    released = threading.Event()

    def answer(handler: Handler, data: bytes, start: int, last: int) -> None:
        if start >= STALL and not released.wait(60):
            handler.close_connection = True
        ranges(handler, data, start, last)

    server.files.answer = answer
    process = converting(server, interruptible)
    end = time.monotonic() + 60
    while not any(part.stat().st_size >= STALL for part in parts(server)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    try:
        yield process
    finally:
        process.kill()
        released.set()
        process.communicate()


def parts(server: HubServer) -> list[Path]:
    return list((server.root.parent / "home" / "hub").rglob("*.incomplete"))


@pytest.mark.long
def test_what_was_killed_goes_on_from_there(
    server: HubServer, stalled: subprocess.Popen[str]
) -> None:
    stalled.send_signal(signal.SIGKILL)
    stalled.wait()
    server.files.answer = ranges
    server.files.asked.clear()
    again = converting(server)
    output, errors = again.communicate(timeout=100)
    assert again.returncode == 0, errors
    assert json.loads(output)["origin"] == {"name": NAME, "commit": COMMIT}
    spans = [headers["range"] for _, headers in asked_of(server)]
    assert len(spans) == 1, spans
    assert spans[0].startswith(f"bytes={STALL}-")
    written = np.load(server.root.parent / "out.npz")["x"]
    np.testing.assert_array_equal(written.ravel(), np.arange(written.size, dtype=np.float32))
    assert not parts(server)


def test_an_interrupt_ends_a_connection_that_stalls(
    server: HubServer, stalled: subprocess.Popen[str]
) -> None:
    began = time.monotonic()
    stalled.send_signal(signal.SIGINT)
    _, errors = stalled.communicate(timeout=25)
    assert stalled.returncode == 130
    assert time.monotonic() - began < 10  # less than the time after which it gives up
    assert "Traceback" not in errors
    assert "sesame" not in errors
    assert [part.stat().st_size for part in parts(server)] == [STALL]


def asked_of(server: HubServer) -> list[tuple[str, dict[str, str]]]:
    return [
        (path, {key.lower(): value for key, value in headers.items()})
        for path, headers in server.files.asked
    ]


@pytest.mark.long
def test_a_build_brings_a_repository_once(server: HubServer) -> None:
    folder = server.root.parent
    text = f'[targets.x]\nkind = "convert"\nsource = "{NAME}"\noutput = "x.npz"\nno-recipe = true\n'
    (folder / "x.toml").write_text(text)
    for status in ("done", "up to date"):
        output, errors = started(server, "build", str(folder / "x.toml"), "--json").communicate()
        assert [step["status"] for step in json.loads(output)["steps"]] == [status], errors
        assert bool(server.asked) == (status == "done")
        server.asked.clear()


@pytest.mark.long
def test_steps_of_a_build_bring_a_repository_side_by_side(server: HubServer) -> None:
    folder = server.root.parent
    step = f'kind = "convert"\nsource = "{NAME}"\nno-recipe = true\n'
    steps = [f'[targets.x{number}]\noutput = "x{number}.npz"\n{step}' for number in range(2)]
    (folder / "x.toml").write_text("".join(steps))
    building = started(server, "build", str(folder / "x.toml"), "--json", "--jobs", "2")
    output, errors = building.communicate(timeout=100)
    assert [one["error"] for one in json.loads(output)["steps"]] == [None, None], errors
    spans = sorted(headers["range"] for _, headers in asked_of(server))
    assert len(spans) == len(set(spans)), spans
