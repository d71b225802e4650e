"""Options of the program of an artifact, and the errors that they end in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import CONTEXT, PROMPT, VOCAB, fails


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
        (["--info", "--json-stream"], 2, "--json-stream goes with"),
        (["--prompts", "x", "--json-stream"], 2, "--json-stream goes with"),
        ([], 2, "give one of"),
        (["--inputs", "nowhere.npz"], 3, "nowhere.npz"),
        (["--inputs", __file__], 3, "no npz file"),
    ],
)
def test_bad_requests(artifact: Path, arguments: list[str], code: int, says: str) -> None:
    fails(artifact, code, *arguments, says=says)


def test_an_error_is_one_line_and_a_code(artifact: Path) -> None:
    done = tiny_artifact.run(artifact, "--ids", VOCAB)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: input_ids has values from")


def test_errors_as_json(artifact: Path) -> None:
    done = tiny_artifact.run(artifact, "--ids", "9999", "--json")
    content = json.loads(done.stdout)
    assert (content["schema"], content["error"]["exit_code"]) == ("maxtool.error/1", 4)
    both = tiny_artifact.run(artifact, "--ids", "1", "--json", "--json-stream")
    assert both.returncode == json.loads(both.stdout)["error"]["exit_code"] == 2


def test_info(artifact: Path) -> None:
    done = tiny_artifact.run(artifact, "--info", "--json")
    content = json.loads(done.stdout)
    assert content["schema"] == "maxtool.info/1"
    assert content["context"] == CONTEXT
    assert "input_ids int64[batch, seq] -> " in content["forward"]
    assert f"context:        {CONTEXT}" in tiny_artifact.run(artifact, "--info").stdout


def test_a_device_that_the_model_is_not_for(artifact: Path) -> None:
    fails(artifact, 4, "--ids", "1", "--device", "cuda:1", says="compile it with --target cuda")
    fails(artifact, 2, "--ids", "1", "--device", "gpu", says="cpu, cuda or cuda:1, not 'gpu'")
    assert tiny_artifact.run(artifact, "--prompt", PROMPT, "--device", "cpu").returncode == 0
