"""maxtool: look at a model checkpoint, convert it, or compile it into something that runs."""

__version__ = "0.1.0"
