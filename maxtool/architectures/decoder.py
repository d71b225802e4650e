"""The decoder-only transformer: one class whose options are the differences between models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import islice

from maxtool.architectures.alternating_streams import StreamedLayer, StreamEnds
from maxtool.architectures.attention_temperature import query_scale
from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.decoder_checks import check_split
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.decoder_layer import DecoderLayer, Given
from maxtool.architectures.entry import Entry, Limit, Table
from maxtool.architectures.layer_embeddings import LayerEmbeddings
from maxtool.architectures.layer_state import LayerState
from maxtool.architectures.mlp import scaled
from maxtool.architectures.normalization import applied, stream_norm
from maxtool.architectures.position_vectors import POSITIONS
from maxtool.architectures.relative_positions import RelativeBias, RelativePositions, biases_of
from maxtool.architectures.rope_scaling import BY_LENGTH
from maxtool.architectures.rotary_angles import Turn, make_rotaries
from maxtool.architectures.sliding_cache import count_of
from maxtool.architectures.xielu import make_numbers
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import BufferType, DimLike, Tensor, TensorType, ops
from maxtool.graph.ops.sampling import SETTINGS
from maxtool.nn import Embedding, Linear, Module, ModuleList, tensor_parallel
from maxtool.nn.tensor_parallel import Role

CPU_FORM = CacheLayout()
# What the manifest calls the context that a scaling by length looks at. Beyond it longrope has one
# other way of reading, and dynamic scaling another one for each length.
BEYOND = {"longrope": "reread_beyond", "dynamic": "read_whole_beyond"}
SOURCE_LENGTH = "source_length"
# A text by itself.
ALONE = {"batch": 1}


class Decoder(Module[[Tensor], Tensor]):
    """A decoder-only language model; arguments as :func:`maxtool.architectures.build`.

    ``dtype`` is that of the matrices. Norms and biases, and everything computed, are float32.
    """

    def __init__(
        self,
        config: DecoderConfig,
        dtype: DType = DType.float32,
        context: int | None = None,
        form: CacheLayout = CPU_FORM,
        draws: bool = False,
    ) -> None:
        self.config = config
        self.form = form
        self.draws = draws
        self.context = context or config.max_context
        hidden = config.hidden_size
        width = config.embed_size or hidden
        self.embed = Embedding(config.vocab_size, width, dtype)
        self.embed_norm = stream_norm(config) if config.embed_norm else None
        has_own = width != hidden
        self.project_in = Linear(width, hidden, dtype) if has_own else None
        if config.position in POSITIONS:
            self.position = POSITIONS[config.position](config, self.context, dtype)
        self.relative = ModuleList(RelativeBias(config) for _ in range(config.relative_tables))
        self.distances = RelativePositions("relative", self.context, config, causal=True)
        vectors = config.layer_embed_size
        self.layer_embed = None if vectors is None else LayerEmbeddings(config, vectors, dtype)
        count = config.streams
        self.streams = None if count is None else StreamEnds(config, count, dtype)
        layer = DecoderLayer if count is None else StreamedLayer
        self.layers = ModuleList(
            layer(config, index, dtype, form, self.context) for index in range(config.n_layers)
        )
        self.norm = stream_norm(config) if config.final_norm else None
        self.project_out = Linear(hidden, width, dtype) if has_own else None
        self.lm_head = self.head(width, dtype)
        self.rotaries = make_rotaries(config, self.context)
        self.numbers = make_numbers(config)

    def head(self, width: int, dtype: DType) -> Linear | None:
        """The layer that makes logits of ``[..., width]``; None for a model that has none."""
        return self.whole_head(width, dtype)

    def whole_head(self, width: int, dtype: DType) -> Linear:
        """The layer that makes logits of all tokens."""
        config = self.config
        head = Linear(width, config.vocab_size, dtype, has_bias=config.lm_head_bias)
        head.role = Role.GATHERED
        if config.tie_word_embeddings:
            head.set_shared_weight("weight", self.embed.weight)
        return head

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits ``[batch, seq, vocab]`` of tokens ``[batch, seq]``, without a cache."""
        return self._logits(self.vectors(input_ids))

    def vectors(self, input_ids: Tensor) -> Tensor:
        """The normalised vectors ``[batch, seq, hidden]`` of tokens, without a cache."""
        location = Tensor([0], DType.int32, input_ids.device), None
        return self._hidden(input_ids, location, [])

    def step(self, input_ids: Tensor, position: Tensor, *cache: Tensor) -> Tensor:
        """Logits ``[batch, vocab]`` after the last of tokens ``[batch, seq]``.

        The cache, what each layer keeps, holds the ``position`` tokens before these, and is
        written in place. The caller checks that ``position + seq`` does not exceed ``context``.
        """
        return self._step(input_ids, (position, None), cache)

    def step_source(
        self, input_ids: Tensor, position: Tensor, source_length: Tensor, *cache: Tensor
    ) -> Tensor:
        """The same where the source has ``source_length`` positions, int32 ``[1]``."""
        return self._step(input_ids, (position, None), cache, source_length)

    def step_slots(
        self, input_ids: Tensor, position: Tensor, slot: Tensor, *cache: Tensor
    ) -> Tensor:
        """The same for texts in slots of the cache: several of one token each, or one text.

        ``position`` and ``slot`` are int32 ``[batch]``; the caller checks both, and that no slot
        stands there twice.
        """
        return self._step(input_ids, (position, slot), cache)

    def read(self, source: Tensor, *cache: Tensor) -> None:
        """Write what layers keep of ``source [batch, positions, hidden]`` into the cache."""
        for layer, kept in zip(self.layers, self._by_layer(cache), strict=True):
            layer.read(source, kept)

    def _step(
        self,
        input_ids: Tensor,
        location: Location,
        cache: Sequence[Tensor],
        source_length: Tensor | None = None,
    ) -> Tensor:
        hidden = self._hidden(input_ids, location, self._by_layer(cache), source_length)
        return self._logits(hidden[:, -1])

    def _by_layer(self, cache: Sequence[Tensor]) -> list[Cache]:
        """Return the buffers of each layer."""
        counts = [len(state.whole) for state in self.states()]
        if len(cache) != sum(counts):
            raise ValueError(f"the layers keep {sum(counts)} buffers, not {len(cache)}")
        rest = iter(cache)
        return [tuple(islice(rest, count)) for count in counts]

    def sample(
        self, token: Tensor, position: Tensor, draws: Tensor, settings: Tensor, *state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The next token, drawn from the logits after the last: one step without the host.

        ``draws`` and ``settings`` are as :func:`maxtool.graph.ops.sample` has them. The state, the
        cache and what was in the text, is written in place. Returns tokens ``[batch, 1]``, and
        ``position + seq``.
        """
        *cache, seen = state
        logits = self.step(token, position, *cache)
        drawn, _ = ops.sample(seen, logits, token, draws, position, settings)
        return drawn, position + count_of(token.shape[1])

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes, the windows of layers, and what caches hold that do not serve any sequence."""
        config = self.config
        names = ("vocab_size", "hidden_size", "n_layers", "n_experts_used")
        sizes = {name: size for name in names if (size := getattr(config, name)) is not None}
        windows = [config.window(layer) for layer in range(config.n_layers)]
        sizes |= {"windows": windows} if any(windows) else {}
        states = self.states()
        rooms = [state.room for state in states if state.room is not None]
        original, kept = config.original_context, min(rooms, default=self.context)
        beyond = BEYOND.get(config.rope_scaling) if self.context > original else None
        sizes |= {beyond: original} if beyond else {}
        sizes |= {"batch": self.form.slots} if self.form.slots > 1 else {}
        sizes |= {"is_recurrent": True} if any(state.is_fixed for state in states) else {}
        return sizes | ({"kept_positions": kept} if kept < self.context else {})

    @property
    def turns(self) -> tuple[int, ...]:
        """Windows, and the context that the scaling of rotary positions looks at, ascending."""
        config, layers = self.config, range(self.config.n_layers)
        turns = {window for layer in layers if (window := config.window(layer)) is not None}
        if config.rope_scaling in BY_LENGTH and any(
            config.has_attention(layer) and config.has_rope(layer) and not config.is_local(layer)
            for layer in layers
        ):
            turns.add(config.original_context)
        return tuple(sorted(turns))

    @property
    def positions(self) -> Mapping[str, int]:
        """The axis of positions of each buffer that has one."""
        return {
            f"cache.{layer}.{part}": axis
            for layer, state in enumerate(self.states())
            for part, axis in state.positions.items()
        }

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Positions, tokens and slots."""
        names = ("input_ids", "token") if self.draws else ("input_ids",)
        tokens = dict.fromkeys(names, (0, self.config.vocab_size - 1))
        slots = {"slot": (0, self.form.slots - 1)} if self.form.slots > 1 else {}
        most = self.config.source_positions
        source = {SOURCE_LENGTH: (1, most)} if most and self.config.source_varies else {}
        return {"seq": self.context, **tokens, **slots, **source}

    @property
    def tables(self) -> tuple[Table, ...]:
        """The vectors of tokens and of positions, and the angles of positions."""
        angles = [one for rotary in self.rotaries.values() for one in rotary.by_position]
        learned = Table("position.weight", "context", self.config.position_offset)
        tables = (learned, *(Table(name, "context") for name in angles))
        tables += (self.distances.table,)
        by_token = [Table("embed.weight", "input_ids")]
        if self.layer_embed is not None and not self.layer_embed.is_short:
            by_token.append(Table("layer_embed.embed.weight", "input_ids"))
        return (*by_token, *tables)

    def entries(self) -> tuple[Entry, ...]:
        """``forward``, ``prefill`` and ``decode``, and the latter two drawing the next token."""
        tokens = {"input_ids": TensorType(DType.int64, ["batch", "seq"])}
        forward = Entry("forward", self, tokens, ("logits",))
        if self.form.slots > 1:
            return forward, *self._cached(self.step_slots, 1, "batch", ("position", "slot"))
        plain = forward, *self._cached(self.step, "batch", 1, ("position",))
        return (*plain, *self._drawing()) if self.draws else plain

    def steps(self) -> tuple[Entry, ...]:
        """``prefill`` and ``decode`` alone."""
        if self.config.source_varies:
            numbers = ("position", SOURCE_LENGTH)
            return tuple(self._cached(self.step_source, "batch", 1, numbers))
        return tuple(self._cached(self.step, "batch", 1, ("position",)))

    def _cached(
        self, step: Callable[..., Tensor], read: DimLike, rows: DimLike, numbers: tuple[str, ...]
    ) -> Iterator[Entry]:
        """Yield ``prefill`` of ``read`` texts, and ``decode``.

        ``numbers`` names int32 inputs, ``rows`` of each in ``decode`` and one in ``prefill``.
        """
        sizes: dict[str, tuple[DimLike, DimLike, DimLike]]
        sizes = {"prefill": (read, "seq", 1), "decode": ("batch", 1, rows)}
        for name, (batch, length, count) in sizes.items():
            inputs = {"input_ids": TensorType(DType.int64, [batch, length])}
            inputs |= {number: TensorType(DType.int32, [count]) for number in numbers}
            usual = ALONE if (length, rows) == (1, 1) else {}
            yield Entry(name, step, inputs, ("logits",), self.cache(), usual=usual)

    def _drawing(self) -> Iterator[Entry]:
        """Yield the entries that read tokens and draw the next one."""
        seen = {"seen": BufferType(DType.int8, ["batch", self.config.vocab_size])}
        for name, size in (("prefill", "seq"), ("decode", 1)):
            inputs = {
                "token": TensorType(DType.int64, ["batch", size]),
                "position": TensorType(DType.int32, [1]),
                "draws": TensorType(DType.float32, [self.context]),
                "settings": TensorType(DType.float32, [SETTINGS]),
            }
            outputs, state = ("token", "position"), {**self.cache(), **seen}
            yield Entry(f"sample_{name}", self.sample, inputs, outputs, state, follows=name)

    def split(self, count: int) -> AbstractContextManager[None]:
        """Trace graphs for each of several devices in this block, with its share of the heads."""
        check_split(self.config, count)
        return tensor_parallel.traced_device(self, count)

    def unrounded(self) -> AbstractContextManager[None]:
        """Trace graphs with a cache in float32 in this block."""
        return self._formed(replace(self.form, dtype=DType.float32))

    @contextmanager
    def _formed(self, other: CacheLayout) -> Iterator[None]:
        """Trace graphs with a cache of another form in this block."""
        form = self.form
        self._set_form(other)
        try:
            yield
        finally:
            self._set_form(form)

    def _set_form(self, form: CacheLayout) -> None:
        self.form = form
        for layer in self.layers:
            layer.set_form(form)

    def cache(self) -> Mapping[str, BufferType]:
        """The buffers of a text, one fixed one for each part of what a layer keeps."""
        return {
            f"cache.{layer}.{part}": input_type
            for layer, state in enumerate(self.states())
            for part, input_type in state.whole.items()
        }

    def states(self) -> list[LayerState]:
        """The state of each layer, as the module is traced now."""
        return [layer.state() for layer in self.layers]

    def _hidden(
        self,
        input_ids: Tensor,
        location: Location,
        cache: list[Cache],
        source_length: Tensor | None = None,
        masks: Sequence[Tensor] = (),
    ) -> Tensor:
        """The normalised hidden state ``[batch, seq, hidden]``; masks are those of layers."""
        x = scaled(self.embed(input_ids), self.config.embed_scale)
        x = applied(self.project_in, x)
        if self.config.position in POSITIONS:
            x = self.position(x, location[0])
        x = applied(self.embed_norm, x)
        keys = self.context if cache else input_ids.shape[1]
        turns = self._turned(input_ids, location[0], keys)
        if masks:
            turns = [turn._replace(mask=mask) for turn, mask in zip(turns, masks, strict=True)]
        vectors = None if self.layer_embed is None else self.layer_embed(input_ids, x)
        return self._read(x, turns, location, cache, vectors, source_length)

    def _read(
        self,
        x: Tensor,
        turns: Sequence[Turn],
        location: Location,
        cache: list[Cache],
        vectors: Tensor | None = None,
        source_length: Tensor | None = None,
    ) -> Tensor:
        """The normalised hidden state behind the vectors ``[batch, seq, hidden]`` of tokens.

        ``vectors [batch, seq, layers, size]`` are those that tokens have for each layer, if any.
        """
        seen: dict[int | None, Cache] = {}
        x = applied(self.streams, x)
        for index, layer in enumerate(self.layers):
            kept = cache[index] if cache else None
            own = None if vectors is None else vectors[:, :, index]
            numbers = self.numbers[index].on(x.device) if self.numbers else None
            shared = seen.get(self.config.given_by(index), ())
            given = Given(own, shared, numbers, source_length)
            x, _, seen[index] = layer(x, turns[index], location, kept, given)
        x = x if self.streams is None else self.streams.merged(x)
        return applied(self.norm, x)

    def _turned(self, input_ids: Tensor, position: Tensor, keys: DimLike) -> list[Turn]:
        """The angles of each layer, the factor of its queries, and biases over so many keys."""
        places = position, input_ids.shape[1], keys
        biases = biases_of(self.relative, self.distances, places, self.config.n_layers)
        built = {
            is_local: rotary.angles(input_ids, position)
            for is_local, rotary in self.rotaries.items()
        }
        config, factor = self.config, None
        if config.temperature is not None and config.temperature_context is not None:
            temperature, length = config.temperature, config.temperature_context
            offset = config.temperature_offset
            factor = query_scale(input_ids, position, temperature, length, offset)
        return [
            Turn(
                built[config.is_local(layer)] if config.has_rope(layer) else None,
                factor if config.has_temperature(layer) else None,
                biases[layer],
            )
            if config.has_attention(layer)
            else Turn()
            for layer in range(config.n_layers)
        ]

    def _logits(self, hidden: Tensor) -> Tensor:
        if self.lm_head is None:
            raise ConfigurationError("the model makes vectors of texts, and has no head")
        read = applied(self.project_out, hidden)
        return self.bounded(self.lm_head(read))

    def bounded(self, logits: Tensor) -> Tensor:
        """Logits of the head, scaled and within bounds."""
        logits = scaled(logits, self.config.logits_scale)
        cap = self.config.logits_softcap
        return logits if cap is None else ops.tanh(logits / cap) * cap
