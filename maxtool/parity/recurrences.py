"""Operations over time that keep a state of fixed size."""

from __future__ import annotations

import numpy as np

from maxtool.parity.array_types import Array, Definitions, Floats, Integers


def _causal_conv1d(
    state: Floats, x: Floats, weight: Floats, position: Integers, *slot: Integers
) -> tuple[Floats, Floats]:
    """Convolve what the state holds and ``x [batch, seq, channels]``; write the last inputs."""
    rows, old = _begun(state, x, position, *slot)
    taps, length = weight.shape[0], x.shape[1]
    joined = np.concatenate([old, x], axis=1)
    result = sum(weight[j] * joined[:, j : j + length] for j in range(taps))
    state[rows] = joined[:, length:]
    return state, np.asarray(result)


def _linear_attention(
    state: Floats,
    query: Floats,
    key: Floats,
    value: Floats,
    decay: Floats,
    *further: Array,
) -> tuple[Floats, Floats]:
    """Scan tokens; ``further`` are beta, if what is held is replaced, and the numbers."""
    given = further[0] if further[0].dtype.kind == "f" else None
    rows, held = _begun(state, value, *further[0 if given is None else 1 :])
    sums, result = held.copy(), np.zeros(value.shape)
    query, key = (np.repeat(x, value.shape[2] // x.shape[2], axis=2) for x in (query, key))
    faded = decay if decay.ndim == key.ndim else decay[..., None]
    for t in range(value.shape[1]):
        sums = sums * faded[:, t, ..., None]
        new = value[:, t]
        if given is not None:
            told = np.einsum("bhkv,bhk->bhv", sums, key[:, t])
            new = (new - told) * given[:, t, :, None]
        sums = sums + key[:, t, :, :, None] * new[:, :, None]
        result[:, t] = np.einsum("bhkv,bhk->bhv", sums, query[:, t])
    state[rows] = sums
    return state, result


def _selective_scan(
    state: Floats,
    query: Floats,
    key: Floats,
    value: Floats,
    step: Floats,
    rate: Floats,
    position: Integers,
    *slot: Integers,
) -> tuple[Floats, Floats]:
    """Scan tokens; each channel of ``value [batch, seq, channels]`` has a column of the state."""
    rows, held = _begun(state, value, position, *slot)
    sums, result = held.copy(), np.zeros(value.shape)
    for t in range(value.shape[1]):
        moved = step[:, t, None]
        sums = sums * np.exp(moved * rate) + key[:, t, :, None] * (moved * value[:, t, None])
        result[:, t] = np.einsum("bnc,bn->bc", sums, query[:, t])
    state[rows] = sums
    return state, result


def _begun(
    state: Array, x: Array, position: Integers, slot: Integers | None = None
) -> tuple[Integers, Array]:
    """The rows of the state that belong to those of ``x``, and what they hold: zeros at first."""
    rows = np.arange(len(x)) if slot is None else slot
    began = np.broadcast_to(position == 0, len(x))
    return rows, np.where(began[(...,) + (None,) * (state.ndim - 1)], 0, state[rows])


COMPUTED: Definitions = {
    "causal_conv1d": _causal_conv1d,
    "linear_attention": _linear_attention,
    "selective_scan": _selective_scan,
}
