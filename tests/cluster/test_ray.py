"""Conversions, builds and the sample on a real Ray cluster of two nodes, some of which are killed.

Ray runs in processes of its own: it leaves threads and warnings in those that it connects.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.cli.s3_server import BUCKET, serving
from tests.folders import contents

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (the extra ray)"),
]
ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
MODEL = DATA / "tiny-llama"
WAIT = 100
PROGRESS = re.compile(r"\[\d+/\d+\] .*\n")
RAY = ["--executor", "ray"]


@dataclass
class Nodes:
    """The cluster: its address, that for Ray's client, its process, and a client of its S3."""

    address: str
    client: str
    process: subprocess.Popen[str]
    s3: Any

    @property
    def environment(self) -> dict[str, str]:
        return {**environment(), "RAY_ADDRESS": self.address}

    def replace_one(self) -> None:
        """Kill the second node, and add another."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("replace\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "replaced\n"

    def run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT,
        )

    def maxtool(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(folder, "-m", "maxtool", *arguments)

    def patiently(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run maxtool by way of Ray's client, for which a busy machine may be slow to answer."""
        for _ in range(2):
            done = self.maxtool(folder, *arguments)
            if "there is no Ray cluster" not in done.stderr:
                return done
        return self.maxtool(folder, *arguments)

    def begun(
        self, folder: Path, arguments: list[str], interruptible: Callable[[], None]
    ) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "maxtool", *arguments]
        return subprocess.Popen(
            command,
            cwd=folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=interruptible,
        )


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """One cluster, and one at a time: processes of pytest-xdist may share the tests."""
    with (tmp_path_factory.getbasetemp().parent / "ray-cluster.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with serving() as client:
            yield from cluster(client)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}


def cluster(s3: Any) -> Iterator[Nodes]:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "cluster" / "nodes.py")],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        address = _address(process.stdout)
        yield Nodes(address, process.stdout.readline().strip(), process, s3)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(WAIT)


def _address(lines: IO[str]) -> str:
    """The address, among what Ray may print."""
    return next(line.strip() for line in lines if line[0].isdigit())


@pytest.fixture
def to(tmp_path: Path) -> Path:
    for name in ("one", "many"):
        (tmp_path / name).mkdir()
    return tmp_path


def working(part: str) -> int | None:
    """The process in which a task runs: Ray gives it its name."""
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(
                f"ray::{part}".encode()
            ):
                return int(folder.name)
        except OSError:
            continue
    return None


def wait_for(part: str) -> int:
    """Wait until a task runs: its process."""
    for _ in range(WAIT * 100):
        if found := working(part):
            return found
        time.sleep(0.01)
    raise AssertionError(f"{part} never ran")


def kill_some(process: subprocess.Popen[str], part: str) -> None:
    """Kill workers in the middle of tasks: a task may end before the signal comes, so three."""
    killed = 0
    while killed < 3 and process.poll() is None:
        if found := working(part):
            with suppress(ProcessLookupError):
                os.kill(found, signal.SIGKILL)
            killed += 1
            time.sleep(0.5)
        time.sleep(0.01)


def without_progress(done: subprocess.CompletedProcess[str]) -> str:
    """Text on stderr, without the lines that what takes long prints."""
    return PROGRESS.sub("", done.stderr)


def is_gone(part: str) -> bool:
    """Return whether a task no longer runs, after some time."""
    for _ in range(WAIT * 10):
        if not working(part):
            return True
        time.sleep(0.1)
    return False


def test_the_bytes_are_those_of_one_machine(nodes: Nodes, to: Path) -> None:
    options = ["--quantize", "Q4_0", "--split-max-size", "30K", "--sha256", "--verify", "--json"]
    command = ["convert", str(MODEL), "-o", "out.gguf", *options]
    one = nodes.maxtool(to / "one", *command)
    many = nodes.maxtool(to / "many", *command, *RAY)
    assert (many.returncode, without_progress(many)) == (0, without_progress(one))
    assert contents(to / "many") == contents(to / "one")
    assert json.loads(many.stdout) == json.loads(one.stdout)


