"""Tensors that follow from their names, configurations that differ in a key, and what is computed.

Shared by ``record_variants.py``, which needs torch, and the tests of what it recorded, which do
not. Only the bits of PCG64 are used, which NumPy promises never to change.
"""

from __future__ import annotations

import copy
import itertools
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Config = dict[str, Any]
SEED = 5
PADDED = 4
SAMPLES = 12


def tensor(name: str, shape: Sequence[int], norm: float) -> Array:
    """Uniform float32 numbers of about unit size for what they are multiplied with.

    Args:
        name: The tensor's name, which decides them.
        shape: Its sizes.
        norm: What the weights of norms are around.
    """
    bits = np.random.PCG64([SEED, zlib.crc32(name.encode())]).random_raw(int(np.prod(shape)))
    uniform = ((bits >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23)) - np.float32(1)
    own = name.lower().replace("norm_attn_norm.", "")  # DBRX's block of two norms and attention
    is_norm = ("norm" in own or ".ln_" in own) and own.endswith("weight")
    spread = np.float32(0.5 if len(shape) < 2 else 2.5 / shape[-1] ** 0.5)
    centre = np.float32(norm if is_norm else 0.0)
    return (uniform * spread + centre).reshape(shape)


def folded(shapes: Mapping[str, Any]) -> dict[str, Any]:
    """The same with one name for layers that follow each other: ``layers.{0..2}.weight``."""
    made: dict[str, Any] = {}
    runs: dict[tuple[str, str], list[int]] = {}
    for name, shape in shapes.items():
        number = re.search(r"\.(\d+)\.", name)
        if number is None:
            made[name] = shape
        else:
            pattern = f"{name[: number.start(1)]}#{name[number.end(1) :]}"
            runs.setdefault((pattern, str(shape)), []).append(int(number[1]))
    for (pattern, _), numbers in runs.items():
        for number in numbers:
            if number - 1 not in numbers:
                last = next(one for one in itertools.count(number) if one + 1 not in numbers)
                shape = shapes[pattern.replace("#", str(number))]
                made[pattern.replace("#", f"{{{number}..{last}}}")] = shape
    return made


