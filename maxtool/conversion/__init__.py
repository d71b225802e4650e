"""Rewriting a checkpoint in another format, element type, block encoding or naming dialect."""

from maxtool.conversion.engine import Conversion, Report, convert, prepare
from maxtool.conversion.request import Request

__all__ = ["Conversion", "Report", "Request", "convert", "prepare"]
