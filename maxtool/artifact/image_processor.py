"""``preprocessor_config.json``: how a checkpoint's images become pixel values.

The keys and the defaults of each class are those of transformers' image processors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from maxtool.errors import ConfigurationError
from maxtool.runtime.loader.image_spec import FILTERS, ImageSpec, image_spec
from maxtool.weights.jsonfile import read_object

FILE, WHOLE = "preprocessor_config.json", "processor_config.json"
MOST = 1 << 20  # bytes of the file
HALF = [0.5, 0.5, 0.5]
OPENAI_MEAN = [0.48145466, 0.4578275, 0.40821073]
OPENAI_STD = [0.26862954, 0.26130258, 0.27577711]
# From this edge on ConvNeXT's processor makes a square of the whole image, and crops nothing.
WARPED_FROM = 384
NAMES = {number: name for name, number in FILTERS.items()}
# What the classes do where the file does not say.
_CLIP: Mapping[str, Any] = {
    "do_resize": True,
    "size": {"shortest_edge": 224},
    "default_to_square": False,
    "resample": 3,
    "do_convert_rgb": True,
    "do_center_crop": True,
    "crop_size": 224,
    "image_mean": OPENAI_MEAN,
    "image_std": OPENAI_STD,
}
_VIT: Mapping[str, Any] = {
    "do_resize": True,
    "size": 224,
    "default_to_square": True,
    "resample": 2,
    "do_convert_rgb": False,
    "do_center_crop": False,
    "crop_size": 224,
    "image_mean": HALF,
    "image_std": HALF,
}
CLASSES: Mapping[str, Mapping[str, Any]] = {
    "ViT": _VIT,
    "DeiT": {**_VIT, "size": 256, "resample": 3, "do_center_crop": True},
    "Siglip": {**_VIT, "resample": 3, "default_to_square": False, "do_convert_rgb": True},
    "CLIP": _CLIP,
    "Gemma3": {**_VIT, "do_convert_rgb": True},
    "Bit": _CLIP,
    "ConvNext": {
        **_VIT,
        "size": {"shortest_edge": 384},
        "default_to_square": False,
        "resample": 3,
        "crop_pct": 224 / 256,
    },
}
ENDINGS = ("ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor")
NAMED = ("image_processor_type", "feature_extractor_type")
STEPS = """
do_resize size resample do_center_crop crop_size do_rescale rescale_factor do_normalize image_mean
image_std do_convert_rgb default_to_square
"""
# What changes no pixel of an RGB image by itself.
IGNORED = """
_processor_class _valid_processor_keys processor_class data_format input_data_format device
return_tensors disable_grouping image_seq_length backend
pan_and_scan_min_crop_size pan_and_scan_max_num_crops pan_and_scan_min_ratio_to_activate
"""
KNOWN = frozenset((*STEPS.split(), *IGNORED.split(), *NAMED))


def read(folder: Path) -> ImageSpec | None:
    """The steps that a folder's processor takes; None where it has none.

    Raises:
        ConfigurationError: Listing what is not understood.
    """
    file = folder / FILE
    if file.is_file():
        return _steps(read_object(file, most=MOST), file)
    file = folder / WHOLE
    whole = read_object(file, most=MOST) if file.is_file() else {}
    inner = whole.get("image_processor")
    return _steps(inner, file) if isinstance(inner, dict) else None


def _steps(content: Mapping[str, object], file: Path) -> ImageSpec:
    kind = next((str(content[name]) for name in NAMED if content.get(name)), "")
    base = next((kind.removesuffix(end) for end in ENDINGS if kind.endswith(end)), kind)
    problems = [] if base in CLASSES else [f"the class {kind or 'of no name'!r}"]
    extra = content.keys() - KNOWN - CLASSES.get(base, {}).keys()
    problems += [f"{key} = {content[key]!r:.60}" for key in sorted(extra) if content[key]]
    if problems:
        raise ConfigurationError(
            "the preprocessing of images is not understood",
            file=file,
            problems=problems,
            hint=f"known are the image processors of {', '.join(CLASSES)}",
        )
    said = {key: value for key, value in content.items() if value is not None}
    try:
        return _spec({**CLASSES[base], **said})
    except (ValueError, TypeError) as error:
        what = f"the preprocessing of images is malformed: {error}"
        raise ConfigurationError(what, file=file) from None


def _spec(keys: Mapping[str, Any]) -> ImageSpec:
    edge = not keys["default_to_square"]
    size = _size(keys["size"], "size", edge=edge) if keys["do_resize"] else {}
    crop = _size(keys["crop_size"], "crop_size") if keys["do_center_crop"] else {}
    if "crop_pct" in keys and keys["do_resize"]:
        size, crop = _warped_or_cropped(size, crop, keys["crop_pct"])
    normal = keys.get("do_normalize", True)
    resample = keys["resample"]
    steps = {
        **size,
        "crop": crop.get("size"),
        "resample": NAMES.get(resample, resample) if type(resample) is int else resample,
        "rescale": keys.get("rescale_factor", 1 / 255) if keys.get("do_rescale", True) else None,
        "mean": _channels(keys["image_mean"]) if normal else None,
        "std": _channels(keys["image_std"]) if normal else None,
        "on_white": keys["do_convert_rgb"] is True,
    }
    return image_spec(steps)


def _warped_or_cropped(
    size: Mapping[str, object], crop: dict[str, object], share: object
) -> tuple[dict[str, object], dict[str, object]]:
    """The size and the crop by which an image becomes a square of which an edge is said.

    Smaller squares are a share of the resized image's, cut out of its middle.
    """
    edge = size.get("shortest_edge")
    if type(edge) is not int or edge < 1:
        raise ValueError(f"size is {size!r:.80}, and not its shortest_edge")
    if edge >= WARPED_FROM:
        return {"size": [edge, edge]}, crop
    if not isinstance(share, int | float) or not 0 < share < math.inf:
        raise ValueError(f"crop_pct is {share!r:.40}")
    if crop:
        raise ValueError("do_center_crop is set where crop_pct says what is cropped")
    return {"shortest_edge": int(edge / share)}, {"size": [edge, edge]}


def _channels(value: object) -> object:
    """A number for each channel."""
    return [value] * 3 if isinstance(value, int | float) else value


def _size(value: object, name: str, *, edge: bool = False) -> dict[str, object]:
    """The keys of a size, as one number, a pair, or a table of its sides says it."""
    match value:
        case {"shortest_edge": one, **rest} if not any(rest.values()) and name == "size":
            return {"shortest_edge": one}
        case {"height": height, "width": width, **rest} if not any(rest.values()):
            return {"size": [height, width]}
        case int() if edge:
            return {"shortest_edge": value}
        case int():
            return {"size": [value, value]}
        case [height, width]:
            return {"size": [height, width]}
    raise ValueError(f"{name} is {value!r:.80}")


def resized(steps: ImageSpec, side: int) -> ImageSpec:
    """The steps with a square of other size as their result, all sizes in proportion."""
    if steps.result in ((side, side), None):
        return steps
    share = side / min(steps.result or (side,))
    edge = None if steps.shortest_edge is None else max(1, round(steps.shortest_edge * share))
    size = None if steps.size is None else _scaled(steps.size, share)
    if steps.crop is None:
        return replace(steps, size=(side, side), shortest_edge=edge)
    return replace(steps, size=size, shortest_edge=edge, crop=(side, side))


def _scaled(size: Sequence[int], share: float) -> tuple[int, int]:
    height, width = (max(1, round(each * share)) for each in size)
    return height, width


def manifest(steps: ImageSpec) -> dict[str, object]:
    """The steps as the manifest says them."""
    values = asdict(steps)
    return {key: list(x) if isinstance(x, tuple) else x for key, x in values.items()}