def unfolded(shapes: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`folded` was given."""
    made: dict[str, Any] = {}
    for name, shape in shapes.items():
        run = re.search(r"\{(\d+)\.\.(\d+)\}", name)
        numbers = range(int(run[1]), int(run[2]) + 1) if run else [None]
        made |= {name.replace(run[0], str(n)) if run else name: shape for n in numbers}
    return made


def tensors(shapes: Mapping[str, Sequence[int]], norm: float = 1.0) -> dict[str, Array]:
    """A tensor for each name."""
    return {name: tensor(name, shape, norm) for name, shape in shapes.items()}


def network_tensors(shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """The same for networks of convolutions: of about unit size for what a window holds.

    Variances are above 0, and counts of batches are integers.
    """
    made: dict[str, Array] = {}
    for name, shape in shapes.items():
        values = tensor(name, shape, 1.0)
        if name.endswith("running_var"):
            values = np.abs(values) + np.float32(0.5)
        elif name.endswith("num_batches_tracked"):
            values = np.ones(shape, np.int64)
        elif len(shape) == 4:
            values = values * np.float32((shape[-1] / np.prod(shape[1:])) ** 0.5)
        made[name] = values
    return made


def input_ids(count: int, size: int = 61, lowest: int = 3) -> Array:
    """Token ids [1, count] from ``lowest`` on, all below ``size``."""
    return (lowest + np.arange(count, dtype=np.int64) * 17 % 53 % (size - lowest))[None]


def attention_mask(count: int) -> Array:
    """Ones, and zeros for the last tokens, [1, count]: what an encoder is given besides."""
    return (np.arange(count, dtype=np.int64) < count - PADDED).astype(np.int64)[None]


TYPED = ("bert", "electra", "deberta-v2", "gte")  # encoders that know two types of tokens


def classified_inputs(model_type: str, count: int = 21) -> Config:
    """Two texts by the names of an encoder's inputs, of which the second is shorter."""
    ids = np.concatenate([input_ids(count), input_ids(count)[:, ::-1]])
    mask = np.concatenate([np.ones((1, count), np.int64), attention_mask(count)])
    given: Config = {"input_ids": np.where(mask == 1, ids, 1), "attention_mask": mask}
    types = np.broadcast_to(np.arange(count) % 2, ids.shape).astype(np.int64) * mask
    return given | ({"token_type_ids": types} if model_type in TYPED else {})


def changed(config: Config, sets: Mapping[str, Any], drop: str = "") -> Config:
    """A configuration with other values at dotted keys, and without one."""
    made: Config = copy.deepcopy(config)
    for key, value in sets.items():
        table, last = _table(made, key)
        table[last] = value
    if drop:
        table, last = _table(made, drop)
        table.pop(last, None)
    return made


def _table(config: Config, key: str) -> tuple[Config, str]:
    """The table that holds a dotted key, made where there is none, and the key's last part."""
    *path, last = key.split(".")
    for name in path:
        if not isinstance(config.get(name), dict):
            config[name] = {}
        config = config[name]
    return config, last


def sample(outputs: Array) -> Array:
    """A few of the outputs [1, tokens, n]: of a token in the middle, and of the last."""
    places = np.linspace(0, outputs.shape[-1] - 1, SAMPLES // 2).astype(int)
    return np.concatenate(
        [outputs[0, position, places] for position in (outputs.shape[1] // 2, -1)]
    )


def pixel_values(config: Config, size: int | None = None, count: int = 2) -> Array:
    """Pixels [count, channels, size, size] for a model of images, whose own size is the default."""
    sizes = {**config, **config.get("vision_config", {})}
    side = size or sizes["image_size"]
    return tensor("pixel_values", (count, sizes["num_channels"], side, side), 0.0)


def write_images(folder: Path) -> list[Path]:
    """Images of several kinds, which Pillow writes: colours, grey, palettes, alpha, turned by EXIF.

    None of their formats loses anything, so that all releases of Pillow read the same.
    """
    from PIL import Image

    bits = tensor("image", (23, 31, 4), 0.0)
    rgba = ((bits - bits.min()) * (255 / np.ptp(bits))).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    colours = Image.fromarray(np.ascontiguousarray(rgba[..., :3]))
    numbered = Image.new("P", colours.size)
    numbered.putpalette(rgba[0, :9, :3].tobytes())
    numbered.putdata((rgba[..., 0] % 9).ravel().tolist())
    kinds = {
        "rgb.png": (colours, {}),
        "tall.bmp": (colours.transpose(Image.Transpose.ROTATE_90), {}),
        "turned.png": (colours, {"exif": exif}),
        "grey.png": (Image.fromarray(np.ascontiguousarray(rgba[..., 0])), {}),
        "alpha.png": (Image.fromarray(rgba), {}),
        "palette.png": (numbered, {"transparency": 4}),
        "small.png": (colours.crop((0, 0, 7, 5)), {}),
    }
    for name, (image, options) in kinds.items():
        image.save(folder / name, **options)
    return [folder / name for name in kinds]


def input_features(config: Config, count: int = 2) -> Array:
    """Spectrograms [count, n_mels, frames] for a model of speech."""
    sizes = (count, config["num_mel_bins"], 2 * config["max_source_positions"])
    return tensor("input_features", sizes, 0.0)


def text_ids(config: Config, count: int = 3) -> tuple[Array, Array]:
    """Token ids and a mask [count, length] for a model of images and texts.

    Each text ends with the last id, and padding by another id follows, which the mask hides.
    """
    sizes = config["text_config"]
    length, last = sizes["max_position_embeddings"], sizes["vocab_size"] - 1
    bits = np.random.PCG64([SEED, count]).random_raw(count * length)
    ids = (3 + bits % np.uint64(last - 4)).astype(np.int64).reshape(count, length)
    lengths = np.array([length, length - 3, 2])[:count, None]
    places = np.arange(length)
    ids[places == lengths - 1] = last
    ids[places >= lengths] = 1
    return ids, (places < lengths).astype(np.int64)
