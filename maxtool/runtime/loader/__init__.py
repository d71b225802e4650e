"""Runtime of a compiled model: imports NumPy and TVM's runtime, and nothing of maxtool.

The package is copied into every artifact, beside ``run.py``, which is a program and a module.
"""

from .chat import open_template
from .conversation import Conversation
from .errors import BadInput, BadUsage, DoesNotFit, MachineLacks, NotVerified, RunError
from .manifest import Manifest, checksum
from .model import Model, load
from .options import parse, parse_embedding
from .processor import State
from .program import execute, main
from .sampling import Sampling, TokenSampler
from .stream import TextStream

__all__ = [
    "BadInput",
    "BadUsage",
    "Conversation",
    "DoesNotFit",
    "MachineLacks",
    "Manifest",
    "Model",
    "NotVerified",
    "RunError",
    "Sampling",
    "State",
    "TextStream",
    "TokenSampler",
    "checksum",
    "execute",
    "load",
    "main",
    "open_template",
    "parse",
    "parse_embedding",
]
