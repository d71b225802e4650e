"""A compiled model: its entries, its tokenizer, generation."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .devices import TextMemory, open_device
from .embedding import Text, embed
from .errors import BadInput, BadUsage, DoesNotFit, MachineLacks
from .inputs import bind, check_position
from .machine import Compiled, open_module
from .manifest import Manifest
from .memory import Array, State, named
from .sampling import Chooser, Sampling
from .session import Session
from .specs import Entry
from .tokens import check_text, encode, open_tokenizer, telling_failures, too_long


class Model:
    """A compiled model.

    Calling it runs the entry ``forward``; :meth:`run` runs any entry. Arrays go in and come out by
    name. On a CPU weights are mapped from the file, on a GPU they are copied to it. Threads may
    share a model; their calls wait for each other.

    Attributes:
        manifest: What it is.
        processor: What runs it.
    """

    def __init__(
        self,
        manifest: Manifest,
        *,
        verified: bool = True,
        device: str | None = None,
        progress: Callable[[float], None] = lambda _share: None,
    ) -> None:
        """What :func:`load` does with a manifest that was read."""
        self.manifest = manifest
        self.processor = open_device(manifest, device)
        machine, library = open_module(manifest, self.processor, verified=verified)
        functions = {name: self._function(machine, e) for name, e in manifest.entries.items()}
        weights = _array(self.processor.weights(manifest, progress))
        self._compiled = Compiled(machine, functions, weights, library)
        self._tokenizer: Any = None
        self._idle: TextMemory | None = None

    def _function(self, machine: Any, entry: Entry) -> Any:  # noqa: ANN401
        try:
            found = machine.get_function(entry.function)
        except (AttributeError, RuntimeError):
            found = None
        if found is None:
            what = f"the code has no function {entry.function!r:.80}"
            raise BadInput(what, file=self.manifest.module)
        return found

    def __call__(self, **arrays: object) -> dict[str, Array]:
        """Run ``forward``."""
        return self.run("forward", arrays)

    def entry(self, name: str) -> Entry:
        """An entry by name; raises ``DoesNotFit`` that lists those there are."""
        if name not in self.manifest.entries:
            known = ", ".join(self.manifest.entries)
            raise DoesNotFit(f"the model has no entry {name!r}", hint=f"it has {known}")
        return self.manifest.entries[name]

    def new_state(self, **dims: int) -> State:
        """Zeroed state for the given sizes of named dimensions, such as ``batch=1``."""
        try:
            return State(self.processor, self.manifest.state, dims)
        except MachineLacks:
            if self._idle is None:
                raise
        self._idle = None  # what waits for the next text may have room for this one
        return State(self.processor, self.manifest.state, dims)

    def text_memory(self) -> TextMemory:
        """The memory of one text: that of a text that is over, if there is any."""
        with self._compiled.lock:  # never to two threads
            found, self._idle = self._idle, None
        if found is not None:
            found.state.clear()
            return found
        state = self.new_state(batch=1)
        return TextMemory(state, self.processor.decoder(self._compiled, self.manifest, state))

    def give_back(self, memory: TextMemory) -> None:
        """Keep the memory of a text that is over for the next one, where that saves work."""
        if memory.decoder is not None:
            self._idle = memory

    def run(
        self, name: str, arrays: Mapping[str, object], state: State | None = None
    ) -> dict[str, Array]:
        """Run an entry.

        Args:
            name: The entry.
            arrays: Inputs by name. An integer or float type is widened where nothing is lost.
            state: Memory from :meth:`new_state`; fresh zeros where the entry needs it and has none.

        Raises:
            BadInput: If an array is missing, unknown, or of another type or shape.
            DoesNotFit: If sizes or values go beyond the model's limits, or the state is another's.
        """
        entry = self.entry(name)
        inputs, dims = bind(self.manifest, entry, arrays)
        check_position(self.manifest, entry, inputs)
        memory = [self._fitting(state, dims).tensors] if entry.state else []
        return named(entry, self._call(name, inputs, memory), dims)

    def _fitting(self, state: State | None, dims: Mapping[str, int]) -> State:
        """The state given, which must be of this model and these sizes; new memory if None."""
        if state is None:
            return self.new_state(**dims)
        if state.specs is not self.manifest.state or not state.dims.items() <= dims.items():
            raise DoesNotFit(f"the state is of another model, or of other sizes: {state.dims}")
        return state

    def _call(
        self, name: str, inputs: Mapping[str, Array], memory: Sequence[object]
    ) -> list[Array]:
        """The outputs of compiled code, in its order."""
        compiled = self._compiled
        try:
            with compiled.lock, self.processor.running():
                tensors = [self.processor.tensor(*one) for one in inputs.items()]
                result = compiled.functions[name](*tensors, *memory, compiled.weights)
                return self.processor.arrays([result] if hasattr(result, "shape") else list(result))
        except (RuntimeError, ValueError, TypeError, LookupError) as error:
            raise self.processor.refused(name, str(error)) from None

    # text and generation

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 - an optional package
        """The ``tokenizers.Tokenizer`` of the artifact."""
        if self._tokenizer is None:
            self._tokenizer = self.open_tokenizer()
        return self._tokenizer

    def open_tokenizer(self) -> Any:  # noqa: ANN401
        """Another one, to be changed at will."""
        return open_tokenizer(self.manifest)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the beginning-of-text token where the model expects it.

        Raises:
            BadInput: If it holds half of a character, as undecodable bytes of a command line do, or
                the tokenizer fails.
            TooLong: If it is so long that the context cannot hold it.
        """
        check_text(text, "the prompt")
        ids = encode(self.tokenizer, text, self.manifest.context, "the prompt")
        bos = self.manifest.bos
        return ids if bos is None or ids[:1] == [bos] else [bos, *ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out."""
        with telling_failures():
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def generate(
        self,
        ids: Sequence[int],
        max_tokens: int = 100,
        **sampling: Any,  # noqa: ANN401
    ) -> Iterator[int]:
        """Continue a sequence of token ids, one token at a time.

        Ends after ``max_tokens``, before an end-of-text token, or when the context is full.

        Args:
            ids: The tokens so far.
            max_tokens: How many to make at most.
            sampling: What :class:`Sampling` takes: ``temperature``, ``top_k``, ``top_p``,
                ``min_p``, ``repetition_penalty``, ``seed``.

        Raises:
            BadUsage: If an option is out of range.
            BadInput: If there are no ids.
            DoesNotFit: If they are more than the context, or outside the vocabulary.
        """
        choose = Chooser(Sampling(**sampling))
        count = self.check_prompt(ids, max_tokens)
        return Session(self).generate(ids, count, choose)

    def check_prompt(self, ids: Sequence[int], max_tokens: int) -> int:
        """Refuse what cannot be continued; how many tokens can be made, at most ``max_tokens``.

        Raises:
            BadUsage: If ``max_tokens`` is negative.
            BadInput: If there are no ids.
            DoesNotFit: If they are more than the context, or outside the vocabulary.
        """
        if "embed" in self.manifest.entries:
            raise DoesNotFit(
                "this model makes embeddings and writes no text",
                hint="maxtool embed, or its own run.py, with --text makes a vector of a text",
            )
        if max_tokens < 0:
            raise BadUsage(f"max-tokens is {max_tokens}")
        if not len(ids):
            raise BadInput("the prompt is empty")
        if self.room(len(ids)) < 1:
            what = f"the prompt has {len(ids)} tokens"
            raise too_long(what, self.manifest.context)
        for name in ("prefill", "decode"):
            if "logits" not in {spec.name for spec in self.entry(name).outputs}:
                raise DoesNotFit(f"{name} gives no logits: this is no language model")
        bind(self.manifest, self.entry("prefill"), {"input_ids": [ids], "position": [0]})
        return min(max_tokens, self.room(len(ids)))

    def embed(self, texts: str | Iterable[Text], batch: int = 32) -> Array:
        """Vectors of texts, with the model's own pooling and normalisation.

        Args:
            texts: Texts, or lists of token ids; longer ones are cut to the context.
            batch: Texts in one call, padded to the longest.

        Returns:
            float32 ``[texts, hidden]``.

        Raises:
            DoesNotFit: If the model makes no embeddings, or ids are outside the vocabulary.
            BadInput: If a text has no tokens, or is no valid text.
        """
        return embed(self, texts, batch)

    def room(self, length: int) -> int:
        """Tokens that can be generated behind ``length`` others: the last is not read again."""
        context = self.manifest.context
        return sys.maxsize if context is None else context - length + 1


def load(
    path: str | os.PathLike[str],
    *,
    check: bool = True,
    device: str | None = None,
    progress: Callable[[float], None] = lambda _share: None,
) -> Model:
    """Open the artifact in the folder ``path``.

    Args:
        path: The folder.
        check: Whether every file must be the one that was compiled.
        device: ``cpu``, ``cuda`` or ``cuda:1``; what it was compiled for if None.
        progress: Told the share of the weights that is in the memory of the device, from 0 to 1.

    Raises:
        NotVerified: If ``check`` is true and a file is another.
        BadInput: If the manifest is missing or malformed.
        BadUsage: If there is no such device.
        DoesNotFit: If the model was compiled for another kind of device.
        MachineLacks: If the runtime is missing, the processor is another, or there is no driver, no
            CUDA runtime or no GPU that the model needs, or not enough memory.
    """
    manifest = Manifest(Path(path))
    if check:
        manifest.verify()
    if manifest.devices == 1:
        return Model(manifest, verified=check, device=device, progress=progress)
    from .split import SplitModel

    return SplitModel(manifest, verified=check, device=device, progress=progress)


def _array(tensors: Sequence[Any]) -> Any:  # noqa: ANN401
    """Tensors as the one argument that compiled code takes."""
    import tvm_ffi

    return tvm_ffi.Array(tensors)
