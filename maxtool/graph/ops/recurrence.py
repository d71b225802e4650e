"""Operations over time that keep a state of fixed size of what came before."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.ops.caching import require_by_row
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_float32, require_heads, require_position
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("causal_conv1d", writes=0, numbers={3: DType.int32, 4: DType.int32})
def _infer_causal_conv1d(
    state: TensorType,
    x: TensorType,
    weight: TensorType,
    position: TensorType,
    *slot: TensorType,
) -> tuple[TensorType, ...]:
    require_float32(state, x, weight)
    require(x.rank == 3 and x.shape[2].is_static, "the input is [batch, seq, channels]")
    fits = weight.rank == 2 and weight.shape[0].is_static and weight.shape[1] == x.shape[2]
    require(fits, "the weight is [taps, channels]")
    require(int(weight.shape[0]) > 1, "there are two taps at least")
    kept = [int(weight.shape[0]) - 1, x.shape[2]]
    require(state.rank == 3 and state.shape[1:] == kept, "the state is [batch, taps - 1, channels]")
    require_rows(state, x, position, *slot)
    return state, TensorType(DType.float32, x.shape, x.device)


def require_rows(state: TensorType, x: TensorType, position: TensorType, *slot: TensorType) -> None:
    """Require a row of the state for each of ``x``, or slots that say which one is whose."""
    require(len(slot) <= 1, "there is one tensor of slots")
    if slot:
        require_by_row(x, position, *slot)
    else:
        require_position(position)
        require(state.shape[0] == x.shape[0], "the state has the batch of x")


def causal_conv1d(
    x: TensorLike,
    weight: TensorLike,
    state: Tensor,
    position: TensorLike,
    *,
    slot: TensorLike | None = None,
) -> tuple[Tensor, Tensor]:
    """Convolve each channel by itself with its last inputs: ``y[t] = sum(w[j] * x[t - n + j])``.

    ``j`` is from 0 to ``n``, the number of taps less 1. What was before ``x`` is in the state; at
    position 0 nothing was, and the inputs there are zeros, whatever the state holds.

    Args:
        x: float32 ``[batch, seq, channels]``.
        weight: float32 ``[taps, channels]``; there are two taps at least.
        state: float32 ``[batch, taps - 1, channels]``: the last inputs before ``x``, the oldest
            first. It is written in place where it is an input of a ``BufferType``, and a copy
            otherwise.
        position: int32 ``[1]``: where the first of ``x`` stands in its text.
        slot: Where it is not None, int32 ``[batch]``: for each row of ``x``, which row of the state
            is its own; no two have the same. The state may have any number of them, the others stay
            as they are, and positions are int32 ``[batch]``, too.

    Returns:
        ``y``, ``[batch, seq, channels]``, and the state after the write: the last inputs.
    """
    slots = [] if slot is None else [slot]
    after, y = apply("causal_conv1d", state, x, weight, position, *slots)
    return y, after


@rule("linear_attention", writes=0)
def _infer_linear_attention(
    state: TensorType,
    query: TensorType,
    key: TensorType,
    value: TensorType,
    decay: TensorType,
    *further: TensorType,
) -> tuple[TensorType, ...]:
    numbers = [kind for kind in further if kind.dtype is DType.int32]
    factors = [decay, *(kind for kind in further if kind.dtype is not DType.int32)]
    require_float32(state, query, key, value, *factors)
    require(len(factors) <= 2 and len(numbers) in (1, 2), "there are beta, position and slot")
    *outer, heads, value_dim = require_heads(value)
    *others, key_heads, key_dim = require_heads(key)
    require(query.shape == key.shape and others == outer, "queries are as keys, of the same tokens")
    require(key_heads != 0 and int(heads) % int(key_heads) == 0, "heads are a multiple of key's")
    by_head, by_channel = [*outer, heads], [*outer, heads, key_dim]
    fits = decay.shape in (by_head, by_channel) and all(x.shape == by_head for x in factors[1:])
    require(fits, "decay and beta are [batch, seq, heads], decay [..., key_dim] too")
    kept = [heads, key_dim, value_dim]
    fits = state.rank == 4 and state.shape[1:] == kept
    require(fits, "the state is [batch, heads, key_dim, value_dim]")
    require_rows(state, value, *numbers)
    return state, TensorType(DType.float32, value.shape, value.device)


def linear_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    decay: TensorLike,
    state: Tensor,
    position: TensorLike,
    *,
    beta: TensorLike | None = None,
    slot: TensorLike | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend to a state ``S`` of each head that tokens decay and add to.

    ``S = decay * S + outer(key, value)``, ``y = query @ S``, token by token. With ``beta`` it is
    the gated delta rule (Yang et al. 2024, arXiv:2412.06464): what is added is
    ``outer(key, beta * (value - key @ (decay * S)))``. Each channel of keys, which is a row of the
    state, may have a decay of its own (Kimi Delta Attention, arXiv:2510.26692).

    Args:
        query: float32 ``[batch, seq, key_heads, key_dim]``.
        key: Likewise; each head of both serves several neighbouring heads of values.
        value: float32 ``[batch, seq, heads, value_dim]``.
        decay: float32 ``[batch, seq, heads]``, or ``[batch, seq, heads, key_dim]``.
        state: float32 ``[batch, heads, key_dim, value_dim]``, written as that of
            :func:`causal_conv1d` is, and zeros at position 0.
        position: int32 ``[1]``, or ``[batch]`` with slots.
        beta: float32 ``[batch, seq, heads]``.
        slot: As there.

    Returns:
        ``y``, ``[batch, seq, heads, value_dim]``, and the state after the last token.
    """
    factors = [] if beta is None else [beta]
    numbers = [each for each in (position, slot) if each is not None]
    numbers = [x if isinstance(x, Tensor) else Tensor(x, DType.int32) for x in numbers]
    after, y = apply("linear_attention", state, query, key, value, decay, *factors, *numbers)
    return y, after


