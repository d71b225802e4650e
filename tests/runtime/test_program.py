"""The artifact's own program, run where neither tvm nor maxtool can be imported."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.runtime import loader
from maxtool.runtime.loader import terminal
from tests.effort import examples, thinned

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import PROMPT, STORY, fails

CONTEXT, VOCAB = tiny_artifact.CONTEXT, tiny_artifact.VOCAB


def manifest_of(folder: Path) -> dict[str, Any]:
    loaded = json.loads((folder / "manifest.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def npz(path: Path, **arrays: object) -> Path:
    np.savez(path, **{name: np.asarray(value) for name, value in arrays.items()})  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("name", ["loader", "loader/__init__.py", "loader/model.py"])
def test_the_loader_is_missing(artifact: Path, name: str) -> None:
    (artifact / name).rename(artifact / "moved")
    told = tiny_artifact.run(artifact, "--ids", "1")
    assert told.returncode == 6
    assert told.stderr.startswith("error: ")
    assert str(artifact / "loader") in told.stderr
    assert told.stderr.count("\n") == 1


def test_running_adds_no_files(artifact: Path) -> None:
    before = sorted(artifact.rglob("*"))
    assert tiny_artifact.run(artifact, "--info").returncode == 0
    assert sorted(artifact.rglob("*")) == before


def test_the_compiler_is_really_blocked(artifact: Path) -> None:
    (artifact / "run.py").write_text("import tvm")
    assert "blocked" in tiny_artifact.run(artifact).stderr


def test_text(artifact: Path) -> None:
    done = tiny_artifact.run(artifact, "--prompt", PROMPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == PROMPT + STORY + "\n"
    assert "tokens/s" in done.stderr


def test_a_file_of_text(artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    for end in ("", "\n", "\r\n"):  # what an editor puts behind the last line is not part of it
        file.write_bytes(f"{PROMPT}{end}".encode())
        assert tiny_artifact.run(artifact, "--file", file).stdout == PROMPT + STORY + "\n"
    fails(artifact, 3, "--file", tmp_path / "none", says="cannot be read")
    file.write_bytes(b"Once\xff")
    fails(artifact, 3, "--file", file, says=f"no UTF-8 text\n  at: file {file}, byte 4")


def test_a_stop_string(artifact: Path) -> None:
    done = tiny_artifact.run(artifact, "--prompt", PROMPT, "--stop", "zzz", "--stop", " was a")
    assert done.stdout == PROMPT + STORY.partition(" was a")[0] + "\n"
    told = tiny_artifact.run(artifact, "--prompt", PROMPT, "--stop", " was a", "--json")
    content = json.loads(told.stdout)
    assert (content["stopped"], content["text"]) == ("stop", done.stdout[:-1])


def test_text_as_json(artifact: Path, ids: dict[str, list[int]]) -> None:
    done = tiny_artifact.run(artifact, "--prompt", PROMPT, "--json", "-q", "--max-tokens", 3)
    assert done.stderr == ""
    content = json.loads(done.stdout)
    assert content["schema"] == "maxtool.generation/1"
    assert content["prompt_ids"] == ids["prompt"]
    assert content["ids"] == ids["story"][:3]
    assert content["stopped"] == "length"
    whole = tiny_artifact.run(artifact, "--prompt", PROMPT, "--json", "-q")
    assert json.loads(whole.stdout)["stopped"] == "end"


def test_ids_without_a_tokenizer(artifact: Path, ids: dict[str, list[int]]) -> None:
    tiny_artifact.write(artifact, {**manifest_of(artifact), "tokenizer": None})
    inputs = ",".join(map(str, ids["prompt"]))
    done = tiny_artifact.run(artifact, "--ids", inputs, "--max-tokens", 2)
    assert [int(part) for part in done.stdout.split()] == ids["story"][:2]
    fails(artifact, 4, "--prompt", "text", says="no tokenizer")


def test_an_error_is_one_line_and_a_code(artifact: Path) -> None:
    done = tiny_artifact.run(artifact, "--ids", VOCAB)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: input_ids has values from")


def test_the_context_ends(artifact: Path, ids: dict[str, list[int]]) -> None:
    room = CONTEXT - len(ids["prompt"]) + 1
    weights = tiny_artifact.plan([7] * 100, len(ids["prompt"]))
    data = bytearray((artifact / "weights.bin").read_bytes())
    data[: weights.nbytes] = weights.tobytes()
    (artifact / "weights.bin").write_bytes(data)
    done = tiny_artifact.run(
        artifact, "--prompt", PROMPT, "--max-tokens", 500, "--json", "--no-verify"
    )
    content = json.loads(done.stdout)
    assert content["ids"] == [7] * room
    assert content["stopped"] == "context"
    assert f"context of {CONTEXT} tokens is full" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--ids", ",".join(["3"] * (CONTEXT + 1))], 4, f"{CONTEXT + 1} tokens"),
        (["--ids", str(VOCAB)], 4, f"0 to {VOCAB - 1}"),
        (["--ids=-1"], 4, "-1"),
        (["--ids", ""], 3, "empty"),
        (["--ids", "1,x"], 2, "--ids"),
        (["--ids", "99999999999999999999999"], 3, "input_ids"),
        (["--ids", "1", "--temperature", "-1"], 2, "temperature"),
        (["--ids", "1", "--temperature", "nan"], 2, "temperature"),
        (["--ids", "1", "--top-p", "0"], 2, "top-p"),
        (["--ids", "1", "--top-k", "0"], 2, "top-k"),
        (["--ids", "1", "--max-tokens", "-1"], 2, "max-tokens"),
        (["--ids", "1", "--seed", "-1"], 2, "seed"),
        (["--ids", "1", "--output", "y.npz"], 2, "--inputs"),
        (["--ids", "1", "--entry", "decode"], 2, "--inputs"),
        (["--prompt", "\udcff"], 3, "not valid text"),
        (["--ids", "1", "--prompt", "x"], 2, "give one of --prompt"),
        ([], 2, "give one of"),
        (["--inputs", "nowhere.npz"], 3, "nowhere.npz"),
        (["--inputs", __file__], 3, "no npz file"),
    ],
)
def test_bad_requests(artifact: Path, arguments: list[str], code: int, says: str) -> None:
    fails(artifact, code, *arguments, says=says)


def test_arrays(artifact: Path, tmp_path: Path) -> None:
    inputs = [[3, 4, 5], [6, 7, 8]]
    source = npz(tmp_path / "x.npz", input_ids=inputs, attention_mask=np.ones((2, 3)), logits=[1])
    done = tiny_artifact.run(artifact, "--inputs", source, "--output", tmp_path / "y.npz")
    assert done.returncode == 0, done.stderr
    assert "ignored" in done.stderr
    assert "attention_mask, logits" in done.stderr
    with np.load(tmp_path / "y.npz") as outputs:
        table = np.frombuffer((artifact / "weights.bin").read_bytes(), np.float32, CONTEXT * VOCAB)
        expected = table.reshape(CONTEXT, VOCAB)[None, :3] + np.array(inputs)[..., None]
        assert outputs.files == ["logits"]
        np.testing.assert_allclose(outputs["logits"], expected, rtol=1e-6)
    assert not list(tmp_path.glob(".y*"))
    assert (tmp_path / "y.npz").stat().st_mode == (artifact / "weights.bin").stat().st_mode
    fails(artifact, 2, "--inputs", source, "--output", tmp_path / "y.npz", says="exists")
    again = tiny_artifact.run(
        artifact, "--inputs", source, "--output", tmp_path / "y.npz", "--force", "--json"
    )
    content = json.loads(again.stdout)
    assert content["outputs"] == {"logits": {"dtype": "float32", "shape": [2, 3, VOCAB]}}
    assert content["ignored"] == ["attention_mask", "logits"]


def test_a_stateful_entry_on_arrays(artifact: Path, tmp_path: Path) -> None:
    source = npz(tmp_path / "x.npz", input_ids=[[9, 8]], position=np.array([4], np.int32))
    done = tiny_artifact.run(
        artifact, "--inputs", source, "--output", tmp_path / "y.npz", "--entry", "prefill"
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "y.npz") as outputs:
        table = np.frombuffer((artifact / "weights.bin").read_bytes(), np.float32, CONTEXT * VOCAB)
        np.testing.assert_array_equal(outputs["logits"][0], table.reshape(CONTEXT, VOCAB)[5])


ARRAYS: dict[str, tuple[dict[str, Any], str, int, str]] = {
    "missing": ({"other": [1]}, "forward", 3, "missing input_ids"),
    "float ids": ({"input_ids": [[1.0]]}, "forward", 3, "float64"),
    "strings": ({"input_ids": [["a"]]}, "forward", 3, "<U1"),
    "rank": ({"input_ids": [1, 2]}, "forward", 3, "shape (2,)"),
    "empty": ({"input_ids": np.zeros((1, 0), np.int64)}, "forward", 3, "shape (1, 0)"),
    "too long": ({"input_ids": [[1] * (CONTEXT + 1)]}, "forward", 4, "seq is"),
    "beyond the vocabulary": ({"input_ids": [[VOCAB]]}, "forward", 4, "values from"),
    "negative": ({"input_ids": [[-1]]}, "forward", 4, "values from"),
    "two for decode": ({"input_ids": [[1, 2]], "position": [0]}, "decode", 3, "shape (1, 2)"),
    "position": ({"input_ids": [[1]], "position": [CONTEXT]}, "decode", 4, "beyond the context"),
    "position < 0": ({"input_ids": [[1]], "position": [-1]}, "decode", 4, "beyond the context"),
    "position wide": ({"input_ids": [[1]], "position": [2**40]}, "decode", 3, "int64"),
    "prefill at the end": (
        {"input_ids": [[1, 2]], "position": [CONTEXT - 1]},
        "prefill",
        4,
        "beyond the context",
    ),
    "objects": ({"input_ids": np.array([None])}, "forward", 3, "Python objects"),
    "entry": ({"input_ids": [[1]]}, "backward", 4, "forward, prefill, decode"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_bad_arrays(artifact: Path, tmp_path: Path, case: str) -> None:
    arrays, entry, code, says = ARRAYS[case]
    source = npz(tmp_path / "x.npz", **arrays)
    output = tmp_path / "y.npz"
    fails(artifact, code, "--inputs", source, "--output", output, "--entry", entry, says=says)
    assert not output.exists()


@pytest.mark.parametrize(
    "name",
    thinned(
        ["model.so", "weights.bin", "tokenizer.json", "run.py", "loader/model.py"],
        "weights.bin",
        "loader/model.py",
    ),
)
def test_a_changed_file_is_refused(artifact: Path, name: str) -> None:
    with (artifact / name).open("ab") as stream:
        stream.write(b"\n")
    fails(artifact, 1, "--prompt", PROMPT, says=name)
    fails(artifact, 1, "--info", says=name)
    assert tiny_artifact.run(artifact, "--prompt", PROMPT, "--no-verify").returncode == 0


@pytest.mark.parametrize("name", ["model.so", "weights.bin", "tokenizer.json"])
def test_a_missing_file(artifact: Path, name: str) -> None:
    (artifact / name).unlink()
    fails(artifact, 3, "--prompt", PROMPT, says=name)


def set_in(root: dict[str, Any], path: str, value: object) -> None:
    *parents, last = (part.replace("~", "/") for part in path.split("/"))
    place: Any = root
    for part in parents:
        place = place[int(part) if isinstance(place, list) else part]
    place[int(last) if isinstance(place, list) else last] = value


HOSTILE: dict[str, tuple[str, object]] = {
    "schema": ("schema", "maxtool.artifact/4"),
    "absolute module": ("module", "/etc/passwd"),
    "module outside": ("module", "../blocker/sitecustomize.py"),
    "weights outside": ("weights/file", "../../x"),
    "nul": ("module", "model.so\0"),
    "a name too long": ("module", "x" * 300),
    "a name that is not a text": ("module", "\ud800"),
    "module not listed": ("module", "manifest.json"),
    "unknown dtype": ("weights/tensors/0/dtype", "float4"),
    "dtype unhashable": ("weights/tensors/0/dtype", ["x"]),
    "negative size": ("weights/tensors/0/shape", [-1, 2]),
    "huge size": ("weights/tensors/0/shape", [2**40, 2**40]),
    "named size in a weight": ("weights/tensors/0/shape", ["n"]),
    "offset beyond": ("weights/tensors/1/offset", 64 * 10**6),
    "offset negative": ("weights/tensors/1/offset", -64),
    "offset unaligned": ("weights/tensors/1/offset", 4),
    "offset of text": ("weights/tensors/1/offset", "0"),
    "twice": ("weights/tensors/1/name", "plan"),
    "entries": ("entries", []),
    "entry": ("entries/forward", 3),
    "inputs": ("entries/forward/inputs", None),
    "input shape": ("entries/forward/inputs/0/shape", [1.5]),
    "state without a size": ("state/0/shape", ["nobody", 3]),
    "context": ("context", "512"),
    "state without a context": ("context", None),
    "state without a position": ("entries/prefill/inputs/1/name", "place"),
    "state without ids": ("entries/decode/inputs/0/name", "x"),
    "ids of rank 1": ("entries/decode/inputs/0/shape", ["seq"]),
    "position of rank 0": ("entries/decode/inputs/1/shape", []),
    "limits": ("limits", {"seq": "x"}),
    "limits list": ("limits", [1]),
    "tokenizer": ("tokenizer/eos_token_ids", ["x"]),
    "bos": ("tokenizer/bos_token_id", True),
    "checksum": ("files/model.so/sha256", 7),
    "target": ("target", None),
    "function": ("entries/forward/function", "no_such_function"),
    "a deep shape": ("state/0/shape", ["batch", *[1] * 40]),
    "a state beyond all memory": ("state/0/shape", ["batch", 2**40, 2**40]),
    "positions of no axis": ("state/0/positions", 2),
    "positions of the batch": ("state/0/positions", 0),
    "context beyond the cache": ("context", CONTEXT + 1),
    "context short of the cache": ("context", CONTEXT - 1),
    "context of nothing": ("context", 0),
    "context beyond counting": ("context", 10**30),
    "no limits": ("limits", None),
    "no limit of the ids": ("limits", {"seq": CONTEXT}),
    "no limit of the length": ("limits", {"input_ids": [0, VOCAB - 1]}),
    "length beyond the context": ("limits/seq", CONTEXT + 1),
    "length as a range": ("limits/seq", [0, CONTEXT]),
    "ids as a number": ("limits/input_ids", VOCAB),
    "negative ids": ("limits/input_ids", [-1, VOCAB - 1]),
    "an empty range": ("limits/input_ids", [5, 4]),
    "an infinite range": ("limits/input_ids", [0, float("inf")]),
    "limits of fractions": ("entries/forward/inputs/0/dtype", "float32"),
    "limits beyond the type": ("entries/forward/inputs/0/dtype", "int8"),
    "a table of nothing": ("tables/0/weight", "nothing"),
    "a table read by nothing": ("tables/0/index", "nothing"),
    "a table that is too short": ("tables/0/skipped", 1),
    "rows before the first": ("tables/0/skipped", -1),
    "reread beyond the context": ("reread_beyond", CONTEXT),
    "weights over each other": ("weights/tensors/2/offset", 0),
    "a gap between weights": ("weights/tensors/2/offset", CONTEXT * VOCAB * 4 + 128),
    "packed into another size": ("weights/tensors/0/unpacked", [CONTEXT, VOCAB]),
    "a default beyond the limit": ("entries/forward/inputs/0/default", VOCAB),
    "a default of unknown size": ("entries/forward/inputs/0/default", 1),
    "no such task": ("task", "chat"),
    "state without a task": ("task", None),
    "a task without its entry": ("task", "embed"),
    "least sizes of nothing": ("entries/forward/least", {"width": 2}),
    "a least size beyond the limit": ("entries/forward/least", {"seq": CONTEXT + 1}),
    "a least size of 0": ("entries/forward/least", {"seq": 0}),
    "least sizes of text": ("entries/forward/least", {"seq": "2"}),
    "no bytes of a file": ("files/model.so/bytes", "1"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_manifest(artifact: Path, case: str) -> None:
    root = manifest_of(artifact)
    set_in(root, *HOSTILE[case])
    tiny_artifact.write(artifact, root)
    says = "manifest.json" if case != "function" else "no_such"
    for check in (True, False):
        with pytest.raises(loader.BadInput, match=says):
            loader.load(artifact, check=check)


def test_the_manifest_has_a_checksum_of_its_own(artifact: Path) -> None:
    """Check the content: the file may be laid out in another way."""
    root = manifest_of(artifact)
    path = artifact / "manifest.json"
    path.write_text(json.dumps(root, indent=7, sort_keys=True))
    assert tiny_artifact.run(artifact, "--ids", "1", "--max-tokens", "1").returncode == 0
    for change in ({"name": "another"}, {"manifest_sha256": None}):
        path.write_text(json.dumps(root | change))
        fails(artifact, 1, "--ids", "1", says="manifest.json is not the file that was compiled")
        assert tiny_artifact.run(artifact, "--ids", "1", "--no-verify").returncode == 0


def test_an_artifact_of_another_release(artifact: Path) -> None:
    tiny_artifact.write(artifact, {**manifest_of(artifact), "schema": "maxtool.artifact/1"})
    fails(artifact, 3, "--ids", "1", "--no-verify", says="help: compile it again")


@pytest.mark.parametrize("text", ["", "[", "[1]", "[" * 200_000, '{"schema": 1}', "\xff"])
def test_no_manifest_at_all(artifact: Path, text: str) -> None:
    (artifact / "manifest.json").write_text(text, encoding="latin-1")
    fails(artifact, 3, "--info", says="manifest.json")
    (artifact / "manifest.json").unlink()
    fails(artifact, 3, "--info", says="manifest.json")


def test_no_language_model(artifact: Path) -> None:
    root = manifest_of(artifact)
    root["entries"]["decode"]["outputs"][0]["name"] = "hidden"
    tiny_artifact.write(artifact, root)
    fails(artifact, 4, "--ids", "1", says="no logits")
    del root["entries"]["decode"]
    tiny_artifact.write(artifact, root)
    fails(artifact, 4, "--ids", "1", says="no entry 'decode'")


def test_a_link_out_of_the_folder(artifact: Path, tmp_path: Path) -> None:
    (artifact / "weights.bin").rename(tmp_path / "weights.bin")
    (artifact / "weights.bin").symlink_to(tmp_path / "weights.bin")
    fails(artifact, 3, "--info", says="outside the folder")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"kind": "cuda"}, "cuda"),
        ({"kind": "cpu", "triple": "riscv64-linux-gnu"}, "riscv64"),
        ({"kind": "cpu", "triple": "x86_64-linux-gnu", "features": ["avx2048"]}, "avx2048"),
    ],
)
def test_another_machine(artifact: Path, target: dict[str, object], says: str) -> None:
    tiny_artifact.write(artifact, {**manifest_of(artifact), "target": target})
    fails(artifact, 6, "--ids", "1", says=says)


@pytest.mark.parametrize("package", ["tvm", "tvm_ffi"])
def test_another_release(artifact: Path, package: str) -> None:
    tiny_artifact.write(artifact, {**manifest_of(artifact), package: "9.1.0"})
    fails(artifact, 6, "--ids", "1", says="9.1.0")


def test_any_part_replaced_by_anything(artifact: Path) -> None:
    """A manifest is read, or refused as malformed: nothing else happens."""
    good = json.dumps(manifest_of(artifact))
    paths = list(paths_of(json.loads(good)))
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    anything = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(), scalars)

    @settings(max_examples=examples(80, 400), deadline=None)
    @given(st.sampled_from(paths), anything)
    def replaced(path: str, value: object) -> None:
        root = json.loads(good)
        set_in(root, path, value)
        tiny_artifact.write(artifact, root)
        with contextlib.suppress(loader.BadInput):
            loader.Manifest(artifact)

    replaced()


def paths_of(value: object, path: str = "") -> Iterator[str]:
    """Every place in a JSON value, as ``set_in`` takes it: slashes in keys are written ~."""
    children = value.items() if isinstance(value, dict) else ()
    children = enumerate(value) if isinstance(value, list) else children
    for key, child in children:
        place = path + str(key).replace("/", "~")
        yield place
        yield from paths_of(child, f"{place}/")


def test_standalone_needs_no_tvm_package(artifact: Path) -> None:
    package = next(Path(p) / "tvm" for p in sys.path if (Path(p) / "tvm" / "lib").is_dir())
    (artifact / "lib").mkdir()
    library = artifact / "lib" / "libtvm_runtime.so"
    shutil.copy(package / "lib" / "libtvm_runtime.so", library)
    fails(artifact, 1, "--ids", "1", says="libtvm_runtime.so")
    root = manifest_of(artifact)
    root["files"]["lib/libtvm_runtime.so"] = tiny_artifact.checksum(library)
    tiny_artifact.write(artifact, root)
    done = tiny_artifact.run(artifact, "--prompt", PROMPT)
    assert done.stdout == PROMPT + STORY + "\n", done.stderr


def test_no_runtime_anywhere(artifact: Path) -> None:
    hide = artifact.parent / "hide.py"
    hide.write_text(
        "import runpy, sys, tvm_ffi, tokenizers\n"
        "sys.path = [p for p in sys.path if 'site-packages' not in p]\n"
        f"sys.argv = ['run.py', '--ids', '1']\nrunpy.run_path({str(artifact / 'run.py')!r}, "
        "run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, hide], capture_output=True, text=True, check=False)
    assert done.returncode == 6, done.stderr
    assert "--standalone" in done.stderr


def test_info(artifact: Path) -> None:
    done = tiny_artifact.run(artifact, "--info", "--json")
    content = json.loads(done.stdout)
    assert content["schema"] == "maxtool.info/1"
    assert content["context"] == CONTEXT
    assert "input_ids int64[batch, seq] -> " in content["forward"]
    assert f"context:        {CONTEXT}" in tiny_artifact.run(artifact, "--info").stdout


def test_errors_as_json(artifact: Path) -> None:
    done = tiny_artifact.run(artifact, "--ids", "9999", "--json")
    content = json.loads(done.stdout)
    assert (content["schema"], content["error"]["exit_code"]) == ("maxtool.error/1", 4)


def test_control_characters_are_escaped(artifact: Path) -> None:
    root = {**manifest_of(artifact), "name": "\x1b[31mred"}
    root["entries"]["\x1b[2J"] = root["entries"]["forward"]
    tiny_artifact.write(artifact, root)
    done = tiny_artifact.run(artifact, "--info")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\x1b" not in tiny_artifact.run(artifact, "--inputs", "\x1b[2J.npz").stderr


def test_sampling_is_repeatable(artifact: Path) -> None:
    def sample(seed: int) -> str:
        options = ["--ids", "1,5", "--temperature", "5", "--top-k", "50", "--seed", seed]
        return tiny_artifact.run(artifact, *options, "--json").stdout.partition("tokens_per")[0]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_a_closed_pipe_is_quiet(artifact: Path) -> None:
    command = f"{sys.executable} {artifact}/run.py --prompt '{PROMPT}' -q | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk(artifact: Path) -> None:
    for arguments in ("--ids 1", "--info", "--ids 1 --json"):
        command = f"{sys.executable} {artifact}/run.py {arguments} -q > /dev/full"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (6, 1)
        assert done.stderr.startswith("error: the system refuses: No space left")


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


def test_nothing_is_written_into_the_artifact(artifact: Path) -> None:
    before = sorted(artifact.iterdir())
    tiny_artifact.run(artifact, "--prompt", PROMPT)
    assert sorted(artifact.iterdir()) == before


def test_text_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    terminal.emit_text("a\x1b[31m\r\b\x9b\x00b\tc\n")
    terminal.emit_text("می‌خواهم 👩‍👧 日本　語 x\u00a0y")
    assert shown.getvalue() == "a[31mb\tc\nمی‌خواهم 👩‍👧 日本　語 x\u00a0y"


def test_a_device_that_the_model_is_not_for(artifact: Path) -> None:
    fails(artifact, 4, "--ids", "1", "--device", "cuda:1", says="compile it with --target cuda")
    fails(artifact, 2, "--ids", "1", "--device", "gpu", says="cpu, cuda or cuda:1, not 'gpu'")
    assert tiny_artifact.run(artifact, "--prompt", PROMPT, "--device", "cpu").returncode == 0
