"""Parts of the cluster room that need no cluster: what a node checks, and what is refused."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from maxtool import __version__
from maxtool.build.cluster_steps import check_same
from maxtool.build.record import made_with
from maxtool.build.step import Step
from maxtool.cli.app import app
from maxtool.cluster import connected, remote
from maxtool.cluster.silence import silenced
from maxtool.conversion import Request, prepare
from maxtool.conversion.memory import BASE, needed_memory
from maxtool.conversion.streaming import CHUNK_BYTES
from maxtool.errors import MachineLacks, UsageError

DATA = Path(__file__).resolve().parents[1] / "data"
MODEL, ADAPTER = DATA / "tiny-llama", DATA / "lora" / "patterns"
STEP = Step("x", "compile", ("compile", "a", "--target=cpu"), "a", "b", ())


def refused(what: str) -> int:
    raise UsageError(what, file="x", hint="choose another")


def test_a_call_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    ended = remote.run(remote.Call(Path.cwd, (), tmp_path))
    assert (ended.value, ended.error, ended.node) == (tmp_path, None, socket.gethostname())
    lost = remote.run(remote.Call(refused, ("no",), tmp_path)).error
    assert isinstance(lost, UsageError)
    assert str(lost) == "no (file x). choose another"
    gone = remote.run(remote.Call(Path.unlink, (Path("gone"),), tmp_path)).error
    assert isinstance(gone, FileNotFoundError)


def test_another_version_and_another_folder(tmp_path: Path) -> None:
    older = remote.run(remote.Call(len, ("",), tmp_path, version="0.0")).error
    assert f"has maxtool {__version__}, and 0.0 asks it" in str(older)
    missing = remote.run(remote.Call(len, ("",), tmp_path / "gone")).error
    assert "has no such folder: No such file or directory" in str(missing)


def test_a_node_that_would_make_something_else() -> None:
    asked = made_with(STEP)
    check_same(STEP, asked)
    with pytest.raises(MachineLacks, match="something else of x") as caught:
        check_same(STEP, asked | {"numpy": "1.0", "machine": "7"})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["numpy", "machine"]


def test_memory_follows_from_the_plan(tmp_path: Path) -> None:
    needed = [
        needed_memory(prepare(Request(MODEL, tmp_path / name, jobs=1, **more)))
        for name, more in (("out", {}), ("out.gguf", {}), ("out", {"adapter": ADAPTER}))
    ]
    assert needed[0] == BASE  # all rows are copied
    assert BASE <= needed[1] < BASE + 12 * 2**20
    assert needed[2] > BASE, "weights are made of a matrix and its factors, whole"


def test_memory_grows_with_the_threads(tmp_path: Path) -> None:
    one, many = (
        needed_memory(prepare(Request(MODEL, tmp_path / "out", jobs=jobs))) for jobs in (1, 64)
    )
    assert many - one > 60 * CHUNK_BYTES


def test_rays_threads_write_in_vain(capsys: pytest.CaptureFixture[str]) -> None:
    with silenced() as stream:
        for name in ("ray_print_logs", "mine"):
            thread = threading.Thread(target=sys.stdout.write, args=(f"{name}\n",), name=name)
            thread.start()
            thread.join()
        stream.shut = True
        sys.stdout.write("held back\n")
    sys.stdout.write("after\n")
    assert capsys.readouterr().out == "mine\nafter\n"


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MachineLacks, match=r"needs the package ray.*maxtool\[ray\]"), connected():
        pass


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--executor", "dask"], "'dask' is not one of ray"),
        (["--ray-address", "auto"], "--ray-address is for --executor ray"),
        (["--executor", "ray", "--shards", "1/2"], "exclude each other"),
        (["--executor", "ray"], "the output is one file"),
    ],
)
def test_what_is_refused(tmp_path: Path, options: list[str], what: str) -> None:
    result = CliRunner().invoke(
        app, ["convert", str(MODEL), "-o", str(tmp_path / "out.gguf"), *options]
    )
    assert (result.exit_code, what in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("options", [["--executor", "dask"], ["--ray-address", "auto"]])
def test_what_a_build_refuses(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(app, ["build", str(tmp_path / "x.toml"), *options])
    assert (result.exit_code, "ray" in result.stderr) == (2, True)
