"""What runs a compiled model: imports NumPy and TVM's runtime, and nothing of maxtool.

The package is copied into every artifact, beside ``run.py``, which is a program and a module.
"""

from .chat import ChatEncoder, ChatTemplate, open_template
from .conversation import Conversation
from .cuda_driver import Gpu, find_gpus
from .embedding import Embedder
from .errors import BadInput, BadUsage, DoesNotFit, MachineLacks, NotVerified, RunError, TooLong
from .host import set_threads
from .machine import CUDA_RUNTIME, RUNTIME
from .manifest import SCHEMA, Manifest, checksum
from .memory import State, aligned
from .model import Model, load
from .options import Common, EmbedOptions, Options, parse, parse_embedding
from .program import execute, main
from .reply import Reply
from .sampling import Chooser, Sampling
from .session import Session
from .specs import ALIGNMENT, Entry, Spec
from .stream import Stops, TextStream

__all__ = [
    "ALIGNMENT",
    "CUDA_RUNTIME",
    "RUNTIME",
    "SCHEMA",
    "BadInput",
    "BadUsage",
    "ChatEncoder",
    "ChatTemplate",
    "Chooser",
    "Common",
    "Conversation",
    "DoesNotFit",
    "EmbedOptions",
    "Embedder",
    "Entry",
    "Gpu",
    "MachineLacks",
    "Manifest",
    "Model",
    "NotVerified",
    "Options",
    "Reply",
    "RunError",
    "Sampling",
    "Session",
    "Spec",
    "State",
    "Stops",
    "TextStream",
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
