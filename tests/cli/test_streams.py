"""Every command against streams as shells give them, and against interrupts at any moment.

What a command says and how it ends is decided by the table, and never a traceback.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from maxtool.cli import streams
from tests.effort import thinned

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
import tiny_artifact
from tiny_artifact import PROMPT, STORY

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "data" / "tiny-llama"

# Names that only some encodings have.
ACCENTED, CYRILLIC = "poids.\u00e9t\u00e9", "\u0432\u0435\u0441"

# By name what is run; {} stands for a folder to write to. Those of the first table take no time.
QUICK: Mapping[str, list[str]] = {
    "help": ["--help"],
    "version": ["--version"],
    "recipes show": ["recipes", "show", "llama"],
    "inspect-weights": ["inspect-weights", "{names}"],
}
OTHERS: Mapping[str, list[str]] = {
    "help of a command": ["compile", "--help"],
    "inspect-weights, json": ["inspect-weights", "{names}", "--json"],
    "recipes list": ["recipes", "list"],
    "recipes check": ["recipes", "check", "llama", str(MODEL)],
    "recipes new": ["recipes", "new", "{unknown}"],
    "convert": ["convert", str(MODEL), "-o", "{out}/x.gguf"],
    "convert, json": ["convert", str(MODEL), "-o", "{out}/x.gguf", "--json"],
    "compile": ["compile", str(MODEL), "-o", "{out}/x", "--dry-run"],
    "run": ["run", "{artifact}", "--prompt", PROMPT],
    "run, lines": ["run", "{artifact}", "--prompt", PROMPT, "--json-stream"],
    "run, json": ["run", "{artifact}", "--info", "--json"],
    "embed": ["embed", "{out}", "--text", "x", "--json"],
    "verify": ["verify", "{artifact}"],
    "verify, json": ["verify", "{artifact}", "--json"],
    "bench": ["bench", "{artifact}", "--rounds", "1", "--prompt", "8", "--tokens", "2"],
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]
EVERY = [*QUICK, *SLOW]
# What is the answer where stdout is as usual.
USUAL = dict.fromkeys({**QUICK, **OTHERS}, 0) | {"embed": 3}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = tiny_artifact.compile_module(tmp_path_factory.mktemp("module"))
    folder = tmp_path_factory.mktemp("run") / "artifact"
    prompt, whole = tiny_artifact.encode(PROMPT), tiny_artifact.encode(PROMPT + STORY)
    tiny_artifact.make(folder, module, [*whole[len(prompt) :], tiny_artifact.EOS], len(prompt))
    return folder


@pytest.fixture
def command(
    tmp_path: Path, request: pytest.FixtureRequest, interruptible: Callable[[], None]
) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts a command of the tables."""
    places = {"{names}": tmp_path / "names.safetensors", "{out}": tmp_path}
    tensors = {ACCENTED: np.zeros(2, np.float32), CYRILLIC: np.zeros(2, np.float32)}
    safetensors.numpy.save_file(tensors, places["{names}"])
    places["{unknown}"] = shutil.copytree(MODEL, tmp_path / "unknown")
    config = places["{unknown}"] / "config.json"
    config.write_text(config.read_text().replace('"llama"', '"new"'))

    def start(
        name: str, program: Sequence[str] = ("-m", "maxtool"), **streams: object
    ) -> subprocess.Popen[bytes]:
        arguments = {**QUICK, **OTHERS}[name]
        if "{artifact}" in arguments:
            places["{artifact}"] = request.getfixturevalue("artifact")
        for place, path in places.items():
            arguments = [argument.replace(place, str(path)) for argument in arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **streams.pop("env", {})}  # type: ignore[dict-item]
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},  # type: ignore[call-overload]
            env=environment,
            cwd=tmp_path,
            preexec_fn=interruptible,
        )

    return start


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Exit code and output, in which there is no traceback."""
    said, told = process.communicate(timeout=300)
    stderr = told.decode()
    assert "Traceback" not in stderr and "Exception ignored" not in stderr, stderr
    return process.returncode, (said or b"").decode("latin-1"), stderr


@pytest.mark.parametrize("name", EVERY)
def test_a_reader_who_went_away(name: str, command: Callable[..., subprocess.Popen[bytes]]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as stdout:
        assert ended(command(name, stdout=stdout))[0] == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("name", EVERY)
def test_a_full_disk(name: str, command: Callable[..., subprocess.Popen[bytes]]) -> None:
    with Path("/dev/full").open("wb") as stdout:
        code, _, stderr = ended(command(name, stdout=stdout))
    assert (code, "No space left on device" in stderr) == (6, True), stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("name", ["inspect-weights", *SLOW])
def test_nobody_to_be_told(name: str, command: Callable[..., subprocess.Popen[bytes]]) -> None:
    with Path("/dev/full").open("wb") as stderr:
        process = command(name, stderr=stderr)
        process.communicate(timeout=300)
    assert process.returncode == USUAL[name]


# All print alike, and one of these names that only some encodings have.
ENCODINGS = [(name, "ascii") for name in {**QUICK, **OTHERS}] + [
    (name, "latin-1") for name in QUICK
]


@pytest.mark.parametrize(
    ("name", "encoding"), thinned(ENCODINGS, *((name, "ascii") for name in QUICK))
)
def test_encodings(
    name: str, encoding: str, command: Callable[..., subprocess.Popen[bytes]]
) -> None:
    code, said, _ = ended(command(name, env={"PYTHONIOENCODING": encoding, "LC_ALL": "C"}))
    assert code == USUAL[name]
    if name == "inspect-weights":
        accented = ACCENTED.partition(".")[2]
        assert (accented in said) == (encoding == "latin-1")
        assert r"\u0432\u0435\u0441" in said
        assert said.isascii() or encoding == "latin-1"


# An interrupt comes when the command imports one of these for the first time: some are imported
# before anything is done, others by the work itself.
MOMENTS = [
    ("help", "typer"),
    ("version", "maxtool.cli.compile"),
    ("inspect-weights", "numpy"),
    ("inspect-weights", "rich.console"),
    *(
        pytest.param(*moment, marks=pytest.mark.slow)
        for moment in [
            ("recipes list", "maxtool.recipe"),
            ("recipes check", "ml_dtypes"),
            ("convert", "maxtool.conversion"),
            ("convert", "json"),
            ("compile", "tvm"),
            ("compile", "tvm_ffi"),
            ("run", "numpy"),
            ("embed", "maxtool.runtime.loader"),
        ]
    ),
]
INTERRUPTER = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.modules.pop({module!r}, None)
sys.meta_path.insert(0, Finder())
from maxtool.__main__ import run
run()
"""


