"""The form of the rows that say how configurations of a family are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from maxtool.parity.decoder.huggingface.rope import RopeKeys
from maxtool.parity.decoder.names import Names
from maxtool.parity.decoder.rope import Rope
from maxtool.parity.decoder.settings import Sizes
from maxtool.parity.raw_config import Reader

Options = dict[str, Any]

KEYS = {
    "hidden": "hidden_size",
    "inner": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "eps": "rms_norm_eps",
    "activation": "hidden_act",
    "context": "max_position_embeddings",
}
"""Llama's key for each value that other families have elsewhere."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Which layers see a window of keys only.

    Attributes:
        default: The window where the key is absent; null is none.
        switch: Whether ``use_sliding_window`` must be true.
        listed: Whether ``layer_types`` says for which layers, if it is there.
        rule: Otherwise, from the configuration and a layer whether it has a window.
    """

    default: int | None = None
    switch: bool = False
    listed: bool = False
    rule: Callable[[Reader, int], bool] = lambda _, __: True


@dataclass(frozen=True, slots=True)
class Row:
    """How the configurations of one ``model_type`` are read.

    Attributes:
        names: What the tensors are called.
        fixed: Settings that all models of the family have in common.
        keys: For a value of :data:`KEYS` the family's own key.
        older: For a key that the first releases of the family had its name of today.
        defaults: For a key what it means where it is absent.
        biased: Projections with a bias, whatever the configuration says.
        biases: For a key the projections that have a bias if it is true.
        windows: Which layers see a window; None if none does.
        rope: Where the rotary settings are; None without any.
        ropes: Makes the settings of each layer of them.
        only: For a key the values that compute what the reference does; the first is the default.
        more: Further settings, from the configuration, the sizes and the row's own.
        section: The part of the configuration that describes the text model.
    """

    names: Names
    fixed: Options = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    biased: tuple[str, ...] = ()
    biases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    windows: Windows | None = None
    rope: RopeKeys | None = field(default_factory=RopeKeys)
    ropes: Callable[[Reader, Row, Sizes, tuple[bool, ...]], tuple[Rope | None, ...]] | None = None
    only: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    more: Callable[[Reader, Sizes], Options] | None = None
    section: str | None = None

    def key(self, value: str) -> str:
        """The family's key for a value of :data:`KEYS`."""
        return self.keys.get(value, KEYS[value])
