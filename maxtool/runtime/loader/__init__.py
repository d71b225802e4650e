"""Runtime of a compiled model: imports NumPy and TVM's runtime, and nothing of maxtool.

The package is copied into every artifact, beside ``run.py``, which is a program and a module.
"""

from .chat import ChatEncoder, ChatTemplate, open_template
from .conversation import Conversation
from .cuda_driver import Gpu, find_gpus
from .embedder import Embedder
from .errors import BadInput, BadUsage, DoesNotFit, MachineLacks, NotVerified, RunError, TooLong
from .host import set_threads
from .machine import CUDA_RUNTIME, RUNTIME
from .manifest import SCHEMA, Manifest, checksum
from .memory import State, aligned
from .model import Model, load
from .options import CommonOptions, EmbedOptions, TextOptions, parse, parse_embedding
from .program import execute, main
from .reply import Reply
from .sampling import Sampling, TokenSampler
from .session import Session
from .specs import ALIGNMENT, ArraySpec, EntrySpec
from .stream import StopStrings, TextStream

__all__ = [
    "ALIGNMENT",
    "CUDA_RUNTIME",
    "RUNTIME",
    "SCHEMA",
    "ArraySpec",
    "BadInput",
    "BadUsage",
    "ChatEncoder",
    "ChatTemplate",
    "CommonOptions",
    "Conversation",
    "DoesNotFit",
    "EmbedOptions",
    "Embedder",
    "EntrySpec",
    "Gpu",
    "MachineLacks",
    "Manifest",
    "Model",
    "NotVerified",
    "Reply",
    "RunError",
    "Sampling",
    "Session",
    "State",
    "StopStrings",
    "TextOptions",
    "TextStream",
    "TokenSampler",
    "TooLong",
    "aligned",
    "checksum",
    "execute",
    "find_gpus",
    "load",
    "main",
    "open_template",
    "parse",
    "parse_embedding",
    "set_threads",
]
