"""Runtime of a compiled model: imports NumPy and TVM's runtime, and nothing of maxtool.

The package is copied into every artifact, beside ``run.py``, which is a program and a module.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import BadInput, BadUsage, DoesNotFit, MachineLacks, NotVerified, RunError
from .manifest import Manifest, checksum
from .model import Model, load
from .processor import State
from .sampling import Sampling, TokenSampler

if TYPE_CHECKING:
    from .batch import generate_many
    from .chat import open_template
    from .conversation import Conversation
    from .options import parse, parse_embedding
    from .program import execute, main
    from .prompts import Completion, Prompt
    from .stream import TextStream

# What a model is loaded and continued without, by the file it is imported from when asked for.
LATER = {
    "Completion": "prompts",
    "Conversation": "conversation",
    "Prompt": "prompts",
    "TextStream": "stream",
    "execute": "program",
    "generate_many": "batch",
    "main": "program",
    "open_template": "chat",
    "parse": "options",
    "parse_embedding": "options",
}

__all__ = [
    "BadInput",
    "BadUsage",
    "Completion",
    "Conversation",
    "DoesNotFit",
    "MachineLacks",
    "Manifest",
    "Model",
    "NotVerified",
    "Prompt",
    "RunError",
    "Sampling",
    "State",
    "TextStream",
    "TokenSampler",
    "checksum",
    "execute",
    "generate_many",
    "load",
    "main",
    "open_template",
    "parse",
    "parse_embedding",
]


def __getattr__(name: str) -> object:
    """Import what is asked for only now."""
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{LATER[name]}", __name__), name)
