"""Alternating updates (AltUp, Baykal et al. 2023, arXiv:2301.13310), as Gemma 3n has them.

There are several residual streams, ``[batch, seq, streams, hidden]``. Each layer computes one of
them, and small matrices, which a router chooses by token, carry what it does to the others.
"""

from __future__ import annotations

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.decoder_layer import DecoderLayer, Given
from maxtool.architectures.mlp import scaled
from maxtool.architectures.normalization import stream_norm
from maxtool.architectures.rotary_angles import Turn
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import Linear, Module, ModuleList, parallel

# The least mean of squares that a stream is divided by the root of.
LEAST_SQUARE = 1e-5


class StreamEnds(Module[[Tensor], Tensor]):
    """Ways of the streams out of the vectors of tokens, and back into one vector."""

    def __init__(self, config: DecoderConfig, count: int, dtype: DType) -> None:
        hidden = config.hidden_size
        self.spread, self.merge = (
            ModuleList(Linear(hidden, hidden, dtype) for _ in range(count - 1)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, seq, hidden]`` to streams: ``x``, and products as long as it is."""
        made = [x, *(_as_long_as(x, matrix(x)) for matrix in self.spread)]
        return ops.stack(made, axis=2)

    def merged(self, streams: Tensor) -> Tensor:
        """The mean ``[batch, seq, hidden]`` of the first stream and of products of the others."""
        first = total = one_of(streams, 0)
        for place, matrix in enumerate(self.merge, start=1):
            total = total + _as_long_as(first, matrix(one_of(streams, place)))
        return scaled(total, 1 / int(streams.shape[2]))


def one_of(streams: Tensor, place: int) -> Tensor:
    """One stream, ``[batch, seq, hidden]``, by a gather, which is faster than a slice."""
    places = Tensor([place], DType.int64, streams.device)
    return ops.squeeze(ops.gather(streams, places, 2), 2)


def _as_long_as(wanted: Tensor, x: Tensor) -> Tensor:
    """``x``, multiplied so that the mean of its squares is that of ``wanted``."""
    length = ops.sqrt(ops.mean(wanted * wanted, axis=-1))
    own = ops.sqrt(ops.maximum(ops.mean(x * x, axis=-1), LEAST_SQUARE))
    return x * length / own


class StreamUpdate(Module[[Tensor], Tensor]):
    """The prediction of streams before a layer, and their correction behind it."""

    def __init__(self, config: DecoderConfig, count: int, dtype: DType) -> None:
        hidden = config.hidden_size
        self.router_norm = stream_norm(config)
        self.router = Linear(hidden, count, dtype)
        self.predict = Linear(count, count * count, dtype)
        self.correct = Linear(count, count, dtype)
        self.scale = Weight("scale", DType.float32, (hidden,)) if config.stream_scale else None
        self.count, self.active = count, config.active_stream
        self.router_scale = 1 / hidden

    def forward(self, streams: Tensor) -> Tensor:
        """The streams plus mixtures of all of them, as the active one says."""
        coefficients = self.predict(self._routed(self.computed(streams)))
        square = coefficients.reshape([*streams.shape[:2], self.count, self.count])
        return streams + ops.matmul(square, streams)

    def corrected(self, predicted: Tensor, one: Tensor, made: Tensor) -> Tensor:
        """The streams plus shares of what the layer made more than ``one`` that was predicted."""
        shares = self.correct(self._routed(made)) + 1.0
        more = made - one
        return predicted + ops.unsqueeze(shares, -1) * ops.unsqueeze(more, 2)

    def computed(self, streams: Tensor) -> Tensor:
        """The stream that layers compute, ``[batch, seq, hidden]``."""
        return one_of(streams, self.active)

    def weighed(self, streams: Tensor) -> Tensor:
        """The same, times its weight if it has one."""
        x = self.computed(streams)
        return x if self.scale is None else x * parallel.local(self.scale, x.device)

    def _routed(self, x: Tensor) -> Tensor:
        return ops.tanh(self.router(scaled(self.router_norm(x), self.router_scale)))


class StreamedLayer(DecoderLayer):
    """A layer that computes one of several streams, and carries it to the others."""

    def __init__(
        self, config: DecoderConfig, index: int, dtype: DType, form: CacheLayout, context: int
    ) -> None:
        super().__init__(config, index, dtype, form, context)
        self.streams = StreamUpdate(config, config.streams or 1, dtype)

    def forward(
        self,
        x: Tensor,
        turn: Turn,
        location: Location,
        cache: Cache | None,
        given: Given,
    ) -> tuple[Tensor, Cache | None, Cache]:
        """Map streams ``[batch, seq, streams, hidden]`` to the same shape.

        What the layer has for each token is added to all of them but the first.
        """
        predicted = self.streams(x)
        one, alone = self.streams.computed(predicted), given._replace(vectors=None)
        made, cache, seen = super().forward(one, turn, location, cache, alone)
        result = self.streams.corrected(predicted, one, made)
        if self.input is not None and given.vectors is not None:
            more = self.input(self.streams.weighed(result), given.vectors)
            others = Tensor([[0.0], *[[1.0]] * (self.streams.count - 1)], DType.float32, x.device)
            result = result + ops.unsqueeze(more, 2) * others
        return result, cache, seen
