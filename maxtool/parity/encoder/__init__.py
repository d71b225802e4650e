"""The float64 reference of encoders: BERT and its relatives, from both dialects.

=============  ==========================================================
``settings``   sizes and options, from a raw config.json or GGUF metadata
``tensors``    what tensors are called; reading them by their roles
``reference``  the arithmetic
=============  ==========================================================
"""

from maxtool.parity.encoder.reference import EncoderReference
from maxtool.parity.encoder.settings import GGUF_ARCHITECTURES, MODEL_TYPES

__all__ = ["GGUF_ARCHITECTURES", "MODEL_TYPES", "EncoderReference"]
