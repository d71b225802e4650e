"""Facts for the manifest of a model of images and texts: to what length texts are filled up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.architectures.dual_encoder import DualEncoder
from maxtool.errors import ConfigurationError
from maxtool.recipe import Plan
from maxtool.tokenizer import Tokenizer
from maxtool.weights.jsonfile import read_object

CONFIG, NAMES = "tokenizer_config.json", "model_input_names"
MOST = 1 << 24  # bytes of that file
MASK = "attention_mask"


def dual_encoder_facts(
    planned: Plan, module: object, tokenizer: Tokenizer | None
) -> Mapping[str, Any]:
    """The fact ``filled``, where texts are always of one length.

    Raises:
        ConfigurationError: If the tokenizer has no token for that.
    """
    if not isinstance(module, DualEncoder) or not module.options.text_fixed or tokenizer is None:
        return {}
    token = tokenizer.special_ids.get("pad")
    if token is None or token >= module.options.vocab_size:
        what = f"texts are filled up to {module.context} tokens, and no token is for padding"
        raise ConfigurationError(what, file=planned.checkpoint.folder / CONFIG)
    is_hidden = MASK in _inputs(planned)
    return {"filled": {"length": module.context, "token": token, "is_hidden": is_hidden}}


def _inputs(planned: Plan) -> list[object]:
    """Inputs that the tokenizer gives to the model; its class gives a mask where nothing says."""
    file = planned.checkpoint.folder / CONFIG
    said = read_object(file, most=MOST).get(NAMES) if file.is_file() else None
    return said if isinstance(said, list) else [MASK]
