"""Drawing tokens from logits."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_float32, require_position
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

SETTINGS = 5


@rule("sample", writes=0, numbers={4: DType.int32})
def _infer_sample(
    seen: TensorType,
    logits: TensorType,
    tokens: TensorType,
    draws: TensorType,
    position: TensorType,
    settings: TensorType,
) -> tuple[TensorType, ...]:
    require_float32(logits, draws, settings)
    require_position(position)
    require(seen.dtype is DType.int8, f"seen is int8, not {seen.dtype.value}")
    require(tokens.dtype is DType.int64, f"tokens are int64, not {tokens.dtype.value}")
    require(logits.rank == 2 and seen.shape == logits.shape, "logits and seen are [batch, vocab]")
    require(tokens.rank == 2 and tokens.shape[0] == logits.shape[0], "tokens are [batch, seq]")
    require(draws.rank == 1, "draws are [context]")
    require(settings.shape == [SETTINGS], f"settings are [{SETTINGS}]")
    require(logits.shape[1] != 0, "there is a token")
    return (seen, TensorType(DType.int64, [logits.shape[0], 1], logits.device))


def sample(
    seen: Tensor,
    logits: Tensor,
    tokens: Tensor,
    draws: Tensor,
    position: TensorLike,
    settings: Tensor,
) -> tuple[Tensor, Tensor]:
    """Draw a token for each row of logits, without a look from the host.

    Logits are penalised for tokens that were in the text, divided by the temperature, cut to the
    ``top_k`` likeliest tokens and those as likely as the last of them, then to the fewest that
    together have the share ``top_p``, then to those with the part ``min_p`` of the likeliest one's
    probability; the token is where the drawn number lies among the rest, the likeliest first and
    of equal ones that with the lowest id. It is the token that an artifact's loader picks on the
    host, where rounding does not decide: shares are float32.

    Args:
        seen: int8 ``[batch, vocab]``: 1 for each token that was in the text. It is written in
            place where it is an input of a ``BufferType``, and a copy otherwise.
        logits: float32 ``[batch, vocab]``.
        tokens: int64 ``[batch, seq]``: marked as seen before anything else; ids that are no tokens
            are left out.
        draws: float32 ``[context]``, from 0 up to but not 1.
        position: int32 ``[1]``: which of ``draws`` is used, for all rows; the nearest there is.
        settings: float32 ``[5]``: temperature, top_k, top_p, min_p, repetition penalty. A
            temperature of 0 takes the likeliest token, of equal ones the first. A top_k of 0, a
            top_p of 1, a min_p of 0 and a penalty of 1 change nothing.

    Returns:
        The tokens, int64 ``[batch, 1]``: -1 where the greatest logit of a row is not finite; and
        ``seen`` after the write.
    """
    after, token = apply("sample", seen, logits, tokens, draws, position, settings)
    return token, after