def test_a_worker_and_a_node_that_are_killed(
    nodes: Nodes, to: Path, interruptible: Callable[[], None]
) -> None:
    command = ["convert", str(MODEL), "-o", "out", "--shard-size", "30K", "--verify", "--json"]
    one = nodes.maxtool(to / "one", *command)
    process = nodes.begun(to / "many", [*command, *RAY, "--ray-address", "auto"], interruptible)
    os.kill(wait_for("model-00002"), signal.SIGKILL)
    wait_for("model-00004")
    nodes.replace_one()
    said, told = process.communicate(timeout=WAIT)
    assert process.returncode == 0, told
    assert json.loads(said) | {"kept": []} == json.loads(one.stdout)
    assert "model-00002-of-00009.safetensors lost its worker and is tried again" in told
    assert "(attempt 2 of 4)" in told
    assert contents(to / "many") == contents(to / "one")


@pytest.mark.explored
def test_an_output_in_an_object_store(
    nodes: Nodes, to: Path, interruptible: Callable[[], None]
) -> None:
    options = ["--quantize", "Q4_0", "--split-max-size", "30K", "--sha256", "--verify", "--json"]
    one = nodes.maxtool(to / "one", "convert", str(MODEL), "-o", "out.gguf", *options)
    command = ["convert", str(MODEL), "-o", f"s3://{BUCKET}/many/out.gguf", *options, *RAY]
    process = nodes.begun(to / "many", command, interruptible)
    kill_some(process, "out-0000")
    said, told = process.communicate(timeout=WAIT)
    assert process.returncode == 0, told
    assert "lost its worker and is tried again" in told
    assert json.loads(said)["sha256"] == json.loads(one.stdout)["sha256"]
    found = nodes.s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    there = {one["Key"]: nodes.s3.get_object(Bucket=BUCKET, Key=one["Key"]) for one in found}
    files = {path.name: path.read_bytes() for path in (to / "one").iterdir()}
    assert {key: one["Body"].read() for key, one in there.items()} == {
        f"many/{name}": data for name, data in files.items()
    }
    assert not any((to / "many").iterdir())


@pytest.mark.explored
def test_rays_client(nodes: Nodes, to: Path) -> None:
    if not nodes.client:
        pytest.skip("Ray's client is not installed (ray[client])")
    address = ["--ray-address", nodes.client]
    command = ["convert", str(MODEL), "-o", "out.gguf", "--split-max-size", "60K"]
    assert nodes.maxtool(to / "one", *command).returncode == 0
    many = nodes.patiently(to / "many", *command, *RAY, *address)
    assert (many.returncode, without_progress(many)) == (0, "")
    assert contents(to / "many") == contents(to / "one")
    text = f'[targets.x]\nkind = "copy"\nsource = "{MODEL}"\noutput = "copied"\n'
    (to / "many" / "build.toml").write_text(text)
    built = nodes.patiently(to / "many", "build", "build.toml", *RAY, *address)
    assert built.returncode == 0, built.stderr
    assert contents(to / "many" / "copied") == contents(MODEL)


def test_ctrl_c_cancels_the_tasks(
    nodes: Nodes, to: Path, interruptible: Callable[[], None]
) -> None:
    command = ["convert", str(MODEL), "-o", "out.gguf", "--split-max-size", "30K"]
    assert nodes.maxtool(to / "one", *command).returncode == 0
    process = nodes.begun(to / "many", [*command, *RAY], interruptible)
    wait_for("out-00005")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=WAIT)
    assert process.returncode == 130, told
    assert "are kept; the same command goes on with them" in told
    assert "interrupted; nothing was written" in told
    assert not (to / "many" / "out-00001-of-00009.gguf").exists()
    assert is_gone("out-")
    again = nodes.maxtool(to / "many", *command, *RAY)
    assert "files kept)" in again.stdout, again
    assert contents(to / "many") == contents(to / "one")


def test_errors_of_workers_are_those_of_one_machine(nodes: Nodes, to: Path) -> None:
    source = shutil.copytree(MODEL, to / "source")
    weights = load_file(source / "model.safetensors")
    weights["lm_head.weight"][0, 0] = np.inf
    save_file(weights, source / "model.safetensors")
    command = ["convert", "../source", "-o", "out", "--shard-size", "30K", "--dtype", "float16"]
    one = nodes.maxtool(to / "one", *command)
    many = nodes.maxtool(to / "many", *command, *RAY)
    assert (one.returncode, "lm_head.weight" in one.stderr) == (4, True)
    assert many.returncode == 4
    assert many.stderr.endswith(one.stderr)  # behind how many files are kept
    assert "Traceback" not in many.stderr


