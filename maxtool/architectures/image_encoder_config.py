"""The options of an encoder of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.config import MAX_POSITIONS, out_of_range, unsupported
from maxtool.architectures.image_pooling import CLASSIFIED, POOLINGS
from maxtool.architectures.mlp import MLPS
from maxtool.architectures.pre_norm_layer import LayerSizes

CHOICES = {
    "hidden_act": tuple(ACTIVATIONS),
    "mlp": tuple(MLPS),
    "pooler": ("none", "dense", "cls", "attention", "norm"),
    "pooler_act": tuple(ACTIVATIONS),
    "pooling": tuple(POOLINGS),
    "classified": tuple(CLASSIFIED),
}
# Poolers that take the class token's vector.
OF_CLASS_TOKEN = ("dense", "cls", "norm")


@dataclass(frozen=True, slots=True)
class ImageEncoderConfig:
    """The options of an encoder of images, a vision transformer."""

    hidden_size: int
    intermediate_size: int
    n_layers: int
    n_heads: int
    head_dim: int
    image_size: int  # pixels of a side that there is a table of positions for
    patch_size: int  # pixels of a side of a patch
    n_patches: int  # rows of the table of positions, those of the patches alone
    norm_eps: float
    n_channels: int = 3
    # Pixels of a side of the images that it is compiled for; None for ``image_size``.
    input_size: int | None = None
    # Whether positions are resized with an antialiasing filter.
    position_antialias: bool = False
    class_token: bool = True  # before the patches, with a position of its own
    n_registers: int = 0  # tokens without a position between the class token and the patches
    patch_bias: bool = True
    qkv_bias: bool = True
    embed_norm: bool = False  # whether embedded tokens are normalised before the first layer
    layer_scale: bool = False
    mlp: str = "plain"
    hidden_act: str = "gelu"
    # What makes a vector of the tokens: ``dense`` (ViT: a layer and an activation on the class
    # token), ``cls`` (DINOv2: that token), ``attention`` (SigLIP: a learned query), ``norm`` (CLIP:
    # the last norm on the class token alone, and not on all tokens), or ``none``.
    pooler: str = "none"
    pooler_size: int | None = None  # of the vector of ``dense``; None for ``hidden_size``
    pooler_act: str = "tanh"
    projection_size: int = 0  # of the vector after a projection; 0 for no projection
    # How ``embed`` makes one vector, in the place of the pooler: ``cls`` or ``mean`` (of the
    # patches); None for the pooler, or the projection, or for what classifiers look at.
    pooling: str | None = None
    normalize: bool = False  # whether ``embed`` scales that vector to length 1
    n_labels: int = 0  # classes of a classifier; 0 for none
    # What a classifier looks at: ``cls``, ``mean`` (of the patches), or both, one after the other.
    classified: str = "cls"

    def problems(self) -> list[str]:
        """Return the problems with the values, one line each."""
        return [*self._sizes(), *unsupported(self, CHOICES), *self._tokens()]

    @property
    def side(self) -> int:
        """Pixels of a side of the images that it takes."""
        return self.input_size or self.image_size

    @property
    def layer(self) -> LayerSizes:
        """The sizes and options of a layer."""
        names = ("hidden_size", "intermediate_size", "n_heads", "head_dim", "norm_eps")
        more = ("hidden_act", "mlp", "qkv_bias", "layer_scale")
        return LayerSizes(**{name: getattr(self, name) for name in (*names, *more)})

    def _sizes(self) -> Iterator[str]:
        positive = (
            "hidden_size intermediate_size n_layers n_heads head_dim image_size patch_size"
            " n_patches n_channels input_size pooler_size"
        )
        not_negative = ("n_registers", "projection_size", "n_labels", "norm_eps")
        yield from out_of_range(self, positive.split(), not_negative)
        if self.patch_size > 0:
            yield from self._sides()

    def _sides(self) -> Iterator[str]:
        for name in ("image_size", "input_size"):
            size = getattr(self, name)
            if size is not None and 0 < size < self.patch_size:
                yield f"{name} {size} is less than a patch of {self.patch_size}"
        if self.side // self.patch_size > MAX_POSITIONS**0.5:
            yield f"images of {self.side} pixels have more than {MAX_POSITIONS} patches"
        grid = self.image_size // self.patch_size
        if self.n_patches != grid**2:
            yield f"n_patches is {self.n_patches}, not {grid} x {grid}"

    def _tokens(self) -> Iterator[str]:
        """Yield what needs a class token where there is none."""
        if self.class_token:
            return
        if self.pooler in OF_CLASS_TOKEN:
            yield f"pooler {self.pooler!r} needs a class token"
        if self.pooling == "cls":
            yield "pooling 'cls' needs a class token"
        if self.n_labels and self.classified != "mean":
            yield f"classified {self.classified!r} needs a class token"
        if self.n_registers:
            yield "registers stand behind a class token, and there is none"
