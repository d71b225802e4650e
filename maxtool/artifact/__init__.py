"""Artifacts: a checkpoint and its recipe, compiled into a folder that runs on its own."""

from maxtool.artifact.build import Build, prepare
from maxtool.artifact.request import Request
from maxtool.artifact.writing import Report, make

__all__ = ["Build", "Report", "Request", "make", "prepare"]