BUILD = """
[targets."{type}"]
kind = "convert"
matrix.type = ["q8_0", "q4_0"]
source = "model"
output = "out/{type}.gguf"
quantize = "{type}"

[targets.release]
kind = "copy"
source = "@q8_0"
output = "release.gguf"

[targets.wrong]
kind = "compile"
source = "nowhere"
output = "wrong"
"""


@pytest.mark.explored
def test_the_steps_of_a_build(nodes: Nodes, to: Path) -> None:
    for folder in (to / "one", to / "many"):
        (folder / "x.toml").write_text(BUILD)
        shutil.copytree(MODEL, folder / "model")
    options = ["build", "x.toml", "--keep-going", "--json"]
    one = nodes.maxtool(to / "one", *options)
    many = nodes.maxtool(to / "many", *options, *RAY)
    steps = [json.loads(done.stdout)["steps"] for done in (one, many)]
    for step in (*steps[0], *steps[1]):
        del step["seconds"], step["peak_bytes"]
    assert steps[1] != []
    assert sorted(map(str, steps[1])) == sorted(map(str, steps[0]))
    assert (one.returncode, many.returncode) == (3, 3)
    written = ["out/q8_0.gguf", "out/q4_0.gguf", "release.gguf"]
    pairs = [[(to / name / file).read_bytes() for name in ("one", "many")] for file in written]
    assert all(first == second for first, second in pairs)
    again = nodes.maxtool(to / "many", "build", "x.toml", "release", *RAY)
    assert again.stdout.startswith("q8_0     up to date\nrelease  up to date\n")


LOST = """
import os, sys
from pathlib import Path
from maxtool.cluster import Task, Tasks, connected
told = []
with connected():
    tasks = Tasks(told.append)
    tasks.begin(Task("doomed", os.abort, (), 1 << 20))
    print(tasks.next()[1].error)
    tasks.folder = Path("/nowhere")
    tasks.begin(Task("elsewhere", len, ("",), 1 << 20))
    print(tasks.next()[1].error)
    tasks.begin(Task("wide", len, ("",), 1 << 50))
print(*told, sep="\\n")
"""


def test_what_the_cluster_cannot_do(nodes: Nodes, to: Path) -> None:
    done = nodes.run(to, "-c", LOST)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("doomed lost its worker 4 times"), done.stderr
    assert "has no such folder: No such file or directory (file /nowhere)" in lines[1]
    assert [line.partition(" (")[0] for line in lines[2:5]] == 3 * [
        "doomed lost its worker and is tried again"
    ]
    assert lines[5].startswith("wide waits for a node with a core and 1073741824 MiB of memory")


SLEEPING = """
import time
from maxtool.cluster import Task, Tasks, connected
with connected():
    tasks = Tasks(print)
    tasks.begin(Task("sleeper", time.sleep, (1000,), 1 << 20))
    tasks.next()
"""


def test_a_task_ends_with_who_began_it(nodes: Nodes, interruptible: Callable[[], None]) -> None:
    command = [sys.executable, "-c", SLEEPING]
    process = subprocess.Popen(
        command,
        env=nodes.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )
    wait_for("sleeper")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT)
    assert is_gone("sleeper")


@pytest.mark.explored
def test_the_sample(nodes: Nodes, to: Path) -> None:
    compiled = nodes.maxtool(to, "compile", str(DATA / "tiny-bert"), "-o", "bert")
    assert compiled.returncode == 0, compiled.stderr
    lines = [f"the house number {number} is red" for number in range(100)]
    (to / "texts.txt").write_text("\n".join(lines))
    command = ["bert", "texts.txt", "-o", "vectors.jsonl", "--workers", "1,2", "--rows", "10"]
    done = nodes.run(to, str(ROOT / "samples" / "ray_batch.py"), *command)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["workers", "1", "2", "wrote"]
    rows = [json.loads(line) for line in (to / "vectors.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == lines
    embedded = nodes.maxtool(to, "embed", "bert", "--file", "texts.txt", "-o", "vectors.npy")
    assert embedded.returncode == 0, embedded.stderr
    expected = np.load(to / "vectors.npy")
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, rtol=1e-4, atol=1e-5)
