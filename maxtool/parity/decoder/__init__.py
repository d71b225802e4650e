"""The float64 reference of decoders: all families, from Hugging Face folders and GGUF files.

============================  ====================================================
``huggingface``, ``gguf``     settings from a config.json or GGUF metadata, with a row per family
``settings``                  what both give
``names``, ``tensors``        what tensors are called; reading them by their roles
``scaling``, ``rope``         rotary positions
``attention``, ``mlp``        the other arithmetic
``layer``, ``reference``      the order of it in a layer, and in the model
============================  ====================================================
"""

from maxtool.parity.decoder.gguf.families import ROWS as GGUF_ROWS
from maxtool.parity.decoder.huggingface.classes import CLASSES
from maxtool.parity.decoder.huggingface.families import ROWS as HUGGING_FACE_ROWS
from maxtool.parity.decoder.reference import DecoderReference

MODEL_TYPES, GGUF_ARCHITECTURES = tuple(HUGGING_FACE_ROWS), tuple(GGUF_ROWS)

__all__ = ["CLASSES", "GGUF_ARCHITECTURES", "MODEL_TYPES", "DecoderReference"]
