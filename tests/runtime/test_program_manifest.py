"""Manifests that the loader reads or refuses: hostile, of other releases, of other machines."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.runtime import loader
from tests.effort import examples

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import CONTEXT, VOCAB, fails, manifest_of


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
    "read whole beyond the context": ("read_whole_beyond", CONTEXT),
    "a window as long as the context": ("kept_positions", CONTEXT),
    "a state of all tokens that is not there": ("is_recurrent", True),
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
    "a least size below 0": ("entries/forward/least", {"seq": -1}),
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


@pytest.mark.parametrize(
    ("number", "says"),
    [("1", "compile it again"), ("x", "compile it again"), ("47", "use a newer release")],
)
def test_an_artifact_of_another_release(artifact: Path, number: str, says: str) -> None:
    tiny_artifact.write(artifact, {**manifest_of(artifact), "schema": f"maxtool.artifact/{number}"})
    fails(artifact, 3, "--ids", "1", "--no-verify", says=f"help: {says}, or the run.py in its own")


@pytest.mark.parametrize("text", ["", "[", "[1]", "[" * 200_000, '{"schema": 1}', "\xff"])
def test_no_manifest_at_all(artifact: Path, text: str) -> None:
    (artifact / "manifest.json").write_text(text, encoding="latin-1")
    fails(artifact, 3, "--info", says="manifest.json")
    (artifact / "manifest.json").unlink()
    fails(artifact, 3, "--info", says="manifest.json")


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
