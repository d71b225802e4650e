"""Perplexity and divergence of compiled models, beside torch's loss of the same checkpoints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from maxtool.cli.app import app

pytestmark = [pytest.mark.peers]

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "fireside"
CONTEXT = 96


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def stories(count: int) -> str:
    sys.path.insert(0, str(SAMPLE.parent))
    try:
        from stories import stories as generator
    finally:
        del sys.path[0]
    return "\n\n".join(generator(7, count))


def log_probabilities(torch: Any, model: Any, ids: Any, bos: int) -> tuple[Any, Any]:
    """Logarithms of probabilities behind the first half of each window, and the tokens there."""
    windows = ids[: len(ids) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)
    read = windows.clone()
    read[:, 0] = bos
    with torch.no_grad():
        logits = model(read).logits[:, CONTEXT // 2 : -1].double()
    vocabulary = logits.shape[-1]
    return logits.log_softmax(-1).reshape(-1, vocabulary), windows[:, CONTEXT // 2 + 1 :].flatten()


def test_figures_are_those_of_torch(tmp_path: Path) -> None:
    torch, transformers = map(pytest.importorskip, ("torch", "transformers"))
    (tmp_path / "text.txt").write_text(stories(12), encoding="utf-8")
    run("convert", SAMPLE, "-o", tmp_path / "q4.gguf", "--quantize", "Q4_0")
    run("convert", tmp_path / "q4.gguf", "-o", tmp_path / "q4", "--dtype", "float32")
    for source, name in ((SAMPLE, "a"), (tmp_path / "q4", "b")):
        run("compile", source, "-o", tmp_path / name, "--dtype", "float32")
    options = ("--text", tmp_path / "text.txt", "--context", CONTEXT, "--json")
    rows = json.loads(run("compare", tmp_path / "a", tmp_path / "b", *options))["artifacts"]

    tokenizer = transformers.AutoTokenizer.from_pretrained(SAMPLE)
    ids = torch.tensor(tokenizer((tmp_path / "text.txt").read_text()).input_ids)
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for folder in (SAMPLE, tmp_path / "q4")
    ]
    (p, tokens), (q, _) = (
        log_probabilities(torch, model, ids, tokenizer.bos_token_id) for model in models
    )
    for row, expected in zip(rows, (p, q), strict=True):
        loss = torch.nn.functional.nll_loss(expected, tokens)
        assert row["perplexity"]["value"] == pytest.approx(loss.exp().item(), rel=1e-4)
    divergence = torch.nn.functional.kl_div(q, p, log_target=True, reduction="batchmean").item()
    same = (p.argmax(-1) == q.argmax(-1)).double().mean().item()
    assert divergence > 1e-3
    assert rows[1]["kl_divergence"]["value"] == pytest.approx(divergence, rel=1e-3)
    assert rows[1]["same_top"]["value"] == pytest.approx(same, abs=2e-3)
