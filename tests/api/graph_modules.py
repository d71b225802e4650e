"""Small graph modules, their weights, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxtool import nn
from maxtool.dtype import DType
from maxtool.graph import DeviceRef, TensorType, Weight, ops

Array = np.ndarray[Any, Any]
CPU = DeviceRef.CPU()


class Linear(nn.Module):
    def __init__(self, in_dim: int, out_dim: int, name: str = "weight") -> None:
        self.weight = Weight(name, DType.float32, (out_dim, in_dim), CPU)

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.T


class MLP(nn.Module):
    def __init__(self) -> None:
        self.up = Linear(5, 10)
        self.gate = Linear(5, 10)
        self.down = Linear(10, 5)

    def __call__(self, x: Any) -> Any:
        return self.down(ops.silu(self.gate(x)) + self.up(x))


def values(seed: int = 0) -> dict[str, Array]:
    rows = np.random.default_rng(seed)
    shapes = {"up.weight": (10, 5), "gate.weight": (10, 5), "down.weight": (5, 10)}
    return {name: rows.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def kind(*shape: int | str, dtype: DType = DType.float32) -> TensorType:
    return TensorType(dtype, shape, CPU)


def mlp(state: dict[str, Array], x: Array) -> Array:
    gate = x @ state["gate.weight"].T
    result: Array = (gate / (1 + np.exp(-gate)) + x @ state["up.weight"].T) @ state["down.weight"].T
    return result


def run(model: nn.Module[..., Any], x: Array) -> Array:
    result: Array = model.compile(kind("rows", x.shape[1]))(x).to_numpy()
    return result
