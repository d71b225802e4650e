"""The tensors of one encoder checkpoint by their roles, read one at a time as float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, MissingWeight
from maxtool.parity.encoder.settings import Settings
from maxtool.weights.checkpoint import Checkpoint

Array = NDArray[np.float64]

LAYER = "encoder.layer.{}."
DISTIL = "transformer.layer.{}."
NOMIC = "encoder.layers.{}."
JOINED = {"q", "k", "v"}
GGUF = {
    "word": "token_embd",
    "position": "position_embd",
    "type": "token_types",
    "norm": "token_embd_norm",
    "q": "blk.{}.attn_q",
    "k": "blk.{}.attn_k",
    "v": "blk.{}.attn_v",
    "o": "blk.{}.attn_output",
    "attn_norm": "blk.{}.attn_output_norm",
    "up": "blk.{}.ffn_up",
    "down": "blk.{}.ffn_down",
    "mlp_norm": "blk.{}.layer_output_norm",
}
# What each tensor is called, without ".weight" or ".bias".
NAMES: Mapping[str, Mapping[str, str]] = {
    "bert": {
        "word": "embeddings.word_embeddings",
        "position": "embeddings.position_embeddings",
        "type": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
        "q": LAYER + "attention.self.query",
        "k": LAYER + "attention.self.key",
        "v": LAYER + "attention.self.value",
        "o": LAYER + "attention.output.dense",
        "attn_norm": LAYER + "attention.output.LayerNorm",
        "up": LAYER + "intermediate.dense",
        "down": LAYER + "output.dense",
        "mlp_norm": LAYER + "output.LayerNorm",
        "pooler": "pooler.dense",
    },
    "distilbert": {
        "word": "embeddings.word_embeddings",
        "position": "embeddings.position_embeddings",
        "norm": "embeddings.LayerNorm",
        "q": DISTIL + "attention.q_lin",
        "k": DISTIL + "attention.k_lin",
        "v": DISTIL + "attention.v_lin",
        "o": DISTIL + "attention.out_lin",
        "attn_norm": DISTIL + "sa_layer_norm",
        "up": DISTIL + "ffn.lin1",
        "down": DISTIL + "ffn.lin2",
        "mlp_norm": DISTIL + "output_layer_norm",
    },
    "nomic": {
        "word": "embeddings.word_embeddings",
        "type": "embeddings.token_type_embeddings",
        "norm": "emb_ln",
        "qkv": NOMIC + "attn.Wqkv",
        "o": NOMIC + "attn.out_proj",
        "attn_norm": NOMIC + "norm1",
        "gate": NOMIC + "mlp.fc12",
        "up": NOMIC + "mlp.fc11",
        "down": NOMIC + "mlp.fc2",
        "mlp_norm": NOMIC + "norm2",
    },
    "gguf": GGUF,
    "gguf-nomic": {
        **{role: name for role, name in GGUF.items() if role not in {*JOINED, "position"}},
        "qkv": "blk.{}.attn_qkv",
        "gate": "blk.{}.ffn_gate",
    },
}
# A head for training puts its encoder below a name; the first BERT named norms after the paper.
PREFIXES = ("", "bert.", "roberta.", "distilbert.", "nomic_bert.")
OLD = {"weight": "gamma", "bias": "beta"}
NORMS = ("norm", "attn_norm", "mlp_norm")


class Tensors:
    """Reads tensors by role.

    Args:
        settings: Which tensors there are, and of which shapes.
        checkpoint: Where they are.

    Raises:
        MissingWeight: If tensors are missing.
        MisshapenWeight: If tensors have other shapes than the configuration says.
    """

    def __init__(self, settings: Settings, checkpoint: Checkpoint) -> None:
        self._settings, self._checkpoint = settings, checkpoint
        self._names = NAMES[settings.kind]
        word = f"{self._names['word']}.weight"
        fitting = (prefix for prefix in PREFIXES if prefix + word in checkpoint.tensors)
        self._prefix = next(fitting, "")
        self._check()

    def has(self, role: str, kind: str = "weight", layer: int = 0) -> bool:
        """Whether there is such a tensor."""
        return role in self._names and self._name(role, kind, layer) in self._checkpoint.tensors

    def read(self, role: str, kind: str = "weight", layer: int = 0) -> Array:
        """One tensor, decoded if it is quantized."""
        if role in JOINED and role not in self._names:
            return np.split(self.read("qkv", kind, layer), 3)["qkv".index(role)]
        weight = self._checkpoint.read(self._name(role, kind, layer))
        plain = weight.astype(DType.float32) if weight.quantization_encoding else weight
        return plain.data.astype(np.float64)

    def linear(self, role: str, x: Array, layer: int = 0) -> Array:
        """``x`` [..., in] times the role's weight, and its bias added if there is one."""
        product = x @ self.read(role, layer=layer).T
        return product + self.read(role, "bias", layer) if self._biased(role, layer) else product

    def _biased(self, role: str, layer: int) -> bool:
        return self.has(role if role in self._names else "qkv", "bias", layer)

    def _name(self, role: str, kind: str, layer: int) -> str:
        stem = self._prefix + self._names[role].format(layer)
        older = f"{stem}.{OLD[kind]}"
        return older if older in self._checkpoint.tensors else f"{stem}.{kind}"

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every tensor that the arithmetic needs."""
        s = self._settings
        width = s.heads * s.head_dim
        outer = {"word": (s.vocab, s.hidden)}
        outer |= {} if s.theta else {"position": (s.context + s.offset, s.hidden)}
        outer |= {"type": (s.types, s.hidden)} if s.types else {}
        inner = {"o": (s.hidden, width), "up": (s.inner, s.hidden), "down": (s.hidden, s.inner)}
        inner |= {"gate": (s.inner, s.hidden)} if s.gated else {}
        joined = {"qkv": (3 * width, s.hidden)}
        split = dict.fromkeys(sorted(JOINED), (width, s.hidden))
        inner |= joined if "qkv" in self._names else split
        for role, shape in outer.items():
            yield self._name(role, "weight", 0), shape
        for kind in OLD:
            yield self._name("norm", kind, 0), (s.hidden,)
        for layer in range(s.layers):
            for role, shape in inner.items():
                yield self._name(role, "weight", layer), shape
            for role in NORMS[1:]:
                yield from ((self._name(role, kind, layer), (s.hidden,)) for kind in OLD)

    def _check(self) -> None:
        found = self._checkpoint.tensors
        wanted = dict(self._shapes())
        path = self._checkpoint.path
        if missing := [name for name in wanted if name not in found]:
            raise MissingWeight("tensors are missing", file=path, problems=missing)
        misshapen = [
            f"{name} has shape {list(found[name].shape)}, not {list(shape)}"
            for name, shape in wanted.items()
            if tuple(found[name].shape) != shape
        ]
        if misshapen:
            what = "tensors have other shapes than the configuration says"
            raise MisshapenWeight(what, file=path, problems=misshapen)
