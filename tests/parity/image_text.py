"""Models of texts with images, traced, and computed in float64 without a compiler."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from tests.data.seeded import pixel_values
from tests.parity.traced import TracedModel

Array = np.ndarray[Any, Any]
DECODED = 3
"""Tokens that come one at a time, as ``record_image_text.py`` has them."""


def calls(known: dict[str, Any]) -> Iterator[tuple[str, dict[str, Array]]]:
    """The calls that read the text of a recording: runs of words, images, and the last tokens."""
    config, ids = known["config"], np.array(known["ids"])
    images = iter(pixel_values(config["vision_config"]))
    token, last, at = config["image_token_index"], len(ids) - DECODED, 0
    parts = [[*run] for _, run in groupby(ids[:last], lambda one: one == token)]
    for part in (*parts, *([one] for one in ids[last:])):
        place = {"position": np.array([at], np.int32)}
        if part[0] == token:
            yield "look", {"pixel_values": next(images)[None], **place}
        else:
            name = "decode" if at >= last else "prefill"
            yield name, {"input_ids": np.array([part]), **place}
        at += len(part)


class ImageTextModel(TracedModel):
    """The graphs of a checkpoint that reads images within texts."""

    def outputs(self, known: dict[str, Any]) -> dict[str, Array]:
        """The logits behind the last tokens of a recorded text."""
        state = self._runner.new_state(batch=1)
        found = [self._runner.run(*call, state) for call in calls(known)]
        logits = [one["logits"][0] for one in found if "logits" in one]
        return {"logits": np.stack(logits[-1 - DECODED :])}
