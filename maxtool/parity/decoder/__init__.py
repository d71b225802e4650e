"""The float64 reference of decoders: all families, from Hugging Face folders and GGUF files.

======================  ==========================================================
``huggingface``         settings from a config.json, a row for each ``model_type``
``gguf``                settings from a GGUF file, a row for each architecture
``settings``            what both give
``names``, ``tensors``  what tensors are called; reading them by their roles
``rope``, ``attention``, ``mlp``, ``layer``, ``reference``  the arithmetic
======================  ==========================================================
"""

from maxtool.parity.decoder.gguf import ROWS as GGUF_ROWS
from maxtool.parity.decoder.huggingface import ROWS as HUGGING_FACE_ROWS
from maxtool.parity.decoder.reference import DecoderReference

MODEL_TYPES, GGUF_ARCHITECTURES = tuple(HUGGING_FACE_ROWS), tuple(GGUF_ROWS)

__all__ = ["GGUF_ARCHITECTURES", "MODEL_TYPES", "DecoderReference"]
