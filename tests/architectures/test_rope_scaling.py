"""Rotary frequencies of every scaling, against those recorded from transformers, and the tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.architectures import DecoderConfig, rope_scaling
from maxtool.architectures.decoder_checks import CHOICES, problems
from maxtool.architectures.rotary_angles import RotaryByLength, RotaryTable, make_rotaries
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import Tensor
from tests.architectures.decoders import CONFIG

FILE = Path(__file__).parents[1] / "data" / "rope_scalings.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text())["cases"]


def configuration(options: dict[str, Any]) -> DecoderConfig:
    frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    config = DecoderConfig(**CONFIG | frozen)
    assert problems(config) == []
    return config


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["options"]["rope_scaling"])
def test_frequencies(case: dict[str, Any]) -> None:
    config = configuration(case["options"])
    result = rope_scaling.frequencies(config, case["length"])
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, case["frequencies"], rtol=2.5e-7)
    assert rope_scaling.attention_factor(config) == pytest.approx(case["factor"], rel=1e-12)


def test_numbers_that_float32_cannot_hold() -> None:
    config = DecoderConfig(**CONFIG | {"rope_theta": 1e-200})
    with pytest.raises(ConfigurationError, match="rotary frequencies that are not numbers"):
        rope_scaling.frequencies(config, 1)


# Those that need no recording of their own: the configurations of Gemma 4 have the latter.
ELSEWHERE = {"none", "proportional"}


def test_every_scaling_is_recorded() -> None:
    recorded = {case["options"]["rope_scaling"] for case in CASES}
    assert recorded | ELSEWHERE == set(CHOICES["rope_scaling"]) == set(rope_scaling.SCALINGS)


def test_a_share_of_a_head() -> None:
    """Rotate the first pairs by what all of the head would be, and leave the others."""
    changes = {"head_dim": 8, "rope_theta": 100.0, "rope_factor": 2.0}
    config = DecoderConfig(**CONFIG | changes | {"rope_scaling": "proportional", "rope_pairs": 2})
    expected = np.array([1.0, 100.0**-0.25, 0.0, 0.0]) / 2
    np.testing.assert_allclose(rope_scaling.frequencies(config, 1), expected, rtol=1e-6)


def test_the_table_of_angles() -> None:
    config = DecoderConfig(**CONFIG | {"head_dim": 8, "rope_theta": 100.0})
    rotary = make_rotaries(config, 5)[False]
    assert isinstance(rotary, RotaryTable)
    angle = np.arange(5)[:, None] * 100.0 ** (-2 * np.arange(4) / 8)
    np.testing.assert_allclose(rotary.cos.to_numpy(), np.cos(angle), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rotary.sin.to_numpy(), np.sin(angle), rtol=1e-5, atol=1e-6)


def test_the_table_has_the_attention_factor() -> None:
    options = {"rope_scaling": "yarn", "rope_factor": 4.0, "rope_original_context": 4}
    rotary = make_rotaries(DecoderConfig(**CONFIG | options), 5)[False]
    assert isinstance(rotary, RotaryTable)
    assert rotary.cos.to_numpy()[0, 0] == np.float32(0.1 * np.log(4) + 1)


def test_learned_positions_have_no_angles() -> None:
    assert make_rotaries(DecoderConfig(**CONFIG | {"position": "learned"}), 5) == {}


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ({"rope_scaling": "dynamic", "rope_factor": 4.0, "context_length": 3}, 10),
        (
            {
                "rope_scaling": "longrope",
                "rope_original_context": 3,
                "rope_short_factors": (1.0, 1.5),
                "rope_long_factors": (2.0, 30.0),
            },
            2,
        ),
    ],
)
def test_angles_that_depend_on_the_length(options: dict[str, Any], lengths: int) -> None:
    """Each call takes the frequencies of where its sequence ends, short of the cache's end too."""
    config = configuration(options)
    rotary = make_rotaries(config, 12)[False]
    assert isinstance(rotary, RotaryByLength)
    assert rotary.table.shape == [lengths, 2]
    rotary.table.bind(rotary.table.to_numpy())
    for seq, position in ((1, 0), (3, 0), (4, 0), (1, 2), (1, 3), (2, 6), (12, 0)):
        tokens = Tensor(np.zeros((2, seq), np.int64))
        place = Tensor([position], DType.int32)
        cos, sin, first = rotary.angles(tokens, place)
        frequencies = rope_scaling.frequencies(config, position + seq)
        angle = (position + np.arange(seq))[:, None] * frequencies.astype(np.float64)
        factor = rope_scaling.attention_factor(config)
        assert first.to_numpy().tolist() == [0]
        np.testing.assert_allclose(cos.to_numpy(), np.cos(angle) * factor, atol=3e-6)
        np.testing.assert_allclose(sin.to_numpy(), np.sin(angle) * factor, atol=3e-6)


def test_a_factor_of_its_own_beyond_the_original_context() -> None:
    options = {"rope_scaling": "longrope", "rope_original_context": 4}
    options |= dict.fromkeys(("rope_short_factors", "rope_long_factors"), (1.0, 2.0))
    factors = {"rope_attention_factor": 1.5, "rope_long_attention_factor": 0.5}
    rotary = make_rotaries(configuration(options | factors), 12)[False]
    assert isinstance(rotary, RotaryByLength)
    rotary.table.bind(rotary.table.to_numpy())
    for position, factor in ((3, 1.5), (4, 0.5)):
        place = Tensor([position], DType.int32)
        cos, sin, _ = rotary.angles(Tensor(np.zeros((1, 1), np.int64)), place)
        length = np.hypot(cos.to_numpy(), sin.to_numpy())
        np.testing.assert_allclose(length, np.full((1, 2), factor), rtol=1e-5)


def test_within_the_original_context_the_length_changes_nothing() -> None:
    config = configuration({"rope_scaling": "dynamic", "rope_factor": 4.0})
    assert isinstance(make_rotaries(config, 16)[False], RotaryTable)
    assert isinstance(make_rotaries(config, 17)[False], RotaryByLength)
    assert config.max_context == 64
    assert replace(config, rope_factor=1e30).max_context == 2**31 - 1
