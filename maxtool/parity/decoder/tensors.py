"""The tensors of one decoder checkpoint by their roles, read one at a time as float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, MissingWeight
from maxtool.parity.decoder.settings import ATTENTION, MLP, QKV, Settings
from maxtool.weights.checkpoint import Checkpoint
from maxtool.weights.data import WeightData

Array = NDArray[np.float64]

JOINED = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}
NORMS = {
    "pre": ("attn_norm", "mlp_norm"),
    "post": ("attn_post_norm", "mlp_post_norm"),
    "sandwich": ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm"),
    "parallel": ("attn_norm", "mlp_norm"),
    "parallel_shared": ("attn_norm",),
}
EXPERTS = ("expert_gate", "expert_up", "expert_down")
HEAD_ROWS = 8192
"""Vocabulary rows widened to float64 at a time."""


class Tensors:
    """Reads tensors by role.

    Args:
        settings: Which tensors there are, of which shapes, under which names.
        checkpoint: Where they are.
    """

    def __init__(self, settings: Settings, checkpoint: Checkpoint) -> None:
        self._settings, self._names, self._checkpoint = settings, settings.names, checkpoint
        embed = self._names.roles["embed"] + ".weight"
        fitting = (base for base in self._names.bases if base + embed in checkpoint.tensors)
        self._base = next(fitting, self._names.bases[0])

    def wanted(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Stored name and shape of every tensor that the computation reads."""
        yield from self._entry("embed")
        yield from self._entry("norm", bias=self._settings.norm == "layer")
        if self._settings.positions:
            yield from self._entry("position")
        if not self._settings.tied:
            yield from self._entry("head")
        for layer in range(self._settings.sizes.layers):
            yield from self._layer(layer)

    def check(self) -> None:
        """Compare what is wanted with the headers.

        Raises:
            MissingWeight: If tensors are missing.
            MisshapenWeight: If tensors have other shapes than the configuration says.
        """
        wanted, found = dict(self.wanted()), self._checkpoint.tensors
        if missing := [name for name in wanted if name not in found]:
            raise MissingWeight("tensors are missing", file=self._checkpoint.path, problems=missing)
        misshapen = [
            f"{name} has shape {list(found[name].shape)}, not {list(shape)}"
            for name, shape in wanted.items()
            if tuple(found[name].shape) != shape
        ]
        if misshapen:
            raise MisshapenWeight(
                "tensors have other shapes than the configuration says",
                file=self._checkpoint.path,
                problems=misshapen,
            )

    def read(
        self, role: str, kind: str = "weight", layer: int | None = None, part: int | None = None
    ) -> Array:
        """A projection [out, in], a norm or a bias [features], decoded if it is quantized.

        Args:
            role: One of :mod:`maxtool.parity.decoder.names`.
            kind: ``weight`` or ``bias``.
            layer: Whose it is.
            part: Which expert's.
        """
        stored = self._stored_role(role)
        name = self._name(stored, kind, layer, part)
        stacked = stored in EXPERTS and not self._names.expert_by_expert
        if stacked and part is not None:
            weight = self._checkpoint.rows(name, part)
        else:
            weight = self._checkpoint.read(name)
        if self._is_transposed(stored) and kind == "weight":
            weight = replace(weight, data=weight.data.T, shape=weight.shape[::-1])
        if stored != role:
            weight = _cut(weight, self._rows(role))
        return _values(weight).astype(np.float64)

    def lookup(self, role: str, ids: NDArray[Any]) -> Array:
        """Rows of an embedding: [*ids.shape, hidden]."""
        return _values(self._checkpoint.rows(self._name(role), ids)).astype(np.float64)

    def head(self, x: Array) -> Array:
        """Logits [..., vocab] of ``x`` [..., hidden], widening a few rows of the head at a time."""
        weight = self._checkpoint.read(self._name("embed" if self._settings.tied else "head"))
        logits = np.empty((*x.shape[:-1], weight.shape[0]))
        for start in range(0, weight.shape[0], HEAD_ROWS):
            rows = _cut(weight, slice(start, start + HEAD_ROWS))
            logits[..., start : start + HEAD_ROWS] = x @ _values(rows).astype(np.float64).T
        return logits

    def _stored_role(self, role: str) -> str:
        """The role whose tensor holds this one."""
        joined = JOINED.get(role, role)
        return joined if joined in self._names.roles else role

    def _name(
        self, role: str, kind: str = "weight", layer: int | None = None, part: int | None = None
    ) -> str:
        if role == "head":
            return f"{self._names.head}.{kind}"
        return f"{self._base}{self._names.roles[role].format(layer, part)}.{kind}"

    def _is_transposed(self, role: str) -> bool:
        return self._names.transposed and role in (*ATTENTION, *MLP, *JOINED.values())

    def _rows(self, role: str) -> NDArray[np.int64]:
        """Where the rows of a role are in the tensor that joins it with others."""
        sizes = self._settings.sizes
        if role in ("gate", "up"):
            return np.arange(sizes.inner) + sizes.inner * (role == "up")
        group = sizes.heads // sizes.kv_heads
        counts = dict(zip(QKV, (group, 1, 1), strict=True))
        if self._names.qkv == "stacked":
            counts = {part: count * sizes.kv_heads for part, count in counts.items()}
        groups = 1 if self._names.qkv == "stacked" else sizes.kv_heads
        start = sum(counts[part] for part in QKV[: QKV.index(role)])
        rows = np.arange(groups * sum(counts.values()) * sizes.head_dim)
        return rows.reshape(groups, -1, sizes.head_dim)[:, start : start + counts[role]].ravel()

    def _shape(self, role: str) -> tuple[int, ...]:
        """The logical shape of a role's weight; a bias has its first dimension."""
        s = self._settings.sizes
        q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
        each = self._settings.qk_norm == "head"
        experts = self._settings.experts
        count, inner = (experts.count, experts.inner) if experts else (0, 0)
        stacked = () if role not in EXPERTS or self._names.expert_by_expert else (count,)
        table = {
            "embed": (s.vocab, s.hidden),
            "head": (s.vocab, s.hidden),
            "position": (self._settings.positions, s.hidden),
            "q": (q, s.hidden),
            "k": (kv, s.hidden),
            "v": (kv, s.hidden),
            "o": (s.hidden, q),
            "q_norm": (s.head_dim if each else q,),
            "k_norm": (s.head_dim if each else kv,),
            "qkv": (q + 2 * kv, s.hidden),
            "gate": (s.inner, s.hidden),
            "up": (s.inner, s.hidden),
            "down": (s.hidden, s.inner),
            "gate_up": (2 * s.inner, s.hidden),
            "router": (count, s.hidden),
            "expert_gate": (*stacked, inner, s.hidden),
            "expert_up": (*stacked, inner, s.hidden),
            "expert_down": (*stacked, s.hidden, inner),
        }
        return table.get(role, (s.hidden,))

    def _layer(self, layer: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        settings = self._settings
        for role in NORMS[settings.block]:
            yield from self._entry(role, layer, bias=settings.norm == "layer")
        for role in ("q_norm", "k_norm") if settings.qk_norm != "none" else ():
            yield from self._entry(role, layer)
        mlp = MLP if settings.gated else ("up", "down")
        for role in dict.fromkeys(map(self._stored_role, ATTENTION)):
            yield from self._projection(role, layer)
        if settings.has_experts(layer):
            yield from self._expert_tensors(layer)
        else:
            for role in dict.fromkeys(map(self._stored_role, mlp)):
                yield from self._projection(role, layer)

    def _projection(self, role: str, layer: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        inside = [part for part, joined in JOINED.items() if joined == role] or [role]
        yield from self._entry(role, layer, bias=bool(self._settings.biased.intersection(inside)))

    def _expert_tensors(self, layer: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from self._entry("router", layer)
        count = self._settings.experts.count if self._settings.experts else 0
        for role in EXPERTS:
            for part in range(count) if self._names.expert_by_expert else (None,):
                yield from self._entry(role, layer, part)

    def _entry(
        self, role: str, layer: int | None = None, part: int | None = None, *, bias: bool = False
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        shape = self._shape(role)
        stored = shape[::-1] if self._is_transposed(role) else shape
        yield self._name(role, "weight", layer, part), stored
        if bias:
            yield self._name(role, "bias", layer, part), shape[:1]


def _cut(weight: WeightData, index: Any) -> WeightData:  # noqa: ANN401 - whatever indexes rows
    """Some rows of a weight; quantized rows stay quantized."""
    data = weight.data[index]
    return replace(weight, data=data, shape=(*data.shape[:-1], weight.shape[-1]))


def _values(weight: WeightData) -> NDArray[Any]:
    """The elements as they are stored, or as float32 if they are quantized."""
    return (weight.astype(DType.float32) if weight.quantization_encoding else weight).data
