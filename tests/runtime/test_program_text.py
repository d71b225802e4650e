"""Texts and token ids, continued by the program of an artifact."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import CONTEXT, PROMPT, STORY, fails, manifest_of


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


def test_sampling_is_repeatable(artifact: Path) -> None:
    def sample(seed: int) -> str:
        options = ["--ids", "1,5", "--temperature", "5", "--top-k", "50", "--seed", seed]
        return tiny_artifact.run(artifact, *options, "--json").stdout.partition("tokens_per")[0]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_no_language_model(artifact: Path) -> None:
    root = manifest_of(artifact)
    root["entries"]["decode"]["outputs"][0]["name"] = "hidden"
    tiny_artifact.write(artifact, root)
    fails(artifact, 4, "--ids", "1", says="no logits")
    del root["entries"]["decode"]
    tiny_artifact.write(artifact, root)
    fails(artifact, 4, "--ids", "1", says="no entry 'decode'")