@rule("selective_scan", writes=0, numbers={6: DType.int32, 7: DType.int32})
def _infer_selective_scan(
    state: TensorType,
    query: TensorType,
    key: TensorType,
    value: TensorType,
    step: TensorType,
    rate: TensorType,
    position: TensorType,
    *slot: TensorType,
) -> tuple[TensorType, ...]:
    require_float32(state, query, key, value, step, rate)
    require(value.rank == 3 and value.shape[2].is_static, "the value is [batch, seq, channels]")
    require(step.shape == value.shape, "the step is as the value")
    fits = rate.rank == 2 and rate.shape[0].is_static and rate.shape[1] == value.shape[2]
    require(fits, "the rate is [state_dim, channels]")
    fits = query.shape == key.shape == [*value.shape[:2], rate.shape[0]]
    require(fits, "query and key are [batch, seq, state_dim]")
    fits = state.rank == 3 and state.shape[1:] == rate.shape
    require(fits, "the state is [batch, state_dim, channels]")
    require_rows(state, value, position, *slot)
    return state, TensorType(DType.float32, value.shape, value.device)


def selective_scan(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    step: TensorLike,
    rate: TensorLike,
    state: Tensor,
    position: TensorLike,
    *,
    slot: TensorLike | None = None,
) -> tuple[Tensor, Tensor]:
    """Scan a state ``S`` in which each channel has a column that decays by rates of its own.

    ``S = exp(step * rate) * S + outer(key, step * value)``, ``y = query @ S``, token by token (Gu
    and Dao 2023, arXiv:2312.00752, where queries and keys are C and B).

    Args:
        query: float32 ``[batch, seq, state_dim]``, the same for all channels.
        key: Likewise.
        value: float32 ``[batch, seq, channels]``.
        step: Like ``value``, from 0 up: how far a token moves each channel.
        rate: float32 ``[state_dim, channels]``, below 0.
        state: float32 ``[batch, state_dim, channels]``, written as that of :func:`causal_conv1d`
            is, and zeros at position 0.
        position: int32 ``[1]``, or ``[batch]`` with slots.
        slot: As there.

    Returns:
        ``y``, ``[batch, seq, channels]``, and the state after the last token.
    """
    slots = [] if slot is None else [slot]
    operands = (query, key, value, step, rate, position, *slots)
    after, y = apply("selective_scan", state, *operands)
    return y, after
