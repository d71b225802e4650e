"""Record what transformers' image processors (those of Pillow) make of small images.

Needs the ``peers`` extra (torch, transformers) and Pillow. It writes ``image_processors.npz``
beside this script: the configurations as JSON, and the pixel values of each image.

    python tests/data/record_image_processors.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from seeded import write_images

OUT = Path(__file__).parent / "image_processors.npz"
SQUARE = {"height": 12, "width": 12}
NORMAL = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25]}
# A class, and what its file says.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", {"size": SQUARE}),
    "vit-old": ("ViT", {"feature_extractor_type": "ViTFeatureExtractor", "size": 10, **NORMAL}),
    "vit-edge": ("ViT", {"size": 10, "default_to_square": False, "do_convert_rgb": True}),
    "vit-wide": ("ViT", {"size": {"height": 9, "width": 14}, "resample": 3}),
    "vit-plain": ("ViT", {"size": SQUARE, "do_normalize": False}),
    "vit-bytes": ("ViT", {"size": SQUARE, "do_normalize": False, "do_rescale": False}),
    "vit-rescaled": ("ViT", {"size": SQUARE, "rescale_factor": 0.01, **NORMAL}),
    "vit-cropped": ("ViT", {"size": SQUARE, "do_center_crop": True, "crop_size": 9}),
    "vit-padded": ("ViT", {"size": SQUARE, "do_center_crop": True, "crop_size": 15}),
    "vit-unsized": ("ViT", {"do_resize": False, "do_center_crop": True, "crop_size": 30}),
    **{f"filter-{n}": ("ViT", {"size": SQUARE, "resample": n}) for n in range(6)},
    "siglip": ("Siglip", {"size": SQUARE}),
    "gemma3": ("Gemma3", {"size": SQUARE, "do_pan_and_scan": None, "image_seq_length": 9}),
    "clip": ("CLIP", {"size": {"shortest_edge": 14}, "crop_size": SQUARE}),
    "clip-old": (
        "CLIP",
        {"feature_extractor_type": "CLIPFeatureExtractor", "size": 13, "crop_size": 11},
    ),
    "clip-square": ("CLIP", {"size": 13, "crop_size": 11, "default_to_square": True}),
    "clip-unconverted": ("CLIP", {"size": 13, "crop_size": 11, "do_convert_rgb": False}),
    "bit": ("Bit", {"size": {"shortest_edge": 15}, "crop_size": {"height": 12, "width": 10}}),
    "convnext": ("ConvNext", {"size": {"shortest_edge": 14}}),
    "convnext-old": (
        "ConvNext",
        {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 13, "crop_pct": 0.9},
    ),
    "convnext-unsized": ("ConvNext", {"do_resize": False, "do_center_crop": True, "crop_size": 9}),
    "deit": ("DeiT", {"size": SQUARE, "crop_size": {"height": 9, "width": 9}}),
}


def main() -> None:
    known, arrays = {}, {}
    with tempfile.TemporaryDirectory() as name:
        files = write_images(Path(name))
        for case, (kind, said) in CASES.items():
            folder = Path(name) / case
            folder.mkdir()
            named = (
                {}
                if "feature_extractor_type" in said
                else {"image_processor_type": f"{kind}ImageProcessor"}
            )
            known[case] = {**named, **said}
            (folder / "preprocessor_config.json").write_text(json.dumps(known[case]))
            processor = getattr(transformers, f"{kind}ImageProcessorPil").from_pretrained(folder)
            for file in files:
                found = processor(str(file), return_tensors="np")["pixel_values"][0]
                arrays[f"{case}/{file.name}"] = found
    text = np.frombuffer(json.dumps(known).encode(), np.uint8)
    np.savez_compressed(OUT, cases=text, **arrays)
    print(len(known), "cases,", OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