@pytest.mark.parametrize(("name", "module"), MOMENTS)
def test_interrupts(
    name: str, module: str, command: Callable[..., subprocess.Popen[bytes]]
) -> None:
    code, said, stderr = ended(command(name, program=["-c", INTERRUPTER.format(module=module)]))
    assert (code, said) == (130, "")
    assert stderr in ("", "warning: interrupted; nothing was written\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--info"], 6), (["--info", "--json"], 6), (["--prompt", "x", "--ids", "1", "--json"], 2)],
)
def test_an_artifacts_own_program(artifact: Path, arguments: list[str], code: int) -> None:
    with Path("/dev/full").open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, artifact / "run.py", *arguments], stdout=stdout, stderr=subprocess.PIPE
        )
        assert ended(process)[0] == code


def test_an_artifacts_own_program_is_interrupted(
    artifact: Path, interruptible: Callable[[], None]
) -> None:
    program = INTERRUPTER.partition("from maxtool")[0].format(module="numpy")
    program += f"import runpy; runpy.run_path({str(artifact / 'run.py')!r}, run_name='__main__')"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )
    assert ended(process) == (130, "", "")


def test_interrupts_that_are_ignored_stay_so() -> None:
    """Leave interrupts ignored, as nohup and shells in the background want it."""
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from maxtool.cli import interrupts\n"
        "interrupts.end_at_once()\n"
        "with interrupts.raised():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    except KeyboardInterrupt:\n"
        "        print('raised', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"raised\n", b"")


USAGE = {
    "a missing argument": ["convert", "--json"],
    "an unknown option": ["compile", "a", "--jso", "--json"],
    "a wrong value": ["inspect-weights", "a", "--depth", "x", "--json"],
    "a value out of range": ["embed", "a", "--batch", "0", "--json"],
    "a command too many": ["recipes", "list", "x", "--json"],
    "an unknown command": ["inspekt", "--json"],
    "a wrong type": ["convert", "a", "-o", "b", "--dtype", "float5", "--json"],
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_errors(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from maxtool.cli import process

    monkeypatch.setattr(streams, "prepare", lambda: None)
    for arguments, stdout in ((USAGE[case], True), (USAGE[case][:-1], False)):
        monkeypatch.setattr(sys, "argv", ["maxtool", *arguments])
        with pytest.raises(SystemExit) as end:
            process.main()
        said = capsys.readouterr()
        assert (end.value.code, bool(said.out)) == (2, stdout)
        assert said.err.startswith("error: ")
        if stdout:
            content = json.loads(said.out)
            assert content["schema"] == "maxtool.error/1"
            assert (content["error"]["class"], content["error"]["exit_code"]) == ("UsageError", 2)


@pytest.mark.parametrize("arguments", [[], ["recipes"]])
def test_no_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from maxtool.cli import process

    monkeypatch.setattr(streams, "prepare", lambda: None)
    monkeypatch.setattr(sys, "argv", ["maxtool", *arguments])
    with pytest.raises(SystemExit) as end:
        process.main()
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (2, "")
    assert said.err.startswith("Usage: maxtool")


def test_a_stream_fails_once() -> None:
    """Fail once only, so that Python, which flushes at its end, has nothing to complain about."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as original:
        stream = streams._prepared(original, tells=True)
        stream.write("x")
        with pytest.raises(streams.Unwritable) as caught:
            stream.flush()
        assert caught.value.gone
        stream.write("y" * (1 << 20))
        stream.flush()
    assert not streams.Unwritable(OSError(errno.ENOSPC, "full")).gone


def test_characters_that_an_encoding_lacks() -> None:
    streams.prepare_errors()
    held = io.BytesIO()
    with io.TextIOWrapper(held, encoding="ascii", errors=streams.ERRORS) as stream:
        stream.write("├ a \u00d7 \u00e9 \u0432 \U0001f600 \udcff")
        stream.flush()
        assert held.getvalue() == rb"| a x \xe9 \u0432 \U0001f600 \udcff"
    assert all(len(plain) == 1 for plain in "".join(map(chr, streams.PLAIN.values())))
