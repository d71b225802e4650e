"""Texts and token ids, continued by the program of an artifact."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.runtime import loader

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


def lines_of(artifact: Path, *arguments: object) -> list[dict[str, Any]]:
    """The lines of a text that streams: those of its tokens, and the last."""
    done = tiny_artifact.run(artifact, *arguments, "--json-stream", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_text_as_lines(artifact: Path, ids: dict[str, list[int]]) -> None:
    *tokens, last = lines_of(artifact, "--prompt", PROMPT)
    assert [token["id"] for token in tokens] == ids["story"]
    assert "".join(line["text"] for line in [*tokens, last]) == STORY
    assert not any("\N{REPLACEMENT CHARACTER}" in token["text"] for token in tokens)
    assert "" in [token["text"] for token in tokens], "a character is in several tokens"
    assert all(token.keys() == {"text", "id", "logprob"} for token in tokens)
    assert last["schema"] == "maxtool.token_stream/1"
    assert last["tokens"] == {"prompt": len(ids["prompt"]), "made": len(ids["story"])}
    assert last["stopped"] == "end"
    assert last["tokens_per_second"].keys() == {"prefill", "decode"}


def test_what_is_held_back_is_in_the_last_line(artifact: Path, ids: dict[str, list[int]]) -> None:
    """Half a character, and what may begin a stop string; what is in one is nowhere."""
    half = next(
        n for n in range(len(STORY)) if not STORY[n:].startswith(" ") and ord(STORY[n]) > 999
    )
    count = len(tiny_artifact.encode(PROMPT + STORY[:half])) - len(ids["prompt"]) + 1
    *tokens, last = lines_of(artifact, "--prompt", PROMPT, "--max-tokens", count)
    assert "".join(token["text"] for token in tokens) == STORY[:half]
    assert (last["text"], last["stopped"]) == ("\N{REPLACEMENT CHARACTER}", "length")
    *tokens, last = lines_of(artifact, "--prompt", PROMPT, "--stop", f"{STORY[-2:]} none")
    assert "".join(token["text"] for token in tokens) == STORY[:-2]
    assert (last["text"], last["stopped"]) == (STORY[-2:], "end")
    *tokens, last = lines_of(artifact, "--prompt", PROMPT, "--stop", " was a")
    assert "".join(token["text"] for token in tokens) == STORY.partition(" was a")[0]
    assert (last["text"], last["stopped"]) == ("", "stop")
    assert last["tokens"]["made"] == len(tokens)


def test_logarithms_of_probabilities_are_the_models_own(artifact: Path) -> None:
    """Compare with what NumPy's own functions give of the logits; the temperature is no matter."""
    drawing = ("--temperature", 3, "--top-k", 9, "--repetition-penalty", 1.3, "--seed", 4)
    *tokens, last = lines_of(artifact, "--ids", "1,5,9", "--max-tokens", 6, *drawing)
    model, text = loader.load(artifact), [1, 5, 9]
    for token in tokens:
        logits = model.run("prefill", {"input_ids": [text], "position": [0]})["logits"][0]
        shares = logits - np.logaddexp.reduce(logits.astype(np.float64))
        assert token["logprob"] == pytest.approx(shares[token["id"]], abs=1e-5)
        text.append(token["id"])
    assert last["tokens"]["made"] == len(tokens) == 6
    told = tiny_artifact.run(artifact, "--ids", "1,5,9", "--max-tokens", 6, *drawing, "--json")
    assert json.loads(told.stdout)["ids"] == text[3:], "noting changes nothing"


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
