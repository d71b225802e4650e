"""An encoder, and a decoder that reads on from what it gives: the source is read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from maxtool.architectures.cache_layout import CacheLayout
from maxtool.architectures.decoder import Decoder
from maxtool.architectures.entry import Entry, Limit, Table
from maxtool.graph import Tensor, TensorType
from maxtool.nn import Embedding, Module

ENCODE, OUTPUT = "encode", "last_hidden_state"
PART = "decoder"

# From the inputs of an encoder to the source, [batch, positions, hidden].
SourceEncoder: TypeAlias = Module[[Tensor], Tensor]


class EncoderDecoder(Module[[Tensor], Tensor]):
    """An encoder and the decoder whose layers attend to its output.

    Both caches are one state: the keys and values of a text, which grow with it, and those of the
    source, which ``encode`` writes and the steps of the decoder read.

    Args:
        encoder: From one input to the source.
        inputs: The type of that input, by name.
        decoder: Of as many source positions as the encoder gives.
        facts: Sizes of the encoder, for the manifest.
        shared: The embeddings of both parts, if they have the same.
        tables: Those of the encoder.
    """

    def __init__(
        self,
        encoder: SourceEncoder,
        inputs: Mapping[str, TensorType],
        decoder: Decoder,
        facts: Mapping[str, object],
        shared: Embedding | None = None,
        tables: tuple[Table, ...] = (),
    ) -> None:
        self.shared = shared
        self.encoder, self.decoder = encoder, decoder
        self._inputs, self._facts, self._tables = dict(inputs), dict(facts), tables

    def forward(self, source: Tensor, *cache: Tensor) -> Tensor:
        """The output of the encoder, whose keys and values are written into the cache."""
        encoded = self.encoder(source)
        self.decoder.read(encoded, *cache)
        return encoded

    @property
    def form(self) -> CacheLayout:
        """The form of the cache."""
        return self.decoder.form

    @property
    def context(self) -> int:
        """Positions of a text."""
        return self.decoder.context

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes of both parts."""
        return {**self.decoder.facts, **self._facts}

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Limits of the decoder's inputs."""
        return self.decoder.limits

    @property
    def positions(self) -> Mapping[str, int]:
        """The axis of positions of each buffer that has one."""
        return self.decoder.positions

    @property
    def turns(self) -> tuple[int, ...]:
        """Lengths beyond which texts are computed otherwise."""
        return self.decoder.turns

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of both parts; those that are computed have no name of a part."""
        own = self.decoder.raw_state_dict()
        named = (
            replace(each, weight=f"{PART}.{each.weight}") if each.weight in own else each
            for each in self.decoder.tables
        )
        return (*self._tables, *named)

    def entries(self) -> tuple[Entry, ...]:
        """``encode``, and the steps of the decoder."""
        state = self.decoder.cache()
        return (Entry(ENCODE, self, self._inputs, (OUTPUT,), state), *self.decoder.steps())
