"""Configurations of which the recording is far from ours: transformers in float64 is near.

The table in docs/models.md tells errors beside what transformers computed in float32. Those of
more than 1e-5 are its rounding.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maxtool.weights import open_checkpoint
from tests.data.seeded import sample
from tests.effort import sampled
from tests.parity.measure import logits
from tests.parity.seq2seq import Seq2SeqModel
from tests.parity.test_seq2seq import CASES, RECORDED, written
from tests.variants.errors import computed, told
from tests.variants.rows import Files, Row, error, inputs

pytestmark = [pytest.mark.peers, pytest.mark.slow]

LARGEST = 1e-5
ALIKE = ("bitnet", "ernie4_5", "falcon_mamba", "glm4_moe_lite", "granitemoe", "granitemoeshared")
ALIKE += ("hunyuan_v1_moe", "jamba", "lfm2")
QWEN = dict.fromkeys(("qwen3_5_moe", "qwen3_5_moe_vision", "qwen3_5_moe_fused"), "qwen3_5_moe_text")
# Recipes that the table tells such errors of, each with the family of those configurations.
ROUNDED = {**{name: name for name in ALIKE}, "granitehybrid": "granitemoehybrid", **QWEN}


def far(family: str, folder: Path) -> list[tuple[Row, Path, Any]]:
    """Configurations whose logits are further than the bound from what was recorded, and those."""
    files, found = Files(folder), []
    for row in computed(family):
        path = files.checkpoint(row).path
        ours = sample(logits(path, inputs(row)["input_ids"]))
        if error(ours, row.expected) > LARGEST:
            found.append((row, path, ours))
    return found


def test_no_other_recipe_has_such_errors() -> None:
    large = {
        name for name, found in told().items() if max(found.folders, found.files or 0) > LARGEST
    }
    assert large <= ROUNDED.keys()


@pytest.mark.parametrize("family", sampled(sorted({*ROUNDED.values()}), share=4))
def test_texts(family: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tests.data.record_random import Peer
    from tests.parity.wide_peer import wide_model

    for row, path, ours in far(family, tmp_path):
        ids = torch.from_numpy(inputs(row)["input_ids"])
        with wide_model(lambda folder, dtype: Peer(family, folder).load(dtype), path) as model:
            expected = model(input_ids=ids, use_cache=False).logits.numpy()
        assert error(ours, sample(expected)) < LARGEST, row


@pytest.mark.parametrize("case", sampled([case for case in CASES if "t5-" in case], share=20))
def test_sources(case: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tests.data.record_seq2seq import CLASSES, outputs
    from tests.parity.wide_peer import wide_model

    path, config = written(case, tmp_path), CASES[case]["config"]
    found = Seq2SeqModel(open_checkpoint(path)).outputs(config)
    if all(error(each, RECORDED[f"{case}/{name}"]) < LARGEST for name, each in found.items()):
        return
    kind = getattr(transformers, f"{CLASSES[case.partition('-')[0]]}ForConditionalGeneration")
    load = partial(kind.from_pretrained, attn_implementation="eager")
    with wide_model(lambda folder, dtype: load(folder, dtype=dtype).eval(), path) as model:
        expected = outputs(model, config)
    for name, each in found.items():
        assert error(each, expected[name]) < LARGEST, name
