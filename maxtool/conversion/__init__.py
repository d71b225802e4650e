"""Rewriting a checkpoint in another format, element type, block encoding or naming dialect."""

from maxtool.conversion.engine import Conversion, Report, convert, prepare
from maxtool.conversion.request import Request
from maxtool.conversion.shares import kept_files

__all__ = ["Conversion", "Report", "Request", "convert", "kept_files", "prepare"]
