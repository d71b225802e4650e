"""Processes that measure: how they answer, fail and end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from maxtool.benchmark import processes, serving
from maxtool.benchmark.processes import environment, started
from maxtool.errors import InputError, MachineLacks, ModelMismatch

SERVER = """
import sys, time, os
sys.path.insert(0, {root!r})
from maxtool.benchmark.serving import serve
from maxtool.errors import ModelMismatch
from maxtool.runtime.loader.errors import BadInput

def echo(**given):
    print("chatter of a library")
    return given

def refuse(kind):
    raise {{"own": ModelMismatch, "loader": BadInput}}[kind]("it is wrong", hint="mend it")

def die():
    sys.stderr.write("the last words\\n")
    sys.stderr.flush()
    os._exit(9)

serve({{one.__name__: one for one in (echo, refuse, die)}})
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that answers."""
    (tmp_path / "answering.py").write_text(SERVER.format(root=str(processes.ROOT)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "answering"


def test_an_order_is_answered(server: str) -> None:
    with started(server) as process:
        assert process.ask("echo", text="ü", number=1) == {"text": "ü", "number": 1}
        assert process.ask("echo") == {}
        assert 0 < process.rested < 10


@pytest.mark.parametrize(("kind", "error"), [("own", ModelMismatch), ("loader", InputError)])
def test_an_error_is_told(server: str, kind: str, error: type[Exception]) -> None:
    with started(server) as process:
        with pytest.raises(error, match=r"it is wrong\. mend it"):
            process.ask("refuse", kind=kind)
        assert process.ask("echo", still=True) == {"still": True}


def test_a_process_that_ends_says_why(server: str) -> None:
    with started(server) as process, pytest.raises(MachineLacks, match="the last words"):
        process.ask("die")


def test_a_program_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(MachineLacks, match="cannot start"), started("maxtool"):
        pass


def test_threads_are_a_variable() -> None:
    assert environment(3)["TVM_NUM_THREADS"] == "3"
    assert str(processes.ROOT) in environment(None)["PYTHONPATH"]


def test_rest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LONGEST_REST", 0.1)
    monkeypatch.setattr(serving, "IDLE", -1.0)
    assert 0.1 <= serving.rest() < 10


def test_what_runs_a_model_imports_no_compiler() -> None:
    parts = ("artifact_worker", "steps", "kernel_times")
    modules = ", ".join(f"maxtool.benchmark.{part}" for part in parts)
    code = f"import {modules}, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(None),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.split()
    assert "maxtool.runtime.loader.model" in loaded
    assert not [name for name in loaded if name.partition(".")[0] == "tvm"]
    assert not [name for name in loaded if name.startswith("maxtool.compiler")]
