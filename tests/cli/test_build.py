"""``maxtool build`` on real models: the sample file, a kill in the middle, and what is told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from tests.folders import contents

ROOT = Path(__file__).resolve().parents[2]
SAMPLES, TINY = ROOT / "samples", ROOT / "tests" / "data" / "tiny-llama"
CONVERT = """
[targets."{type}"]
kind = "convert"
matrix.type = ["float16", "float32"]
source = "model"
output = "out/{type}.gguf"
dtype = "{type}"
"""
COMPILE = """
[targets."compiled"]
kind = "compile"
source = "@float16"
output = "out/compiled"
target = "cpu:x86-64-v2"

[targets.checked]
kind = "check"
source = "@compiled"

[targets.copied]
kind = "copy"
source = "@compiled"
output = "out/copied"
"""
# Modules that an up-to-date build may not import.
HEAVY = ("numpy", "tvm", "maxtool.artifact", "maxtool.conversion")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(TINY, tmp_path / "model")
    return tmp_path


def build(folder: Path, text: str, *arguments: str) -> Result:
    (folder / "x.toml").write_text(text)
    return CliRunner().invoke(app, ["build", str(folder / "x.toml"), *arguments])


def statuses(result: Result) -> dict[str, str]:
    content: Mapping[str, Any] = json.loads(result.stdout)
    assert content["schema"] == "maxtool.build/1"
    return {step["name"]: step["status"] for step in content["steps"]}


@pytest.mark.long
def test_what_changed_is_built_and_nothing_else(folder: Path) -> None:
    result = build(folder, CONVERT + COMPILE)
    assert result.exit_code == 0, result.output
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines()[:-1])
    assert lines["float16"].startswith("converted  ")
    assert lines["compiled"].endswith(" KiB")
    assert lines["checked"].startswith("checked  ")
    first = json.loads(build(folder, CONVERT + COMPILE, "--json").stdout)
    assert {step["status"] for step in first["steps"]} == {"up to date"}
    assert all(step["sha256"] for step in first["steps"] if step["output"])

    (folder / "out" / "copied" / "weights.bin").write_bytes(b"?")
    (folder / "model" / "notes.md").touch()
    again = statuses(build(folder, CONVERT + COMPILE, "--json"))
    # The source has another file, so it is converted again: to the same bytes.
    assert {name for name, status in again.items() if status == "done"} == {
        "float16",
        "float32",
        "copied",
    }

    config = folder / "model" / "tokenizer_config.json"
    config.write_text(config.read_text().replace("<s>", "<t>") + " ")
    changed = build(folder, CONVERT + COMPILE, "--json", "-n")
    assert set(statuses(changed).values()) == {"would run"}


def test_a_copy_replaces_nothing_of_others(folder: Path) -> None:
    text = '[targets.x]\nkind = "copy"\nsource = "model"\noutput = "out/x"\n'
    assert build(folder, text).exit_code == 0
    (folder / "out" / "x" / "mine").touch()
    result = build(folder, text)
    assert result.exit_code == 2
    assert "holds other files" in result.stderr
    assert (folder / "out" / "x" / "mine").exists()


def test_a_bench_replaces_no_folder(folder: Path) -> None:
    text = '[targets.x]\nkind = "bench"\nsource = "model"\noutput = "{}"\n'
    (folder / "mine").mkdir()
    (folder / "mine" / "file").touch()
    for output, told in (("mine", "is a folder"), ("model/x", "lie inside"), (".", "would")):
        result = build(folder, text.format(output))
        assert result.exit_code == 2
        assert told in " ".join(result.stderr.split())
    assert (folder / "mine" / "file").exists()


def test_what_the_system_refuses_is_an_error_of_the_step(folder: Path) -> None:
    text = "".join(
        f'[targets.{name}]\nkind = "copy"\nsource = "model"\noutput = "{output}"\n'
        for name, output in (("x", "x.toml/y"), ("z", "out/z"))
    )
    result = build(folder, text, "--json", "-k")
    assert result.exit_code == 6
    assert statuses(result) == {"x": "failed", "z": "done"}
    steps = {step["name"]: step for step in json.loads(result.stdout)["steps"]}  # as they ended
    error = steps["x"]["error"]
    assert error["class"] == "MachineLacks"
    assert error["file"] == "x.toml"
    (folder / "model" / "link").symlink_to("nothing")
    result = build(folder, text, "z", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["steps"][0]["error"]["problems"] == ["model/link"]


@pytest.mark.long
def test_a_check_depends_on_all_files_that_were_recorded(folder: Path) -> None:
    options = 'split-max-size = "30KB"\nsha256 = true\n'
    assert build(folder, CONVERT + options).exit_code == 0
    text = '[targets.x]\nkind = "check"\nsource = "out/float16.gguf"\n'
    assert statuses(build(folder, text, "--json")) == {"x": "done"}
    assert statuses(build(folder, text, "--json")) == {"x": "up to date"}
    part = next((folder / "out").glob("float16-00002-*"))
    part.write_bytes(part.read_bytes() + b"?")
    result = build(folder, text, "--json")
    assert (result.exit_code, statuses(result)) == (1, {"x": "failed"})


def test_the_exit_code_and_message_of_what_failed(folder: Path) -> None:
    (folder / "model" / "config.json").write_text('{"model_type": "nothing"}')
    result = build(folder, CONVERT + COMPILE, "--keep-going")
    assert result.exit_code == 4
    assert "float16   failed" in result.stdout
    assert "compiled  skipped: float16 is not there" in result.stdout
    assert "the model is a 'nothing'" in " ".join(result.stderr.split())


def test_keys_are_those_of_the_commands(folder: Path) -> None:
    result = build(folder, CONVERT.replace("dtype =", "dtypes =") + COMPILE)
    assert result.exit_code == 3
    told = " ".join(result.stderr.split())
    assert "line 7: targets.{type}.dtypes: there is no key 'dtypes'; did you mean 'dtype'" in told


@pytest.mark.long
def test_nothing_heavy_is_imported_where_all_is_up_to_date(folder: Path) -> None:
    build(folder, CONVERT)
    program = (
        "import sys\nfrom maxtool.cli.app import app\n"
        f"app(['build', {str(folder / 'x.toml')!r}], standalone_mode=False)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "2 up to date" in done.stdout


@pytest.mark.slow
def test_the_sample(tmp_path: Path) -> None:
    """Compare with commands that are given one by one."""
    shutil.copytree(SAMPLES / "fireside", tmp_path / "fireside")
    shutil.copy(SAMPLES / "build.toml", tmp_path)
    file = str(tmp_path / "build.toml")
    assert CliRunner().invoke(app, ["build", file]).exit_code == 0
    assert (tmp_path / "built" / "release" / "run.py").is_file()
    source, output = str(tmp_path / "fireside"), tmp_path / "alone.gguf"
    options = ["--quantize", "q4_0", "-o", str(output)]
    assert CliRunner().invoke(app, ["convert", source, *options]).exit_code == 0
    assert output.read_bytes() == (tmp_path / "built" / "fireside-q4_0.gguf").read_bytes()


def test_a_step_whose_build_was_killed_ends_without_a_word(tmp_path: Path) -> None:
    code = f"""
