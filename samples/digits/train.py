"""Make ``digits.safetensors``: train the network of ``digits.py`` with NumPy alone.

    python samples/digits/train.py --output samples/digits/digits.safetensors

Adam (Kingma and Ba 2015) on the cross entropy of new pictures in every step, with a rate that falls
to zero. Everything is seeded; it takes some seconds. Other processors add up in another order, and
with it the last digits of the weights may differ.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from pictures import draw
from safetensors.numpy import save_file

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]

SEED = 20261122
SHAPES = {
    "hidden.weight": (32, 64),
    "hidden.bias": (32,),
    "digits.weight": (10, 32),
    "digits.bias": (10,),
}
STEPS, BATCH, RATE = 1500, 256, 1e-2
MOMENTS = (0.9, 0.999)


def initial(random: np.random.Generator) -> Weights:
    """Normal numbers of variance ``2 / inputs`` (He et al. 2015); biases of 0."""
    return {
        name: random.normal(0, np.sqrt(2 / shape[-1]), shape) * (len(shape) > 1)
        for name, shape in SHAPES.items()
    }


def forward(weights: Weights, x: Array) -> tuple[Array, Array]:
    """The hidden units of pictures ``[n, 64]``, and the shares of the digits."""
    hidden = np.maximum(x @ weights["hidden.weight"].T + weights["hidden.bias"], 0)
    scores = hidden @ weights["digits.weight"].T + weights["digits.bias"]
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return hidden, powers / powers.sum(1, keepdims=True)


def gradients(weights: Weights, x: Array, digits: Array) -> Weights:
    """The derivatives of the mean cross entropy."""
    hidden, shares = forward(weights, x)
    scores = (shares - np.eye(10)[digits]) / len(x)
    units = scores @ weights["digits.weight"] * (hidden > 0)
    return {
        "hidden.weight": units.T @ x,
        "hidden.bias": units.sum(0),
        "digits.weight": scores.T @ hidden,
        "digits.bias": scores.sum(0),
    }


def train() -> tuple[Weights, float]:
    """The weights, and the share of 10,000 other pictures whose digit they tell."""
    random = np.random.default_rng(SEED)
    weights = initial(random)
    first, second = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in range(2))
    for step in range(STEPS):
        digits = random.integers(0, 10, BATCH)
        pixels = draw(digits, random).reshape(BATCH, -1)
        rate = RATE * (1 - step / STEPS)
        for name, slope in gradients(weights, pixels, digits).items():
            first[name] += (1 - MOMENTS[0]) * (slope - first[name])
            second[name] += (1 - MOMENTS[1]) * (slope**2 - second[name])
            mean = first[name] / (1 - MOMENTS[0] ** (step + 1))
            size = np.sqrt(second[name] / (1 - MOMENTS[1] ** (step + 1)))
            weights[name] = weights[name] - rate * mean / (size + 1e-8)
    digits = random.integers(0, 10, 10_000)
    _, shares = forward(weights, draw(digits, random).reshape(len(digits), -1))
    return weights, float((shares.argmax(1) == digits).mean())


def main() -> None:
    """Train, and write the weights."""
    parser = argparse.ArgumentParser(description="Train the network of digits.py.")
    parser.add_argument("--output", type=Path, default=Path("digits.safetensors"))
    output = parser.parse_args().output
    weights, accuracy = train()
    save_file({name: value.astype(np.float32) for name, value in weights.items()}, output)
    print(f"wrote {output}; it reads {accuracy:.1%} of 10000 new pictures")


if __name__ == "__main__":
    main()