from multiprocessing import Pipe
from pathlib import Path
from maxtool.build.step import Step
from maxtool.cli import build_worker
receiver, sender = Pipe(duplex=False)
receiver.close()
build_worker.run_step(Path({str(tmp_path)!r}), Step("x", "copy", (), "from", "to", ()), sender)
"""
    (tmp_path / "from").write_text("whole")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "to").read_text() == "whole"


@pytest.mark.long
def test_the_steps_end_with_the_build(folder: Path) -> None:
    """Kill it while it compiles: all that it started ends, and nothing appears afterwards."""
    (folder / "x.toml").write_text(CONVERT + COMPILE)
    command = [sys.executable, "-m", "maxtool", "build", str(folder / "x.toml"), "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        while process.poll() is None and not [*(folder / "out").glob(".compiled.*")]:
            time.sleep(0.01)
        process.kill()
        process.communicate()  # whatever was started has the other end, too
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "out" / "compiled").exists()
    assert [*(folder / "out").glob(".compiled.*")]


@pytest.mark.slow
def test_a_kill_in_the_middle(folder: Path, interruptible: Callable[[], None]) -> None:
    """Kill it at several moments; the same command ends with the same bytes."""
    (folder / "x.toml").write_text(CONVERT + COMPILE)
    command = [sys.executable, "-m", "maxtool", "build", str(folder / "x.toml"), "--json"]
    whole = folder / "whole"
    shutil.copytree(folder / "model", whole / "model")
    assert build(whole, CONVERT + COMPILE).exit_code == 0
    for seconds in (1.5, 4.0):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    shutil.rmtree(folder / "out" / "compiled", ignore_errors=True)
    left = {*(folder / "out").glob(".compiled.*")}  # by what was killed
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    while process.poll() is None and left.issuperset((folder / "out").glob(".compiled.*")):
        time.sleep(0.01)  # until something is made
    process.send_signal(signal.SIGINT)
    assert "goes on from there" in process.communicate()[1]
    assert process.returncode == 130
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert json.loads(done.stdout)["ok"]
    assert contents(folder / "out") == contents(whole / "out")
